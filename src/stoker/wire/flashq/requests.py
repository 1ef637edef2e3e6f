"""Requests of flashQ's dialect whose shape differs from every command: pushes with options, graphs, the connection.

All other requests derive from the commands (`mapping.py`). Every field may also be spelt in camelCase, and some have a
second name (`ALSO`); `null` stands for a field that was left out. Values that only pass through (`data`, `result`,
`value`) stay undecoded. The engine checks the ranges of numbers.
"""

from typing import Literal

import msgspec
from msgspec import Raw

from stoker.model import options as model
from stoker.model.options import Codec, DependencyPolicy, UniquePolicy
from stoker.model.replies import Level
from stoker.model.schedules import Misfire, Overlap

NULLS = (b"null", b"\xc0")
NOT_SAID: Raw = Raw(b"")
"""A value that was left out, where `null` would be one."""

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
    "delay": "base_ms",
    "max_delay": "cap_ms",
    "duration": "per_ms",
}
"""Second names of fields, for requests that have no field of the first one."""


class FlashqRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What every request may carry besides its own fields."""

    cmd: str = ""
    reqId: str | int | float | None = None
    """Comes back with the answer, as it was sent."""
    tenant: str | None = None


# --- options of jobs ---------------------------------------------------------------------------------
# Values with fields of their own are as the model has them, but strict: a misspelt field must be noticed, so that it
# is spelt anew.


class Backoff(model.Backoff, frozen=True, forbid_unknown_fields=True):
    """How long to wait after a failed delivery."""


class Dependency(model.Dependency, frozen=True, forbid_unknown_fields=True):
    """A job to wait for, and what its failure means."""


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
    keep_logs: int | None = None
    """How many lines of its log are kept."""
    stack_trace_limit: int | None = None
    """How many lines of the stack of a failure are kept."""
    trace: str | None = None
    parent_id: int | None = None
    codec: Codec | None = None
    """How the payload is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""
    name: str | None = None
    """The kind of job."""
    workflow: int | None = None
    size_limit: int = 0
    """Refuse the job if its payload has more bytes than this; 0 = the server's limit alone."""


class JobRequest(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A request with the options of a job, and what every request may carry."""

    cmd: str = ""
    reqId: str | int | float | None = None
    tenant: str | None = None


# --- pushing -----------------------------------------------------------------------------------------


class JobItem(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One job of a batch."""

    data: Raw


class PlainItem(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One job of a batch without options."""

    data: Raw


class PushFields(JobRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push one job."""

    queue: str
    data: Raw
    durability: Level | None = None
    durable: bool = False
    """The same as `durability: fsync`."""
    request_key: str | None = None


class PlainPush(FlashqRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push one job without options."""

    queue: str
    data: Raw


class AnyBatch(FlashqRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What a push of many jobs says besides the jobs."""

    queue: str
    atomic: bool = False
    durability: Level | None = None
    durable: bool = False
    request_key: str | None = None


class PushBatchFields(AnyBatch, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs; each has an outcome of its own, unless `atomic` refuses all for one."""

    jobs: list[JobItem]


class PlainPushBatch(AnyBatch, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs without options."""

    jobs: list[PlainItem]


class RawPushBatch(AnyBatch, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A batch whose jobs have not been looked at."""

    jobs: Raw


class MixedPushBatch(AnyBatch, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs of which some could not be understood."""

    jobs: list[JobItem]
    wrong: dict[int, str] = msgspec.field(default_factory=dict)
    """What was wrong, by item number; such an item is in `jobs` as one that no queue takes."""


class FlowChild(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A job that must end before its parent starts, and may have children of its own."""

    data: Raw = NOT_SAID
    queue: str = ""
    on_failure: Literal["fail", "ignore", "continue", "cancel"] = "fail"
    """What its failure means for its parent: it fails, or is cancelled, or starts all the same once all have ended."""
    children: list["FlowChild"] = []


class FlowFields(JobRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a parent with its children, all or none."""

    queue: str
    data: Raw = NOT_SAID
    children: list[FlowChild] = []
    durability: Level | None = None
    durable: bool = False
    request_key: str | None = None


def level_of(request: PushFields | AnyBatch | FlowFields) -> Level | None:
    """The durability that a push asks for."""
    return request.durability or ("fsync" if request.durable else None)


class WorkflowEdge(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A step to wait for, by its key or its number, and what the failure of one of its jobs means."""

    step: int | str
    on_failure: DependencyPolicy = "fail"


class WorkflowStep(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Jobs of one queue with the same options, and the steps that must end before they start."""

    queue: str
    jobs: list[PlainItem] = msgspec.field(default_factory=list)
    after: list[int | str | WorkflowEdge] = msgspec.field(default_factory=list)
    key: str = ""
    """A name of its own in the workflow; its number if it has none."""
    parent: int | str | None = None
    """The step whose first job is the parent of these jobs."""
    open: bool = False
    """It has no jobs yet: a running job of a step right before it brings them, with FILLSTEP."""


class WorkflowFields(FlashqRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a graph of jobs over any queues, all or none."""

    steps: list[WorkflowStep]
    name: str = ""
    request_key: str | None = None
    durability: Level | None = None


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
    skip_if_no_worker: bool = False
    """Push nothing at a slot for which no worker is there."""
    misfire: Misfire = "once"
    misfires_max: int = 100
    grace_ms: int = 60_000
    jitter_ms: int = 0
    template: bool = False
    immediately: bool = False
    """Push a job at once, too, if the schedule is new."""
    job_name: str | None = None
    """The kind of its jobs: here `name` is the schedule's own."""
    options: JobOptions | None = None
    """The options of its jobs, where they do not stand beside the name."""


# --- the connection ----------------------------------------------------------------------------------


class Auth(FlashqRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Say who you are."""

    token: str


class Hello(FlashqRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
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


class Subscribe(FlashqRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Receive events on this connection as they happen: of one queue or of all, of some kinds or of all."""

    queue: str | None = None
    events: list[str] = msgspec.field(default_factory=list)
    after: dict[int, int | tuple[int, int]] | None = None
    """The positions to go on from, by shard, instead of now: a sequence number of which every event was seen, or
    `[sequence, index]` of the last event that was seen.
    """


class Unsubscribe(FlashqRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Receive no more events of a queue, or of any."""

    queue: str | None = None
    events: list[str] = msgspec.field(default_factory=list)


AnyRequest = FlashqRequest | JobRequest
