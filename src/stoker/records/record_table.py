"""What readers of the journal must know about a record: one row each, and the sets that follow from the rows.

Events, the story of a job, Spark's columns and what readers skip derive from this table. The engine's code says how a
record changes a shard (`APPLY`). A record without a row fails the tests, and so does a module that keeps a set of
records of its own.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from stoker.model.events import EventKind
from stoker.records import records as rec

Jobs = Literal["", "push", "runs", "run", "pairs", "job", "jobs"]
"""How a record names the jobs of its events: not at all, by `first` and one payload each, by deliveries in `runs` or
`run`, by pairs of first id and count in `runs`, or by ids in `job` or `jobs`.
"""

RecordType = type[rec.Record]
NOTHING: Mapping[str, str] = {}


class Row(msgspec.Struct, frozen=True):
    """What readers must know about one record."""

    events: tuple[EventKind, ...] = ()
    """The kinds of events that it can have; none if it only concerns the store. `stoker.model.event_table` derives from
    them whether a record ends a delivery or a job.
    """
    jobs: Jobs = ""
    columns: Mapping[str, str] = NOTHING
    """The columns of its events, and the record fields that fill them. `stoker.records.runs` adds columns that are not
    a field.
    """
    labels: Mapping[str, str] = NOTHING
    """The same for labels, if the record has no `Labels`."""
    is_noted: bool = False
    """Whether the story of a job may have a note about it: the record can affect a job but is not a step of one."""


PUSH = Row((EventKind.PUSHED,), "push", {"pushed_at": "at", "due": "due"})
SCHEDULE = Row((EventKind.SCHEDULE_CHANGED,), labels={"schedule": "name"})
FAILURE = {"finished_at": "at", "reason": "reason", "error": "error", "error_class": "error_class"}

TABLE: dict[RecordType, Row] = {
    rec.Pushed: PUSH,
    rec.ScheduledPush: PUSH,
    rec.PartPublished: PUSH,
    rec.Unblocked: Row((EventKind.UNBLOCKED,), "job", {"due": "due"}),
    rec.StepReleased: Row((EventKind.UNBLOCKED,), "pairs", {"due": "due"}, {"workflow": "workflow"}),
    rec.BecameDue: Row((EventKind.READY, EventKind.PROMOTED), "pairs"),
    rec.Delayed: Row((EventKind.DELAYED,), "job", {"due": "due"}),
    rec.Reprioritised: Row((EventKind.REPRIORITISED,), "job", labels={"priority": "priority"}),
    rec.PayloadUpdated: Row((EventKind.UPDATED,), "job"),
    rec.CancelRequested: Row((EventKind.CANCEL_REQUESTED,), "job"),
    rec.Started: Row((EventKind.STARTED,), "runs", {"started_at": "at", "worker": "worker", "token": "token"}),
    rec.Extended: Row((EventKind.EXTENDED,), "pairs"),
    rec.Progressed: Row((EventKind.PROGRESS,), "job", {"percent": "percent", "message": "message"}),
    rec.Logged: Row((EventKind.LOG,), "job", {"message": "message", "reason": "level"}),
    rec.PartialAdded: Row((EventKind.PARTIAL,), "job", {"data": "data", "chunk": "index"}),
    rec.Completed: Row((EventKind.COMPLETED,), "runs", {"finished_at": "at"}),
    rec.Retrying: Row((EventKind.RETRYING,), "run", {**FAILURE, "due": "due"}),
    rec.Failed: Row((EventKind.FAILED,), "run", FAILURE),
    rec.Ended: Row((EventKind.CANCELLED, EventKind.EXPIRED), "runs", {"finished_at": "at", "reason": "reason"}),
    rec.Released: Row(
        (EventKind.RELEASED, EventKind.SNOOZED), "runs", {"finished_at": "at", "due": "due", "message": "note"}
    ),
    rec.Revived: Row(
        (EventKind.REVIVED,), "job", {"pushed_at": "pushed_at", "payload_bytes": "size", "labels": "labels"}
    ),
    rec.DeadRemoved: Row((EventKind.EVICTED, EventKind.REMOVED), "jobs", {"reason": "why"}),
    rec.Removed: Row((EventKind.REMOVED,), "pairs"),
    rec.RetryPostponed: Row(is_noted=True),
    rec.AgedOut: Row(),  # the age of a job tells when it aged out
    rec.QueueConfigured: Row((EventKind.QUEUE_CONFIGURED,)),
    rec.QueueObliterated: Row((EventKind.QUEUE_OBLITERATED,), is_noted=True),
    rec.ScheduleChanged: SCHEDULE,
    rec.SchedulePaused: SCHEDULE,
    rec.ScheduleDeleted: SCHEDULE,
    rec.SlotPassed: Row((EventKind.SLOT_PASSED,), columns={"due": "slot"}, labels={"schedule": "name"}),
    rec.RequestRemembered: Row(is_noted=True),
    rec.Answered: Row(),
    rec.KeyExtended: Row(is_noted=True),
    rec.KeysStored: Row(is_noted=True),
    rec.KeysForgotten: Row(is_noted=True),
    rec.KvWritten: Row(),
    rec.KvRemoved: Row(),
    rec.KvTimed: Row(),
    rec.Staged: Row(),
    rec.TransactionEnded: Row(is_noted=True),
    rec.StageExpired: Row(),
    rec.TransactionForgotten: Row(),
    rec.ClaimForgotten: Row(),
    rec.WorkflowPushed: Row(),
    rec.StepSkipped: Row(),
    rec.StepFilled: Row(),
    rec.StepHeard: Row(),
    rec.WorkflowCancelled: Row(),
    rec.WorkflowRetried: Row(),
    rec.WorkflowForgotten: Row(),
    rec.HeardEarly: Row(),
    rec.Watched: Row(),
    rec.Opened: Row(),
    rec.Sent: Row(),
    rec.Taken: Row(),
    rec.Arrived: Row(),
}

MEANS: dict[RecordType, frozenset[EventKind]] = {
    record: frozenset(row.events) for record, row in TABLE.items() if row.events
}
"""The kinds of events that a record can have. A reader of failures can skip ten thousand pushes without decoding them.
"""
PUSHES = frozenset(record for record, row in TABLE.items() if row.jobs == "push")
"""They create jobs. The ids grow from one push to the next."""
STEPS = frozenset(record for record, row in TABLE.items() if row.jobs)
"""Their events are steps of jobs."""
NOTED = frozenset(record for record, row in TABLE.items() if row.is_noted)
SILENT = frozenset(TABLE) - STEPS - NOTED
"""The story of a job leaves them out: they name no job, or repeat what its push said."""
