"""Records of queues as a whole, and of their dead letters."""

from stoker.model.options import DeadLetterPolicy, GroupPolicy, RateLimit
from stoker.model.replies import Level
from stoker.records.records.shape import Labels, Record


class QueueConfigured(Record, frozen=True, gc=False, tag=20):
    """The whole policy of a queue from now on. `refill` is true if the rate limit was set by this change."""

    at: int
    tenant: str
    queue: str
    paused: bool
    rate_limit: RateLimit | None
    concurrency: int
    group_on_retry: GroupPolicy
    dead_letters: DeadLetterPolicy
    refill: bool = False
    durability: Level | None = None
    """The level for its jobs, if a push does not ask for another; None = the server's level."""


class QueueObliterated(Record, frozen=True, gc=False, tag=21):
    at: int
    tenant: str
    queue: str


class Revived(Record, frozen=True, gc=False, tag=22):
    """A dead letter went back to work."""

    at: int
    tenant: str
    queue: str
    job: int
    automatic: bool = False
    blocked: bool = False
    """Whether it waits for the steps before its own, as it did before they failed."""
    pushed_at: int = 0
    size: int = 0
    """The size of its payload."""
    labels: Labels | None = None


class RetryPostponed(Record, frozen=True, gc=False, tag=23):
    """A dead letter could not be retried automatically, because another job holds its key."""

    at: int
    tenant: str
    queue: str
    job: int
    next_retry_at: int


class DeadRemoved(Record, frozen=True, gc=False, tag=24):
    """Dead letters were removed: `evicted` by newer ones, `expired`, or `purged`."""

    at: int
    tenant: str
    queue: str
    jobs: list[int]
    why: str
