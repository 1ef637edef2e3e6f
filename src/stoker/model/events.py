"""Events for subscribers, webhooks and the pipeline: one event for each step of a job.

Events are derived from the journal's records and have their positions: (shard, sequence, index). An event that ends a
delivery or a job has everything that is needed to account for it without a join.
"""

from enum import StrEnum

import msgspec

from stoker.model.options import Codec


class EventKind(StrEnum):
    PUSHED = "pushed"
    UNBLOCKED = "unblocked"
    READY = "ready"
    STARTED = "started"
    COMPLETED = "completed"
    RETRYING = "retrying"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    RELEASED = "released"
    SNOOZED = "snoozed"
    EXTENDED = "extended"
    CANCEL_REQUESTED = "cancel_requested"
    PROGRESS = "progress"
    LOG = "log"
    PARTIAL = "partial"
    PROMOTED = "promoted"
    DELAYED = "delayed"
    REPRIORITISED = "reprioritised"
    UPDATED = "updated"
    REVIVED = "revived"
    EVICTED = "evicted"
    REMOVED = "removed"
    QUEUE_CONFIGURED = "queue_configured"
    QUEUE_OBLITERATED = "queue_obliterated"
    SCHEDULE_CHANGED = "schedule_changed"
    SLOT_PASSED = "slot_passed"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one job, or of a queue (then `job` is 0). Fields that do not apply keep their defaults.

    `codec` is the codec of `data`.
    """

    shard: int
    sequence: int
    index: int
    at: int
    kind: EventKind
    tenant: str
    queue: str
    job: int = 0
    attempt: int = 0
    worker: str = ""
    reason: str = ""
    error: str = ""
    error_class: str = ""
    priority: int = 0
    due: int = 0
    pushed_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    payload_bytes: int = 0
    result_bytes: int = 0
    percent: int = 0
    message: str = ""
    data: bytes = b""
    chunk: int = 0
    tags: tuple[str, ...] = ()
    group_id: str | None = None
    trace: str | None = None
    parent_id: int | None = None
    codec: Codec = "bytes"
    name: str | None = None
    workflow: int | None = None
    schedule: str | None = None
    slot: int = 0
    token: int = 0
    """The token of the delivery that started."""

    @property
    def wait_ms(self) -> int:
        return self.started_at - self.pushed_at if self.started_at else 0

    @property
    def run_ms(self) -> int:
        return self.finished_at - self.started_at if self.started_at and self.finished_at else 0

    @property
    def total_ms(self) -> int:
        return self.finished_at - self.pushed_at if self.finished_at else 0
