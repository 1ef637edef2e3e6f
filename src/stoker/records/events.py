"""From records to events: one for each job that a record speaks of."""

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from stoker.model.events import Event, EventKind
from stoker.model.ids import STEP
from stoker.model.options import CODECS
from stoker.model.states import STATES, State
from stoker.records import records as rec

Fields = dict[str, Any]
_LABELS = rec.Labels.__struct_fields__


def events_of(shard: int, sequence: int, record: rec.Record, kinds: Iterable[str] | None = None) -> Iterator[Event]:
    """The events that a record means to readers; none for those that concern the store alone.

    With `kinds`, a record that can mean none of them costs nothing; of others all events come.
    """
    explode = _EVENTS.get(type(record))
    if explode is None or (kinds is not None and MEANS[type(record)].isdisjoint(kinds)):
        return
    tenant, queue, at = record.tenant, record.queue, record.at  # type: ignore[attr-defined]
    for index, (kind, fields) in enumerate(explode(record)):
        yield Event(shard=shard, sequence=sequence, index=index, at=at, kind=kind, tenant=tenant, queue=queue, **fields)


EVENT_BYTES = 600
"""Of one in JSON whose texts are short."""


def size_of(event: Event) -> int:
    """About as much room as an event takes in an answer."""
    tags = sum(map(len, event.tags)) if event.tags else 0
    return EVENT_BYTES + len(event.data) + len(event.error) + len(event.message) + tags


def _ids(first: int, count: int) -> range:
    step = STEP if count > 0 else -STEP
    return range(first, first + step * abs(count), step)


def _labelled(labels: rec.Labels | None) -> Fields:
    return {} if labels is None else {name: getattr(labels, name) for name in _LABELS}


def _run(run: rec.Run, ended_at: int = 0) -> Iterator[Fields]:
    """What a run says about each of its jobs."""
    fields: Fields = {"pushed_at": run.pushed_at, "attempt": run.attempt, "worker": run.worker}
    fields |= {"started_at": run.started_at, "finished_at": ended_at}
    fields |= _labelled(run.labels)
    sizes = run.sizes
    for place, job in enumerate(_ids(run.first, run.count)):
        size = sizes if type(sizes) is int else sizes[place]  # type: ignore[index]
        yield {"job": job, "payload_bytes": size, **fields}


def _pushed(record: rec.Pushed | rec.ScheduledPush | rec.PartPublished) -> Iterator[tuple[EventKind, Fields]]:
    options = record.options
    fields: Fields = {"pushed_at": record.at, "due": record.due, "priority": options.priority, "tags": options.tags}
    fields |= {"group_id": options.group_id, "trace": options.trace, "parent_id": options.parent_id}
    fields |= {"name": options.name, "workflow": options.workflow, "schedule": options.schedule, "slot": options.slot}
    payloads: Iterable[Sized] = record.payloads
    for job, payload in zip(_ids(record.first, len(record.payloads)), payloads, strict=True):
        yield EventKind.PUSHED, {"job": job, "payload_bytes": len(payload), **fields}


def _started(record: rec.Started) -> Iterator[tuple[EventKind, Fields]]:
    for run in record.runs:
        for fields in _run(run):
            yield (
                EventKind.STARTED,
                fields | {"started_at": record.at, "worker": record.worker, "attempt": run.attempt + 1},
            )


def _completed(record: rec.Completed) -> Iterator[tuple[EventKind, Fields]]:
    offset = 0
    for run in record.runs:
        for fields in _run(run, record.at):
            result = record.results[offset] if record.results is not None else None
            offset += 1
            yield EventKind.COMPLETED, fields | {"result_bytes": len(result) if result is not None else 0}


def _retrying(record: rec.Retrying) -> Iterator[tuple[EventKind, Fields]]:
    told = {"reason": record.reason, "error": record.error, "error_class": record.error_class, "due": record.due}
    for fields in _run(record.run, record.at):
        yield EventKind.RETRYING, fields | told


