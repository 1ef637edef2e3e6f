"""Everything a push may ask for, once, for every transport, store and client.

Field names are the wire's names. Durations are whole milliseconds and end in `_ms`; 0 means *none*
wherever a limit could be meant. Defaults live here and nowhere else: no client leaves a value out
because it looks like the default.
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
"""How a payload or a result is written; only its readers look into it. Records number them in this order."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long to wait after the k-th failed delivery.

    exponential: `base * 2**(k-1)`, linear: `base * k`, fixed: `base`; never above `cap_ms`. Jitter
    `equal` draws from the upper half of that, `full` from all of it.
    """

    kind: BackoffKind = "exponential"
    base_ms: int = 1_000
    cap_ms: int = HOUR_MS
    jitter: Jitter = "equal"


class Dependency(msgspec.Struct, frozen=True, omit_defaults=True):
    """One edge: wait for job `id`, or for item number `item` of the same batch.

    `on_failure` says what happens to the waiting job when the other one fails, is cancelled or
    expires: it fails too, is cancelled too, or goes on as if the other had completed.
    """

    id: int = 0
    on_failure: DependencyPolicy = "fail"
    item: int | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of one job, or of every job in a batch."""

    priority: int = 0
    """Any integer; higher first."""
    delay_ms: int = 0
    run_at: int | None = None
    """Wall-clock milliseconds since the epoch; a time in the past means now. Wins over `delay_ms`."""
    ttl_ms: int = 0
    """Expire if not started for the first time this long after the push."""
    timeout_ms: int = 0
    """Fail a delivery that runs longer than this, however often its lease is renewed."""
    lease_ms: int = 30_000
    """A delivery that is not renewed for this long counts as failed (`stalled`)."""
    max_attempts: int = 3
    """The number of deliveries at most; 0 = no limit."""
    max_crashes: int = 3
    """The number of lost leases at most, so that a job that kills its workers ends; 0 = no limit."""
    backoff: Backoff = Backoff()
    unique_key: str | None = None
    """At most one live job with this key in a queue."""
    unique_ttl_ms: int = 0
    """Free the key this long after the push even if the job is still live; 0 = hold it until the end."""
    on_conflict: UniquePolicy = "keep"
    """When the key is taken: keep the old job, keep it and restart the key's ttl, or replace it unless it runs."""
    custom_id: str | None = None
    """Your own id. A second push with it answers with the first job."""
    custom_id_ttl_ms: int = DAY_MS
    """How long after the job's end its custom id is still remembered."""
    debounce_id: str | None = None
    debounce_ms: int = 5_000
    """Further pushes with the same `debounce_id` within this window answer with the first job."""
    depends_on: tuple[Dependency, ...] = ()
    group_id: str | None = None
    """Jobs of a group run one at a time, in push order."""
    lifo: bool = False
    tags: tuple[str, ...] = ()
    remove_on_complete: bool = False
    remove_on_fail: bool = False
    keep_completed_age_ms: int | None = None
    """How long the ended job stays readable; None = the server's setting."""
    keep_completed_count: int | None = None
    """Readable while it is among the last so many ended jobs of its queue; None = the server's setting."""
    trace: str | None = None
    """W3C trace context, carried along untouched."""
    parent_id: int | None = None
    """A link for people and readers of events; it decides nothing."""
    codec: Codec = "bytes"
    """How the payload is written; it decides nothing, but a reader can ask for another one."""
    name: str | None = None
    """The kind of job: which handler a worker runs it with. It decides nothing here."""
    workflow: int | None = None
    """The workflow that the job is part of. On a push of its own it is a link like `parent_id` and decides nothing."""
    schedule: str | None = None
    """The schedule that pushed it. It decides nothing here."""
    slot: int = 0
    """The time for which its schedule pushed it."""
    log_lines_max: int | None = None
    """Keep the last so many lines of its log; None = the server's limit, which is never exceeded."""
    stack_lines_max: int | None = None
    """Keep the last so many lines of the stack of a failure; None = all that the server's limit allows."""


DEFAULT_OPTIONS = Options()


class RateLimit(msgspec.Struct, frozen=True):
    """`count` deliveries per `per_ms`, with at most `burst` saved up; 0 = as many as `count`."""

    count: int
    per_ms: int = 1_000
    burst: int = 0


class DeadLetterPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue does with jobs that will not be tried again."""

    entries_max: int = 10_000
    """Beyond it the oldest leave, each with an event."""
    age_ms_max: int = 7 * DAY_MS
    """A dead letter that is older leaves."""
    auto_retry: bool = False
    """Send dead letters back to work without being asked."""
    auto_retry_interval_ms: int = HOUR_MS
    """From the moment a job becomes a dead letter to its automatic retry."""
    auto_retries_max: int = 3
    """Of one job; then it stays a dead letter."""
    take_expired: bool = False
    """Jobs whose ttl passed become dead letters too (`ttl_expired`)."""
    take_cancelled: bool = False
    """Cancelled jobs become dead letters too (`cancelled`)."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended jobs and their results stay readable, where the job does not say."""

    completed_age_ms: int = HOUR_MS
    """From the end of the job on."""
    completed_count: int = 5_000
    """Per queue."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a shard behaves. Part of its data, because recovery must decide as the live shard did."""

    seed: int = 0
    """Of the jitter; tests fix it."""
    batching: bool = True
    """False stores every job on its own. Nobody can see the difference but in time and memory."""
    retention: Retention = Retention()
    dead_letters: DeadLetterPolicy = DeadLetterPolicy()
    stage_ttl_ms: int = HOUR_MS
    """A stage that is not published this long after its last write is dropped."""
    transaction_ttl_ms: int = DAY_MS
    """How long the outcome of a transaction is remembered."""
    claim_ttl_ms: int = HOUR_MS
    """How long a claim whose jobs are all settled is remembered, so that asking again pulls nothing new."""
    request_ttl_ms: int = DAY_MS
    """How long a batch's request key is remembered."""
