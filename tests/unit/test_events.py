"""From records to events: one for each job that a record speaks of."""

import msgspec
import pytest

from stoker.model.events import Event, EventKind
from stoker.model.ids import STEP
from stoker.model.options import Options
from stoker.records import records as rec
from stoker.records.events import events_of
from tests.golden.examples import AT, LABELS, ONE, RECORDS, UP

EXAMPLES = {type(record): record for record in RECORDS}

SILENT = {
    rec.Opened,
    rec.MessageSent,
    rec.MessageTaken,
    rec.MessagesArrived,
    rec.KeysStored,
    rec.RequestRemembered,
    rec.KeyExtended,
    rec.RetryPostponed,
    rec.AgedOut,
    rec.KeysForgotten,
    rec.PartStaged,
    rec.TransactionEnded,
    rec.StageExpired,
    rec.TransactionForgotten,
    rec.ClaimForgotten,
    rec.KvWritten,
    rec.KvRemoved,
    rec.KvTimed,
    rec.BulkStarted,
    rec.BulkStepped,
    rec.Answered,
    rec.PushesAnswered,
    rec.WorkflowPushed,
    rec.StepSkipped,
    rec.StepFilled,
    rec.StepHeard,
    rec.HeardEarly,
    rec.WorkflowCancelled,
    rec.WorkflowRetried,
    rec.WorkflowForgotten,
    rec.Watched,
}
"""What concerns the store alone: memories, stages, and jobs that retention forgets."""

ONE_IDS, UP_IDS, DOWN_IDS = [64], [128, 192, 256], [512, 448]

SPOKEN: dict[type[rec.Record], tuple[str, list[int]]] = {
    rec.JobsPushed: ("pushed", [64, 128, 192]),
    rec.Started: ("started", ONE_IDS + DOWN_IDS),
    rec.Completed: ("completed", ONE_IDS + UP_IDS + DOWN_IDS),
    rec.Retrying: ("retrying", ONE_IDS),
    rec.JobDied: ("failed", ONE_IDS),
    rec.JobsEnded: ("cancelled", UP_IDS + DOWN_IDS),
    rec.JobsReleased: ("snoozed", ONE_IDS + UP_IDS),
    rec.LeasesExtended: ("extended", [64, 128, 512, 448]),
    rec.CancelRequested: ("cancel_requested", ONE_IDS),
    rec.Progressed: ("progress", ONE_IDS),
    rec.Logged: ("log", ONE_IDS),
    rec.PartialAdded: ("partial", ONE_IDS),
    rec.Unblocked: ("unblocked", [128]),
    rec.BecameDue: ("promoted", [64, 128, 192]),
    rec.Delayed: ("delayed", ONE_IDS),
    rec.Reprioritised: ("reprioritised", ONE_IDS),
    rec.PayloadUpdated: ("updated", ONE_IDS),
    rec.QueueConfigured: ("queue_configured", [0]),
    rec.QueueObliterated: ("queue_obliterated", [0]),
    rec.Revived: ("revived", ONE_IDS),
    rec.DeadRemoved: ("evicted", [64, 128]),
    rec.Removed: ("removed", [64, 512, 448]),
    rec.StepReleased: ("unblocked", [384, 448, 640, 576]),
    rec.ScheduleChanged: ("schedule_changed", [0]),
    rec.SchedulePaused: ("schedule_changed", [0]),
    rec.ScheduleDeleted: ("schedule_changed", [0]),
    rec.ScheduledPush: ("pushed", ONE_IDS),
    rec.PartPublished: ("pushed", [64, 128]),
    rec.SlotPassed: ("slot_passed", [0]),
}


def events(record: rec.Record) -> list[Event]:
    return list(events_of(3, 17, record))


def test_every_record_speaks_or_is_known_to_be_silent():
    assert set(SPOKEN) | SILENT == set(rec.ALL)
    assert not set(SPOKEN) & SILENT


@pytest.mark.parametrize("kind", SPOKEN, ids=lambda kind: kind.__name__)
def test_a_record_gives_one_event_for_each_of_its_jobs(kind: type[rec.Record]):
    name, ids = SPOKEN[kind]
    found = events(EXAMPLES[kind])
    assert [event.job for event in found] == ids
    assert {str(event.kind) for event in found} == {name}


@pytest.mark.parametrize("kind", SPOKEN, ids=lambda kind: kind.__name__)
def test_events_of_a_record_share_its_position_and_are_numbered(kind: type[rec.Record]):
    for index, event in enumerate(events(EXAMPLES[kind])):
        assert (event.shard, event.sequence, event.index) == (3, 17, index)
        assert (event.at, event.tenant, event.queue) == (AT, "acme", "mail")


