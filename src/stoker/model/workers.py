"""What a worker tells about itself, and where: an entry of the key-value store that leaves unless it is refreshed.

Workers write it, clients list it; the queue knows nothing of it.
"""

from collections.abc import Iterable

import msgspec

from stoker.model.replies import KvValue

WORKER_KEYS = "stoker:worker:"
"""Before a worker's id; the rest of the key-value store is the users'."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process that runs handlers. Times are wall-clock milliseconds of that process."""

    id: str
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """The names and aliases of the jobs that it can run; empty if it did not say."""
    slots: int = 0
    """How many jobs it may have in hand."""
    running: int = 0
    done: int = 0
    """Deliveries that it settled since it started, those that failed included."""
    failed: int = 0
    """Those of them that failed."""
    started_at: int = 0
    polled_at: int = 0
    """When a pull was last answered; 0 = not yet."""
    seen_at: int = 0
    """When it wrote this."""
    stopping: bool = False
    version: str = ""
    """Of Stoker."""

    @property
    def succeeded(self) -> int:
        """Deliveries that did not fail."""
        return max(0, self.done - self.failed)


def worker_views(values: Iterable[KvValue]) -> list[WorkerView]:
    """Entries that have left meanwhile, or that something else wrote there, are left out."""
    views = []
    for entry in values:
        if not entry.exists:
            continue
        try:
            views.append(msgspec.json.decode(entry.value, type=WorkerView))
        except (msgspec.MsgspecError, RecursionError):
            continue
    return views
