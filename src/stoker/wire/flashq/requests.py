"""What a client of flashQ's dialect may send: one typed request a command, with the names that the wire uses.

Every field may also be spelt in camelCase, and some have a second name (`ALSO`); `null` stands for a field that was
left out. Values that only pass through (`data`, `result`, `value`) stay undecoded. What the numbers may be is the
engine's business.
"""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from stoker.model import options as model
from stoker.model.options import Codec, GroupPolicy, UniquePolicy
from stoker.model.replies import Level
from stoker.model.schedules import Misfire, Overlap

NULLS = (b"null", b"\xc0")
NOT_SAID: Raw = Raw(b"")
"""A value that was left out, where `null` would be one."""
Tokens = int | list[int] | None

ALSO: dict[str, str] = {
    "delay_ms": "delay",
    "ttl_ms": "ttl",
    "timeout_ms": "timeout",
    "lease_ms": "stall_timeout",
    "backoff_ms": "backoff",
    "custom_id": "job_id",
    "job_id": "id",
    "debounce_ms": "debounce_ttl",
    "unique_ttl": "unique_ttl_ms",
    "custom_id_ttl": "custom_id_ttl_ms",
    "idempotency_key": "request_key",
    "percent": "progress",
    "payload": "data",
    "age_ms": "grace",
    "lease": "lease_ms",
    "worker_id": "worker",
    "type": "kind",
    "timezone": "zone",
    "tz": "zone",
    "cron": "schedule",
    "every": "repeat_every",
    "every_ms": "repeat_every",
    "runs_max": "limit",
    "max_limit": "limit",
}
"""Second names of fields, for requests that have no field of the first one."""


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What every request may carry besides its own fields."""

    cmd: str = ""
    reqId: str | int | float | None = None
    """Comes back with the answer, as it was sent."""
    tenant: str | None = None


# --- values with fields of their own ---------------------------------------------------------------------------------
# As the model has them, but strict: a misspelt field must be noticed, so that it is spelt anew.


class Backoff(model.Backoff, frozen=True, forbid_unknown_fields=True):
    """How long to wait after a failed delivery."""


class Dependency(model.Dependency, frozen=True, forbid_unknown_fields=True):
    """A job to wait for, and what its failure means."""


class RateLimit(model.RateLimit, frozen=True, forbid_unknown_fields=True):
    """So many deliveries in a time; a count of 0 lifts the limit."""


class DeadLetterPolicy(model.DeadLetterPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue does with jobs that will not be tried again."""


# --- producing -------------------------------------------------------------------------------------------------------


class JobOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The options of a job, by flashQ's names; durations are milliseconds."""

    priority: int = 0
    delay: int = 0
    run_at: int | None = None
    ttl: int = 0
    timeout: int = 0
    stall_timeout: int = 0
    """The lease; 0 = the default."""
    max_attempts: int = 3
    max_crashes: int = 3
    backoff: int | Backoff = 1_000
    """The base, or the whole policy."""
    unique_key: str | None = None
    unique_ttl_ms: int = 0
    on_conflict: UniquePolicy | None = None
    """Naming it makes a push that meets its key succeed with the job that is there."""
    job_id: str | None = None
    """Your own id."""
    custom_id_ttl_ms: int | None = None
    debounce_id: str | None = None
    debounce_ttl: int = 5_000
    depends_on: tuple[int | Dependency, ...] = ()
    group_id: str | None = None
    tags: tuple[str, ...] = ()
    lifo: bool = False
    remove_on_complete: bool = False
    remove_on_fail: bool = False
    keep_completed_age: int = 0
    """0 = the server's setting."""
    keep_completed_age_ms: int | None = None
    """The same, but 0 means: not at all."""
    keep_completed_count: int = 0
    """0 = the server's setting."""
    trace: str | None = None
    parent_id: int | None = None
    codec: Codec | None = None
    """How the payload is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""
    name: str | None = None
    """The kind of job."""
    workflow: int | None = None


class JobRequest(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A request with the options of a job, and what every request may carry."""

    cmd: str = ""
    reqId: str | int | float | None = None
    tenant: str | None = None


