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


class RecordRow(msgspec.Struct, frozen=True):
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


PUSH = RecordRow((EventKind.PUSHED,), "push", {"pushed_at": "at", "due": "due"})
SCHEDULE = RecordRow((EventKind.SCHEDULE_CHANGED,), labels={"schedule": "name"})
FAILURE = {"finished_at": "at", "reason": "reason", "error": "error", "error_class": "error_class"}

TABLE: dict[RecordType, RecordRow] = {
    rec.JobsPushed: PUSH,
    rec.ScheduledPush: PUSH,
    rec.PartPublished: PUSH,
    rec.Unblocked: RecordRow((EventKind.UNBLOCKED,), "job", {"due": "due"}),
    rec.StepReleased: RecordRow((EventKind.UNBLOCKED,), "pairs", {"due": "due"}, {"workflow": "workflow"}),
    rec.BecameDue: RecordRow((EventKind.READY, EventKind.PROMOTED), "pairs"),
    rec.Delayed: RecordRow((EventKind.DELAYED,), "job", {"due": "due"}),
    rec.Reprioritised: RecordRow((EventKind.REPRIORITISED,), "job", labels={"priority": "priority"}),
    rec.PayloadUpdated: RecordRow((EventKind.UPDATED,), "job"),
    rec.CancelRequested: RecordRow((EventKind.CANCEL_REQUESTED,), "job"),
    rec.Started: RecordRow((EventKind.STARTED,), "runs", {"started_at": "at", "worker": "worker", "token": "token"}),
    rec.LeasesExtended: RecordRow((EventKind.EXTENDED,), "pairs"),
    rec.Progressed: RecordRow((EventKind.PROGRESS,), "job", {"percent": "percent", "message": "message"}),
    rec.Logged: RecordRow((EventKind.LOG,), "job", {"message": "message", "reason": "level"}),
    rec.PartialAdded: RecordRow((EventKind.PARTIAL,), "job", {"data": "data", "chunk": "index"}),
    rec.Completed: RecordRow((EventKind.COMPLETED,), "runs", {"finished_at": "at"}),
    rec.Retrying: RecordRow((EventKind.RETRYING,), "run", {**FAILURE, "due": "due"}),
    rec.JobDied: RecordRow((EventKind.FAILED,), "run", {**FAILURE, "removed": "removed"}),
    rec.JobsEnded: RecordRow((EventKind.CANCELLED, EventKind.EXPIRED), "runs", FAILURE),
    rec.JobsReleased: RecordRow(
        (EventKind.RELEASED, EventKind.SNOOZED), "runs", {"finished_at": "at", "due": "due", "message": "note"}
    ),
    rec.Revived: RecordRow(
        (EventKind.REVIVED,), "job", {"pushed_at": "pushed_at", "payload_bytes": "size", "labels": "labels"}
    ),
    rec.DeadRemoved: RecordRow((EventKind.EVICTED, EventKind.REMOVED), "jobs", {"reason": "why"}),
    rec.Removed: RecordRow((EventKind.REMOVED,), "pairs"),
    rec.RetryPostponed: RecordRow(is_noted=True),
    rec.AgedOut: RecordRow(),  # the age of a job tells when it aged out
    rec.QueueConfigured: RecordRow((EventKind.QUEUE_CONFIGURED,)),
    rec.QueueObliterated: RecordRow((EventKind.QUEUE_OBLITERATED,), is_noted=True),
    rec.ScheduleChanged: SCHEDULE,
    rec.SchedulePaused: SCHEDULE,
    rec.ScheduleDeleted: SCHEDULE,
    rec.SlotPassed: RecordRow((EventKind.SLOT_PASSED,), columns={"due": "slot"}, labels={"schedule": "name"}),
    rec.RequestRemembered: RecordRow(is_noted=True),
    rec.Answered: RecordRow(),
    rec.PushesAnswered: RecordRow(),
    rec.KeyExtended: RecordRow(is_noted=True),
    rec.KeysStored: RecordRow(is_noted=True),
    rec.KeysForgotten: RecordRow(is_noted=True),
    rec.KvWritten: RecordRow(),
    rec.KvRemoved: RecordRow(),
    rec.KvTimed: RecordRow(),
    rec.PartStaged: RecordRow(),
    rec.TransactionEnded: RecordRow(is_noted=True),
    rec.StageExpired: RecordRow(),
    rec.TransactionForgotten: RecordRow(),
    rec.ClaimForgotten: RecordRow(),
    rec.WorkflowPushed: RecordRow(),
    rec.StepSkipped: RecordRow(),
    rec.StepFilled: RecordRow(),
    rec.StepHeard: RecordRow(),
    rec.WorkflowCancelled: RecordRow(),
    rec.WorkflowRetried: RecordRow(),
    rec.WorkflowForgotten: RecordRow(),
    rec.HeardEarly: RecordRow(),
    rec.Watched: RecordRow(),
    rec.Opened: RecordRow(),
    rec.MessageSent: RecordRow(),
    rec.MessageTaken: RecordRow(),
    rec.MessagesArrived: RecordRow(),
    rec.BulkStarted: RecordRow(),
    rec.BulkStepped: RecordRow(),
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