def _failed(record: rec.Failed) -> Iterator[tuple[EventKind, Fields]]:
    told = {"reason": record.reason, "error": record.error, "error_class": record.error_class}
    for fields in _run(record.run, record.at):
        yield EventKind.FAILED, fields | told


def _ended(record: rec.Ended) -> Iterator[tuple[EventKind, Fields]]:
    kind = EventKind.CANCELLED if STATES[record.state] is State.CANCELLED else EventKind.EXPIRED
    for run in record.runs:
        for fields in _run(run, record.at):
            yield kind, fields | {"reason": record.reason}


def _released(record: rec.Released) -> Iterator[tuple[EventKind, Fields]]:
    kind = EventKind.SNOOZED if record.due else EventKind.RELEASED
    for run in record.runs:
        for fields in _run(run, record.at):
            yield kind, fields | {"due": record.due}


def _pairs(kind: EventKind, runs: list[tuple[int, int]]) -> Iterator[tuple[EventKind, Fields]]:
    for first, count in runs:
        for job in _ids(first, count):
            yield kind, {"job": job}


def _became_due(record: rec.BecameDue) -> Iterator[tuple[EventKind, Fields]]:
    return _pairs(EventKind.PROMOTED if record.promoted else EventKind.READY, record.runs)


def _unblocked(record: rec.Unblocked) -> Iterator[tuple[EventKind, Fields]]:
    if record.ready:
        yield EventKind.UNBLOCKED, {"job": record.job, "due": record.due}


def _step_released(record: rec.StepReleased) -> Iterator[tuple[EventKind, Fields]]:
    for kind, fields in _pairs(EventKind.UNBLOCKED, record.runs):
        yield kind, fields | {"due": record.due, "workflow": record.workflow}


def _revived(record: rec.Revived) -> Iterator[tuple[EventKind, Fields]]:
    fields: Fields = {"job": record.job, "pushed_at": record.pushed_at, "payload_bytes": record.size}
    yield EventKind.REVIVED, fields | _labelled(record.labels)


def _dead_removed(record: rec.DeadRemoved) -> Iterator[tuple[EventKind, Fields]]:
    kind = EventKind.EVICTED if record.why == "evicted" else EventKind.REMOVED
    for job in record.jobs:
        yield kind, {"job": job, "reason": record.why}


def _partial_added(record: rec.PartialAdded) -> Iterator[tuple[EventKind, Fields]]:
    fields = {"job": record.job, "data": record.data, "chunk": record.index, "codec": CODECS[record.codec]}
    yield EventKind.PARTIAL, fields


def _schedule(reason: str) -> Callable[[Any], Iterator[tuple[EventKind, Fields]]]:
    def explode(record: Any) -> Iterator[tuple[EventKind, Fields]]:
        resumed = type(record) is rec.SchedulePaused and not record.paused
        yield EventKind.SCHEDULE_CHANGED, {"schedule": record.name, "reason": "resumed" if resumed else reason}

    return explode


def _slot_passed(record: rec.SlotPassed) -> Iterator[tuple[EventKind, Fields]]:
    """No step of a job, so it names none: the one because of which there is no other is none of the slot's."""
    reason = record.reason or record.outcome
    yield EventKind.SLOT_PASSED, {"schedule": record.name, "due": record.slot, "reason": reason}


def _one(kind: EventKind, **sources: str) -> Callable[[Any], Iterator[tuple[EventKind, Fields]]]:
    """Records about one job: the event's fields and the record's that they come from."""

    def explode(record: Any) -> Iterator[tuple[EventKind, Fields]]:
        yield kind, {field: getattr(record, source) for field, source in sources.items()}

    return explode