@pytest.mark.parametrize("kind", SILENT, ids=lambda kind: kind.__name__)
def test_what_concerns_the_store_alone_is_not_told(kind: type[rec.Record]):
    assert events(EXAMPLES[kind]) == []


VARIANTS: list[tuple[rec.Record, str]] = [
    (rec.JobsEnded(AT, "acme", "mail", 7, "ttl_expired", [ONE]), "expired"),
    (rec.JobsReleased(AT, "acme", "mail", [ONE]), "released"),
    (rec.BecameDue(AT, "acme", "mail", [(64, 1)]), "ready"),
    (rec.DeadRemoved(AT, "acme", "mail", [64], "expired"), "removed"),
    (rec.DeadRemoved(AT, "acme", "mail", [64], "purged"), "removed"),
]


@pytest.mark.parametrize(("record", "kind"), VARIANTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_record_that_means_two_things_gives_two_kinds(record: rec.Record, kind: str):
    assert [str(event.kind) for event in events(record)] == [kind]


def test_there_is_a_record_behind_every_kind_of_event():
    told = {name for name, _ in SPOKEN.values()} | {kind for _, kind in VARIANTS}
    assert told == {str(kind) for kind in EventKind}


def test_an_edge_that_was_not_the_last_one_is_no_step_of_the_job():
    assert events(rec.Unblocked(AT, "acme", "mail", 128, 64, False)) == []


# --- what an event says ----------------------------------------------------------------------------

ENDS = [rec.Completed, rec.Retrying, rec.JobDied, rec.JobsEnded]


@pytest.mark.parametrize("kind", ENDS, ids=lambda kind: kind.__name__)
def test_an_end_is_accounted_for_without_a_join(kind: type[rec.Record]):
    record = EXAMPLES[kind]
    if kind is rec.JobsEnded:
        record = msgspec.structs.replace(record, runs=[ONE])
    event = events(record)[0]
    assert (event.pushed_at, event.started_at, event.finished_at) == (ONE.pushed_at, ONE.started_at, AT)
    assert (event.wait_ms, event.run_ms, event.total_ms) == (500, 400, 900)
    assert (event.attempt, event.worker, event.payload_bytes) == (2, "worker-1", 17)
    assert (event.priority, event.tags, event.group_id) == (LABELS.priority, LABELS.tags, LABELS.group_id)
    assert (event.trace, event.parent_id, event.name) == (LABELS.trace, LABELS.parent_id, LABELS.name)


@pytest.mark.parametrize("kind", [rec.Retrying, rec.JobDied], ids=lambda kind: kind.__name__)
def test_a_failure_says_why(kind: type[rec.Record]):
    event = events(EXAMPLES[kind])[0]
    assert (event.error, event.error_class) == ("broken", "OSError")
    assert event.reason == EXAMPLES[kind].reason  # type: ignore[attr-defined]


def test_a_completed_event_has_the_sizes_of_its_own_job():
    found = events(EXAMPLES[rec.Completed])
    assert [event.payload_bytes for event in found] == [17, *UP.sizes, 4, 4]  # type: ignore[misc]
    assert [event.result_bytes for event in found] == [4, 0, 0, 0, 1, 0]


def test_a_start_counts_its_own_attempt():
    started = events(EXAMPLES[rec.Started])
    assert [(event.attempt, event.worker, event.started_at) for event in started] == [
        (3, "worker-1", AT),
        (1, "worker-1", AT),
        (1, "worker-1", AT),
    ]


def test_a_push_says_what_readers_group_by():
    options = Options(priority=5, tags=("red",), group_id="g", trace="t", parent_id=9, name="welcome", workflow=64)
    (event,) = events(rec.JobsPushed(AT, "acme", "mail", STEP, (b"four",), options, AT + 9))
    assert (event.pushed_at, event.due, event.payload_bytes) == (AT, AT + 9, 4)
    assert (event.priority, event.tags, event.group_id, event.trace, event.parent_id) == (5, ("red",), "g", "t", 9)
    assert (event.name, event.workflow) == ("welcome", 64)


def test_progress_log_and_partial_carry_what_was_said():
    (progress,) = events(EXAMPLES[rec.Progressed])
    (log,) = events(EXAMPLES[rec.Logged])
    (partial,) = events(EXAMPLES[rec.PartialAdded])
    assert (progress.percent, progress.message) == (42, "half way")
    assert (log.message, log.reason) == ("slow", "warning")
    assert (partial.data, partial.chunk) == (b"chunk", 3)


def test_durations_of_what_never_started_are_nothing():
    event = Event(
        shard=0, sequence=1, index=0, at=9, kind=EventKind.EXPIRED, tenant="t", queue="q", pushed_at=4, finished_at=9
    )
    assert (event.wait_ms, event.run_ms, event.total_ms) == (0, 0, 5)
