"""Requests that push: single jobs, batches and flows. An item of a batch is a job without a queue."""

from typing import Any, Literal

import msgspec
from msgspec import Raw

from stoker.model.options import Codec, UniquePolicy
from stoker.model.replies import Level
from stoker.wire.flashq.requests.shape import NOT_SAID, Request
from stoker.wire.flashq.requests.values import Backoff, Dependency


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
    durable: bool = False
    """The same as `durability: fsync`."""
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
    durable: bool = False
    request_key: str | None = None


class PlainPushBatch(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs without options."""

    queue: str
    jobs: list[PlainItem]
    atomic: bool = False
    durability: Level | None = None
    durable: bool = False
    request_key: str | None = None


class MixedPushBatch(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push many jobs of which some could not be understood."""

    queue: str
    jobs: Any
    atomic: bool = False
    durability: Level | None = None
    durable: bool = False
    request_key: str | None = None
    wrong: dict[int, str] = msgspec.field(default_factory=dict)
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
    durable: bool = False
    request_key: str | None = None


def level_of(request: Push | PushBatch | PlainPushBatch | MixedPushBatch | Flow) -> Level | None:
    """The durability that a push asks for."""
    return request.durability or ("fsync" if request.durable else None)


AnyRequest = Request | JobRequest
