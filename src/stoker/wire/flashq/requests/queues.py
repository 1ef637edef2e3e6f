"""Requests about queues as a whole: look through them, limit them, empty them; and their dead letters."""

from stoker.model.options import GroupPolicy
from stoker.model.replies import Level
from stoker.wire.flashq.requests.shape import Request
from stoker.wire.flashq.requests.values import DeadLetterPolicy, RateLimit


class ByQueue(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one queue."""

    queue: str


class Everything(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About all queues of the tenant."""


class GetJobs(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Look at jobs, newest first."""

    queue: str | None = None
    state: str | None = None
    limit: int = 100
    offset: int = 0
    after: int | None = None
    """The last id of the page before: cheaper than an offset."""
    tag: str | None = None
    group_id: str | None = None
    name: str | None = None
    workflow: int | None = None


class Limit(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Set how many jobs of a queue may run at once."""

    queue: str
    limit: int


class SetRateLimit(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Set how many jobs of a queue may start in a second, or in `per_ms`."""

    queue: str
    limit: int
    per_ms: int = 1_000
    burst: int = 0


class SetPolicy(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Change the policy of a queue; what is left out stays."""

    queue: str
    group_on_retry: GroupPolicy | None = None
    dead_letters: DeadLetterPolicy | None = None
    durability: Level | None = None
    rate_limit: RateLimit | None = None
    concurrency: int | None = None


class Drain(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Cancel everything that waits; with `delayed`, what is delayed too."""

    queue: str
    delayed: bool = False


class Obliterate(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Remove a queue with everything in it; `force` false refuses while jobs are running."""

    queue: str
    force: bool = True


class Clean(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Remove jobs in one state that are older than `grace` milliseconds; `limit` 0 = as many as one call may."""

    queue: str
    grace: int = 0
    state: str = "completed"
    limit: int = 0


class DeadLetters(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Look at a queue's dead letters, oldest first."""

    queue: str
    count: int = 100
    reason: str | None = None
    tag: str | None = None
    after: int | None = None


class RetryDead(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Send dead letters back to work: one, some, or all that match."""

    queue: str
    id: int | None = None
    ids: list[int] | None = None
    reason: str | None = None
    limit: int | None = None


class PurgeDead(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Forget dead letters: some, or all that match."""

    queue: str
    ids: list[int] | None = None
    reason: str | None = None
