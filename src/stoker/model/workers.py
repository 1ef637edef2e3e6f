"""What a worker reports about itself: a key-value entry that expires unless the worker refreshes it.

Workers write it and clients list it; the queue does not use it.
"""

from collections.abc import Iterable

import msgspec

from stoker.model.replies import KvValue

WORKER_KEYS = "stoker:worker:"
"""The prefix of workers' keys. The rest of the key-value store belongs to users."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process that runs handlers. Times are wall-clock milliseconds of that process."""

    id: str
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The names and aliases of the jobs that it can run; empty if it did not report them."""
    slots: int = 0
    """How many jobs it may have at once."""
    running: int = 0
    done: int = 0
    """Deliveries that it settled since it started, including failed ones."""
    failed: int = 0
    """The settled deliveries that failed."""
    started_at: int = 0
    polled_at: int = 0
    """When a pull was last answered; 0 = not yet."""
    seen_at: int = 0
    """When it wrote this entry."""
    stopping: bool = False
    version: str = ""
    """The version of Stoker."""
    memory_bytes: int = 0
    """What the process holds in memory, without its child processes; 0 = not reported."""

    @property
    def succeeded(self) -> int:
        """Deliveries that did not fail."""
        return max(0, self.done - self.failed)


def worker_views(values: Iterable[KvValue]) -> list[WorkerView]:
    """The workers in these entries. Entries that have expired or that another program wrote are left out."""
    views = []
    for entry in values:
        if not entry.exists:
            continue
        try:
            views.append(msgspec.json.decode(entry.value, type=WorkerView))
        except (msgspec.MsgspecError, RecursionError):
            continue
    return views