class JobItem(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One job of a batch."""

    data: Raw


class PlainItem(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One job of a batch without options."""

    data: Raw


class Push(JobRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push one job."""

    queue: str
    data: Raw
    durability: Level | None = None
    request_key: str | None = None


class PlainPush(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push one job without options."""

    queue: str
    data: Raw


class PushBatch(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs; each has an outcome of its own, unless `atomic` refuses all for one."""

    queue: str
    jobs: list[JobItem]
    atomic: bool = False
    durability: Level | None = None
    request_key: str | None = None


class PlainPushBatch(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs without options."""

    queue: str
    jobs: list[PlainItem]
    atomic: bool = False
    durability: Level | None = None
    request_key: str | None = None


class MixedPushBatch(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs of which some could not be understood."""

    queue: str
    jobs: Any
    atomic: bool = False
    durability: Level | None = None
    request_key: str | None = None
    wrong: dict[int, str] = {}
    """What was wrong, by item number; such an item is in `jobs` as one that no queue takes."""


class FlowChild(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A job that must end before its parent starts, and may have children of its own."""

    data: Raw = NOT_SAID
    queue: str = ""
    on_failure: Literal["fail", "ignore", "continue", "cancel"] = "fail"
    """What its failure means for its parent: it fails, or is cancelled, or starts all the same once all have ended."""
    children: list["FlowChild"] = []


class Flow(JobRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a parent with its children, all or none."""

    queue: str
    data: Raw = NOT_SAID
    children: list[FlowChild] = []
    durability: Level | None = None
    request_key: str | None = None


# --- consuming -------------------------------------------------------------------------------------------------------


class Pull(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Take one job; wait for it up to `timeout`."""

    queue: str | list[str]
    timeout: int = 60_000
    worker: str = ""
    lease_ms: int | None = None
    claim: str | None = None


class PullBatch(Pull, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Take up to `count` jobs; wait for the first up to `timeout`."""

    count: int = 1


class Ack(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The job is done."""

    id: int
    result: Raw = NOT_SAID
    token: int | None = None
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""


class AckBatch(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The jobs are done; `results` has one entry an id."""

    ids: list[int]
    tokens: Tokens = None
    results: list[Raw] | None = None
    codec: Codec | None = None
    """How all of them are to be stored."""


class Fail(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The delivery failed: tried again after the backoff or after `delay`; never with `retry` false."""

    id: int
    error: str = ""
    error_class: str = ""
    stack: str = ""
    retry: bool = True
    delay: int | None = None
    token: int | None = None


class Release(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Hand jobs back without costing an attempt; with a delay: snooze."""

    id: int | None = None
    ids: list[int] = []
    delay: int = 0
    tokens: Tokens = None
    token: int | None = None


class Heartbeat(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Renew the lease of one job, or of many."""

    id: int | None = None
    ids: list[int] = []
    lease_ms: int | None = None
    tokens: Tokens = None
    token: int | None = None


class Progress(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Say how far a running job is, from 0 to 100."""

    id: int
    progress: int | float
    message: str = ""
    token: int | None = None


class Log(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Add a line to a job's log."""

    id: int
    message: str
    level: str = "info"
    token: int | None = None


class Partial(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Stream a chunk of a running job's result."""

    id: int
    data: Raw
    index: int | None = None
    token: int | None = None
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""


# --- one job ---------------------------------------------------------------------------------------------------------


class ById(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one job."""

    id: int


class ByIds(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About some jobs."""

    ids: list[int]


class ByCustomId(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About the job with this id of yours; in any queue when none is named."""

    job_id: str
    queue: str | None = None


class Wait(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Wait until a job has ended."""

    id: int
    timeout: int = 30_000


class Update(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Give a job another payload."""

    id: int
    data: Raw
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""


class ChangePriority(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Change the priority of a job."""

    id: int
    priority: int


class MoveToDelayed(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Let a job wait for `delay` milliseconds."""

    id: int
    delay: int
    token: int | None = None


class GetChildren(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The children of a flow's parent, and how many have completed."""

    parent_id: int


# --- queues ----------------------------------------------------------------------------------------------------------


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


# --- schedules -------------------------------------------------------------------------------------------------------


class Cron(JobRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a job again and again: by a cron expression in `schedule`, or every `repeat_every` milliseconds, or once."""

    name: str
    queue: str
    data: Raw = NOT_SAID
    schedule: str | None = None
    """Five fields, or six with the seconds first; `*/N` alone means every N seconds."""
    repeat_every: int | None = None
    at: int | None = None
    limit: int | None = None
    zone: str | None = None
    """The time zone of `schedule`; UTC where nothing is said."""
    start_at: int | None = None
    end_at: int | None = None
    overlap: Overlap = "allow"
    misfire: Misfire = "once"
    misfires_max: int = 100
    grace_ms: int = 60_000
    jitter_ms: int = 0
    template: bool = False
    job_name: str | None = None
    """The kind of its jobs: here `name` is the schedule's own."""
    options: JobOptions | None = None
    """The options of its jobs, where they do not stand beside the name."""


class CronOf(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one schedule; its queue has to be said only where several have one of that name."""

    name: str
    queue: str | None = None


class CronGet(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Look at a schedule: its next five slots, and what became of the last twenty."""


class CronDelete(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Delete a schedule; its jobs stay."""


class CronPause(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Let the slots of a schedule pass without a job."""


class CronResume(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Go on with the next slot of a schedule."""


class CronRun(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a job of a schedule now."""


class CronList(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Schedules of one queue or of all, in the order of queues and names."""

    queue: str | None = None
    name: str | None = None
    after: str | None = None
    limit: int = 1_000


# --- keys and values -------------------------------------------------------------------------------------------------


class ByKey(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one entry of the key-value store."""

    key: str


class ByKeys(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About some entries of the key-value store."""

    keys: list[str]


class KeyOrKeys(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one entry of the key-value store, or some."""

    key: str | None = None
    keys: list[str] = []


class KvSet(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Keep a value under a key, for `ttl` milliseconds; 0 = for good."""

    key: str
    value: Raw
    ttl: int = 0
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""


class KvEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One value of many."""

    key: str
    value: Raw
    ttl: int = 0
    codec: Codec | None = None


class KvSetMany(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Keep many values at once, all or none."""

    entries: list[KvEntry]


class KvExpire(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Let an entry leave `ttl` milliseconds from now."""

    key: str
    ttl: int


class KvKeys(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The keys that match a pattern with `*` and `?`."""

    pattern: str = "*"
    limit: int = 1_000
    after: str | None = None


class KvIncrement(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Add to a number."""

    key: str
    by: int = 1


# --- the connection --------------------------------------------------------------------------------------------------


class Auth(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Say who you are."""

    token: str


class Hello(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Learn the server's version and limits, and say what this client understands."""

    version: int | str | None = None
    client: str = ""
    token: str | None = None
    entitlement: str | None = None
    """Quotas that the operator has signed."""
    tokens: bool = True
    """Whether each delivery must be named by its token; false for a client that may act on the current one."""
    ranges: bool = False
    """Whether ids may come as `[[first, count, step], ...]`."""


class Subscribe(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Receive events on this connection as they happen: of one queue or of all, of some kinds or of all."""

    queue: str | None = None
    events: list[str] = []
    after: dict[int, int] | None = None
    """Positions to start from, by shard, instead of now."""


class Unsubscribe(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Receive no more events of a queue, or of any."""

    queue: str | None = None
    events: list[str] = []


class Metrics(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Totals, rates and queues; with `history`, how they were in the last minutes."""

    history: bool = False


AnyRequest = Request | JobRequest
