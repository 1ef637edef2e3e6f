"""Records of the log as runs: one row for neighbouring jobs to which the same thing happened.

It says the same as `stoker.records.events`, which has an event for each job; here a batch of ten thousand is one row,
and becomes ten thousand only as columns (`columns.py`). Nothing here knows Arrow or Spark.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stoker.model.options import CODECS, DEFAULT_OPTIONS, Options
from stoker.model.states import STATES, State
from stoker.records import records as rec
from stoker.records.stored import sizes_of


class Run(NamedTuple):
    """What happened to `jobs` jobs from `first` on (downwards if negative). Times are 0 where they do not apply."""

    event: str
    first: int = 0
    jobs: int = 1
    attempt: int = 0
    worker: str = ""
    reason: str = ""
    error: str = ""
    error_class: str = ""
    due: int = 0
    pushed_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    payload_bytes: int | list[int] = 0
    """Of each, or one number for all."""
    result_bytes: int | list[int] = 0
    percent: int = 0
    message: str = ""
    chunk: int = 0
    data: bytes = b""
    codec: str = "bytes"
    labels: Any = None
    """Options, or what a record keeps of them: priority, tags, name, ..."""


def runs_of(record: rec.Record) -> Iterator[Run]:
    """None for records that concern the store alone."""
    explode = _RUNS.get(type(record))
    return iter(()) if explode is None else explode(record)


def _delivery(event: str, run: rec.Run, ended_at: int = 0, **more: Any) -> Run:
    return Run(
        event,
        run.first,
        run.count,
        run.attempt,
        run.worker,
        pushed_at=run.pushed_at,
        started_at=run.started_at,
        finished_at=ended_at,
        payload_bytes=run.sizes,
        labels=run.labels,
    )._replace(**more)


def _pushed(record: rec.Pushed | rec.ScheduledPush | rec.PartPublished) -> Iterator[Run]:
    payloads: Any = record.payloads
    sizes = record.sizes
    if sizes is None:
        sizes = getattr(payloads, "sizes", None)
    if sizes is None:
        sizes = sizes_of(payloads)
    options: Options = record.options
    yield Run(
        "pushed",
        record.first,
        len(payloads),
        due=record.due,
        pushed_at=record.at,
        payload_bytes=sizes,
        labels=None if options is DEFAULT_OPTIONS else options,
    )


def _started(record: rec.Started) -> Iterator[Run]:
    for run in record.runs:
        yield _delivery("started", run, started_at=record.at, worker=record.worker, attempt=run.attempt + 1)


def _completed(record: rec.Completed) -> Iterator[Run]:
    if record.results is None:
        for run in record.runs:
            yield _delivery("completed", run, record.at)
        return
    offset = 0
    for run in record.runs:
        results = record.results[offset : offset + abs(run.count)]
        offset += abs(run.count)
        sizes = [0 if result is None else len(result) for result in results]
        yield _delivery("completed", run, record.at, result_bytes=sizes)


def _retrying(record: rec.Retrying) -> Iterator[Run]:
    told = {"reason": record.reason, "error": record.error, "error_class": record.error_class, "due": record.due}
    yield _delivery("retrying", record.run, record.at, **told)


def _failed(record: rec.Failed) -> Iterator[Run]:
    told = {"reason": record.reason, "error": record.error, "error_class": record.error_class}
    yield _delivery("failed", record.run, record.at, **told)


def _ended(record: rec.Ended) -> Iterator[Run]:
    event = "cancelled" if STATES[record.state] is State.CANCELLED else "expired"
    for run in record.runs:
        yield _delivery(event, run, record.at, reason=record.reason)


def _released(record: rec.Released) -> Iterator[Run]:
    for run in record.runs:
        yield _delivery("snoozed" if record.due else "released", run, record.at, due=record.due)


def _partial_added(record: rec.PartialAdded) -> Iterator[Run]:
    yield Run("partial", record.job, data=record.data, chunk=record.index, codec=CODECS[record.codec])


def _dead_removed(record: rec.DeadRemoved) -> Iterator[Run]:
    for job in record.jobs:
        yield Run("evicted" if record.why == "evicted" else "removed", job, reason=record.why)


def _unblocked(record: rec.Unblocked) -> Iterator[Run]:
    if record.ready:
        yield Run("unblocked", record.job, due=record.due)


def _step_released(record: rec.StepReleased) -> Iterator[Run]:
    for first, count in record.runs:
        yield Run("unblocked", first, count, due=record.due, labels=rec.Labels(workflow=record.workflow))


def _reprioritised(record: rec.Reprioritised) -> Iterator[Run]:
    yield Run("reprioritised", record.job, labels=rec.Labels(priority=record.priority))


def _schedule(reason: str) -> Callable[[Any], Iterator[Run]]:
    def explode(record: Any) -> Iterator[Run]:
        resumed = type(record) is rec.SchedulePaused and not record.paused
        told = "resumed" if resumed else reason
        yield Run("schedule_changed", reason=told, labels=rec.Labels(schedule=record.name))

    return explode


def _slot_passed(record: rec.SlotPassed) -> Iterator[Run]:
    reason = record.reason or record.outcome
    yield Run("slot_passed", reason=reason, due=record.slot, labels=rec.Labels(schedule=record.name))


def _pairs(event: Callable[[Any], str]) -> Callable[[Any], Iterator[Run]]:
    return lambda record: (Run(event(record), first, count) for first, count in record.runs)


def _one(event: str, **sources: str) -> Callable[[Any], Iterator[Run]]:
    """Records about one job, or about none: the fields of the run, and the record's that they come from."""
    return lambda record: iter([Run(event, **{field: getattr(record, source) for field, source in sources.items()})])


_RUNS: dict[type[rec.Record], Callable[[Any], Iterator[Run]]] = {
    rec.Pushed: _pushed,
    rec.ScheduledPush: _pushed,
    rec.PartPublished: _pushed,
    rec.ScheduleChanged: _schedule("put"),
    rec.SchedulePaused: _schedule("paused"),
    rec.ScheduleDeleted: _schedule("deleted"),
    rec.SlotPassed: _slot_passed,
    rec.Started: _started,
    rec.Completed: _completed,
    rec.Retrying: _retrying,
    rec.Failed: _failed,
    rec.Ended: _ended,
    rec.Released: _released,
    rec.Extended: _pairs(lambda record: "extended"),
    rec.CancelRequested: _one("cancel_requested", first="job"),
    rec.Progressed: _one("progress", first="job", percent="percent", message="message"),
    rec.Logged: _one("log", first="job", message="message", reason="level"),
    rec.PartialAdded: _partial_added,
    rec.Unblocked: _unblocked,
    rec.StepReleased: _step_released,
    rec.BecameDue: _pairs(lambda record: "promoted" if record.promoted else "ready"),
    rec.Delayed: _one("delayed", first="job", due="due"),
    rec.Reprioritised: _reprioritised,
    rec.PayloadUpdated: _one("updated", first="job"),
    rec.QueueConfigured: _one("queue_configured"),
    rec.QueueObliterated: _one("queue_obliterated"),
    rec.Revived: _one("revived", first="job", pushed_at="pushed_at", payload_bytes="size", labels="labels"),
    rec.DeadRemoved: _dead_removed,
    rec.Removed: _pairs(lambda record: "removed"),
}
