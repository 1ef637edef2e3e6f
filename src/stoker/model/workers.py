"""What a worker tells about itself, and where: an entry of the key-value store that leaves unless it is refreshed.

Workers write it, clients list it; the queue knows nothing of it.
"""

import msgspec

WORKER_KEYS = "stoker:worker:"
"""Before a worker's id; the rest of the key-value store is the users'."""


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process that runs handlers. Times are wall-clock milliseconds of that process."""

    id: str
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = ()
    slots: int = 0
    """How many jobs it may have in hand."""
    running: int = 0
    done: int = 0
    """Deliveries that it settled since it started, whatever became of them."""
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