_EVENTS: dict[type[rec.Record], Callable[[Any], Iterator[tuple[EventKind, Fields]]]] = {
    rec.Pushed: _pushed,
    rec.Started: _started,
    rec.Completed: _completed,
    rec.Retrying: _retrying,
    rec.Failed: _failed,
    rec.Ended: _ended,
    rec.Released: _released,
    rec.Extended: lambda record: _pairs(EventKind.EXTENDED, record.runs),
    rec.CancelRequested: _one(EventKind.CANCEL_REQUESTED, job="job"),
    rec.Progressed: _one(EventKind.PROGRESS, job="job", percent="percent", message="message"),
    rec.Logged: _one(EventKind.LOG, job="job", message="message", reason="level"),
    rec.PartialAdded: _partial_added,
    rec.Unblocked: _unblocked,
    rec.StepReleased: _step_released,
    rec.BecameDue: _became_due,
    rec.Delayed: _one(EventKind.DELAYED, job="job", due="due"),
    rec.Reprioritised: _one(EventKind.REPRIORITISED, job="job", priority="priority"),
    rec.PayloadUpdated: _one(EventKind.UPDATED, job="job"),
    rec.QueueConfigured: _one(EventKind.QUEUE_CONFIGURED),
    rec.QueueObliterated: _one(EventKind.QUEUE_OBLITERATED),
    rec.Revived: _revived,
    rec.DeadRemoved: _dead_removed,
    rec.Removed: lambda record: _pairs(EventKind.REMOVED, record.runs),
    rec.ScheduledPush: _pushed,
    rec.PartPublished: _pushed,
    rec.ScheduleChanged: _schedule("put"),
    rec.SchedulePaused: _schedule("paused"),
    rec.ScheduleDeleted: _schedule("deleted"),
    rec.SlotPassed: _slot_passed,
}

MEANS: dict[type[rec.Record], frozenset[EventKind]] = {
    rec.Pushed: frozenset({EventKind.PUSHED}),
    rec.Started: frozenset({EventKind.STARTED}),
    rec.Completed: frozenset({EventKind.COMPLETED}),
    rec.Retrying: frozenset({EventKind.RETRYING}),
    rec.Failed: frozenset({EventKind.FAILED}),
    rec.Ended: frozenset({EventKind.CANCELLED, EventKind.EXPIRED}),
    rec.Released: frozenset({EventKind.RELEASED, EventKind.SNOOZED}),
    rec.Extended: frozenset({EventKind.EXTENDED}),
    rec.CancelRequested: frozenset({EventKind.CANCEL_REQUESTED}),
    rec.Progressed: frozenset({EventKind.PROGRESS}),
    rec.Logged: frozenset({EventKind.LOG}),
    rec.PartialAdded: frozenset({EventKind.PARTIAL}),
    rec.Unblocked: frozenset({EventKind.UNBLOCKED}),
    rec.StepReleased: frozenset({EventKind.UNBLOCKED}),
    rec.BecameDue: frozenset({EventKind.READY, EventKind.PROMOTED}),
    rec.Delayed: frozenset({EventKind.DELAYED}),
    rec.Reprioritised: frozenset({EventKind.REPRIORITISED}),
    rec.PayloadUpdated: frozenset({EventKind.UPDATED}),
    rec.QueueConfigured: frozenset({EventKind.QUEUE_CONFIGURED}),
    rec.QueueObliterated: frozenset({EventKind.QUEUE_OBLITERATED}),
    rec.Revived: frozenset({EventKind.REVIVED}),
    rec.DeadRemoved: frozenset({EventKind.EVICTED, EventKind.REMOVED}),
    rec.Removed: frozenset({EventKind.REMOVED}),
    rec.ScheduledPush: frozenset({EventKind.PUSHED}),
    rec.PartPublished: frozenset({EventKind.PUSHED}),
    rec.ScheduleChanged: frozenset({EventKind.SCHEDULE_CHANGED}),
    rec.SchedulePaused: frozenset({EventKind.SCHEDULE_CHANGED}),
    rec.ScheduleDeleted: frozenset({EventKind.SCHEDULE_CHANGED}),
    rec.SlotPassed: frozenset({EventKind.SLOT_PASSED}),
}
"""The kinds of events that a record can mean: a reader of failures must not pay for ten thousand pushes."""
