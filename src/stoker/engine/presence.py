"""Whether a worker is there for a queue: what schedules with `skip_if_no_worker` ask at each slot.

What is known of workers here is what they do: they pull, they run jobs, they settle them. Pulls are not state: they are
not journaled, and a restart forgets them. So the answer goes into the record of the slot, and a replay asks nothing.
"""

from stoker.engine.jobs import ACTIVE
from stoker.engine.state import QueueState

WORKER_SEEN_MS = 30_000
"""So long a worker counts after its last sign of life: between two pulls it waits, or writes down what it has done."""


def see(queue: QueueState, at: int) -> None:
    """A worker asked the queue for jobs, or settled one."""
    if queue.known:
        queue.worker_seen_at = at


def has_worker(queue: QueueState, at: int) -> bool:
    """Whether a job of the queue runs, a pull waits for it, or a worker was there a short time ago."""
    if queue.counts[ACTIVE] or at - queue.worker_seen_at <= WORKER_SEEN_MS:
        return True
    return any(not parked.done and at - parked.expires_at <= WORKER_SEEN_MS for parked in queue.waiters)
