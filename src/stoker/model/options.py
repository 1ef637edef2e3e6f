"""All options of a push, defined once for every transport, store and client.

Field names are the names on the wire. Durations are whole milliseconds and end in `_ms`. 0 means *none* wherever a
limit could be meant. Defaults are defined only here, and a client never leaves out a value because it equals the
default.
"""

from typing import Literal

import msgspec

BackoffKind = Literal["exponential", "linear", "fixed"]
Jitter = Literal["none", "equal", "full"]
DependencyPolicy = Literal["fail", "cancel", "continue"]
UniquePolicy = Literal["keep", "extend", "replace"]
GroupPolicy = Literal["hold", "skip"]
Codec = Literal["bytes", "json", "msgpack"]
CODECS: tuple[Codec, ...] = ("bytes", "json", "msgpack")
"""How a payload or a result is encoded. Only its readers decode it. Records number the codecs in this order."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long to wait after the k-th failed delivery.

    exponential: `base * 2**(k-1)`, linear: `base * k`, fixed: `base`; never above `cap_ms`. Jitter `equal` draws from
    the upper half of that, `full` from all of it.
    """

    kind: BackoffKind = "exponential"
    base_ms: int = 1_000
    cap_ms: int = HOUR_MS
    jitter: Jitter = "equal"


class Dependency(msgspec.Struct, frozen=True, omit_defaults=True):
    """One edge: wait for job `id`, or for item number `item` of the same batch.

    `on_failure` says what happens to the waiting job when the other one fails, is cancelled or expires: `fail` it too,
    `cancel` it too, or `continue` as if the other job had completed.
    """

    id: int = 0
    on_failure: DependencyPolicy = "fail"
    item: int | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of one job, or of all jobs in a batch."""

    priority: int = 0
    """Any integer. Higher priorities run first."""
    delay_ms: int = 0
    """Make the job ready this long after the push."""
    run_at: int | None = None
    """Wall-clock milliseconds since the epoch; a time in the past means now. Wins over `delay_ms`."""
    ttl_ms: int = 0
    """Expire the job if it has not started for the first time this long after the push."""
    timeout_ms: int = 0
    """Fail a delivery that runs longer than this, however often its lease is renewed."""
    lease_ms: int = 30_000
    """A delivery that is not renewed for this long counts as failed (`stalled`)."""
    max_attempts: int = 3
    """How often the job may be delivered; 0 = no limit."""
    max_crashes: int = 3
    """How many leases the job may lose, so that a job that kills its workers ends; 0 = no limit."""
    backoff: Backoff = Backoff()
    """How long to wait before the job is tried again."""
    unique_key: str | None = None
    """A queue has at most one live job with this key."""
    unique_ttl_ms: int = 0
    """Free the key this long after the push even if the job is still live; 0 = hold it until the end."""
    on_conflict: UniquePolicy = "keep"
    """What to do when the key is taken: `keep` the old job, `extend` (keep it and restart the key's ttl), or `replace`
    it unless it runs.
    """
    custom_id: str | None = None
    """Your own id for the job. A second push with it answers with the first job."""
    custom_id_ttl_ms: int = DAY_MS
    """How long a custom id is remembered after the job has ended."""
    debounce_id: str | None = None
    """Pushes with the same id within `debounce_ms` create one job."""
    debounce_ms: int = 5_000
    """Another push with the same `debounce_id` within this time answers with the first job."""
    depends_on: tuple[Dependency, ...] = ()
    """Jobs that have to end before this one can start."""
    group_id: str | None = None
    """Jobs of a group run one at a time, in push order."""
    lifo: bool = False
    """Newest first: run before older jobs of the same priority."""
    tags: tuple[str, ...] = ()
    """Words by which jobs and events can be filtered."""
    remove_on_complete: bool = False
    """Forget the job as soon as it completes."""
    remove_on_fail: bool = False
    """Forget the job as soon as it fails for good. It does not become a dead letter."""
    keep_completed_age_ms: int | None = None
    """How long the ended job stays readable; None = the server's setting."""
    keep_completed_count: int | None = None
    """The ended job stays readable while it is among this many last ended jobs of its queue; None = the server's
    setting.
    """
    trace: str | None = None
    """W3C trace context. The queue passes it on unchanged."""
    parent_id: int | None = None
    """A link to another job, for people and readers of events. The queue does not act on it."""
    codec: Codec = "bytes"
    """How the payload is encoded. The queue does not act on it, but a reader can ask for another codec."""
    name: str | None = None
    """The kind of job: the handler that a worker runs it with. The queue does not act on it."""
    workflow: int | None = None
    """The workflow that the job is part of. On a single push it is only a link, like `parent_id`."""
    schedule: str | None = None
    """The schedule that pushed the job. The queue does not act on it."""
    slot: int = 0
    """The time for which the schedule pushed the job."""
    log_lines_max: int | None = None
    """How many lines of its log are kept, the latest ones; None = the server's limit, which is never exceeded."""
    stack_lines_max: int | None = None
    """How many lines of a failure's stack are kept, the last ones; None = as many as the server's limit allows."""


DEFAULT_OPTIONS = Options()


class RateLimit(msgspec.Struct, frozen=True):
    """`count` deliveries per `per_ms`. Up to `burst` may be saved up; 0 = as many as `count`."""

    count: int
    per_ms: int = 1_000
    burst: int = 0


class DeadLetterPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue does with jobs that will not be tried again."""

    entries_max: int = 10_000
    """Beyond this number the oldest dead letters are removed, each with an event."""
    age_ms_max: int = 7 * DAY_MS
    """A dead letter is removed at this age."""
    auto_retry: bool = False
    """Send dead letters back to work automatically."""
    auto_retry_interval_ms: int = HOUR_MS
    """The time between becoming a dead letter and the automatic retry."""
    auto_retries_max: int = 3
    """Automatic retries of one job. After that it stays a dead letter."""
    take_expired: bool = False
    """Jobs whose ttl passed become dead letters, too (`ttl_expired`)."""
    take_cancelled: bool = False
    """Cancelled jobs become dead letters, too (`cancelled`)."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended jobs and their results stay readable, if the job does not say."""

    completed_age_ms: int = HOUR_MS
    """Counted from the end of the job."""
    completed_count: int = 5_000
    """For each queue."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a shard behaves. Settings are part of its data, because recovery must decide as the live shard did."""

    seed: int = 0
    """The seed of the jitter. Tests fix it."""
    batching: bool = True
    """False stores every job on its own. This changes only speed and memory, never results."""
    retention: Retention = Retention()
    dead_letters: DeadLetterPolicy = DeadLetterPolicy()
    stage_ttl_ms: int = HOUR_MS
    """A stage that is not published this long after its last write is dropped."""
    transaction_ttl_ms: int = DAY_MS
    """How long the outcome of a transaction is remembered."""
    claim_ttl_ms: int = HOUR_MS
    """How long a claim is remembered after its last job was settled, so that asking again pulls nothing new."""
    request_ttl_ms: int = DAY_MS
    """How long the request key of a batch is remembered."""
