"""Turn records into runs of events: one run for neighbouring jobs to which the same thing happened.

A run of ten thousand jobs is one value. Events (`events.py`) and Spark's columns are both made from runs, so they
agree.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from stoker.model.events import EventKind
from stoker.model.options import CODECS, DEFAULT_OPTIONS
from stoker.model.states import STATES, State
from stoker.records import records as rec
from stoker.records.record_table import TABLE, Jobs, RecordType
from stoker.records.stored import sizes_of

Fields = dict[str, Any]


class EventRun(NamedTuple):
    """What happened to `jobs` jobs, starting at `first` (descending if negative). Times that do not apply are 0."""

    event: EventKind
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
    """Of each job, or one number for all."""
    result_bytes: int | list[int] = 0
    percent: int = 0
    message: str = ""
    chunk: int = 0
    data: bytes = b""
    codec: str = "bytes"
    labels: Any = None
    """Options, or the part of them that a record keeps: priority, tags, name, ..."""
    token: int = 0
    """The token of the delivery that started."""
    ready_at: int = 0
    """Since when the jobs of a delivery could be delivered; 0 = unknown."""
    removed: bool = False
    """Whether a failed job is gone, and no dead letter."""


def runs_of(record: rec.Record) -> Iterator[EventRun]:
    """The runs of a record; none for records that only concern the store."""
    kind: RecordType = type(record)
    row = TABLE[kind]
    if not row.events:
        return
    event = row.events[0] if kind not in WHICH else WHICH[kind](record)
    if event is None:
        return
    said: Fields = {column: getattr(record, field) for column, field in row.columns.items()}
    if row.labels:
        said["labels"] = rec.Labels(**{label: getattr(record, field) for label, field in row.labels.items()})
    if kind in MORE:
        said |= MORE[kind](record)
    for jobs in (EACH.get(kind) or SHAPES[row.jobs])(record):
        yield EventRun(event, **(jobs | said))


def count_events(record: rec.Record, kinds: Collection[str] | None = None) -> int:
    """How many events the runs of a record have, without making them."""
    kind: RecordType = type(record)
    row = TABLE[kind]
    if not row.events:
        return 0
    event = row.events[0] if kind not in WHICH else WHICH[kind](record)
    if event is None or (kinds is not None and event not in kinds):
        return 0
    return COUNTS[row.jobs](record)


# --- the kind of a record's events -----------------------------------------------------------------


def _ended(record: rec.JobsEnded) -> EventKind:
    return EventKind.CANCELLED if STATES[record.state] is State.CANCELLED else EventKind.EXPIRED


WHICH: dict[RecordType, Callable[[Any], EventKind | None]] = {
    rec.JobsEnded: _ended,
    rec.JobsReleased: lambda record: EventKind.SNOOZED if record.due else EventKind.RELEASED,
    rec.BecameDue: lambda record: EventKind.PROMOTED if record.promoted else EventKind.READY,
    rec.DeadRemoved: lambda record: EventKind.EVICTED if record.why == "evicted" else EventKind.REMOVED,
    rec.Unblocked: lambda record: EventKind.UNBLOCKED if record.ready else None,  # the job still waits for others
}
"""Which event a record has, for records that can have several kinds, or none."""


def _limits(record: rec.QueueConfigured) -> str:
    """The limits of a queue in words; nothing if it has none."""
    rate, most = record.rate_limit, record.concurrency
    told = [f"{rate.count} jobs per {rate.per_ms} ms"] if rate is not None else []
    return ", ".join([*told, f"{most} at once"] if most else told)


MORE: dict[RecordType, Callable[[Any], Fields]] = {
    rec.PartialAdded: lambda record: {"codec": CODECS[record.codec]},
    rec.QueueConfigured: lambda record: {"reason": "paused" if record.paused else "open", "message": _limits(record)},
    rec.ScheduleChanged: lambda record: {"reason": "put"},
    rec.SchedulePaused: lambda record: {"reason": "paused" if record.paused else "resumed"},
    rec.ScheduleDeleted: lambda record: {"reason": "deleted"},
    rec.SlotPassed: lambda record: {"reason": record.reason or record.outcome},
}
"""Columns of a record's events that are not simply one of its fields."""


# --- the jobs of a record --------------------------------------------------------------------------


def _no_job(record: rec.Record) -> Iterator[Fields]:
    yield {}


def _push(record: Any) -> Iterator[Fields]:
    payloads, options, sizes = record.payloads, record.options, record.sizes
    if sizes is None:
        sizes = getattr(payloads, "sizes", None)
    if sizes is None:
        sizes = sizes_of(payloads)
    labels = None if options is DEFAULT_OPTIONS else options
    yield {"first": record.first, "jobs": len(payloads), "payload_bytes": sizes, "labels": labels}


def _delivery(run: rec.JobRun) -> Fields:
    return {
        "first": run.first,
        "jobs": run.count,
        "attempt": run.attempt,
        "worker": run.worker,
        "pushed_at": run.pushed_at,
        "started_at": run.started_at,
        "payload_bytes": run.sizes,
        "labels": run.labels,
        "ready_at": run.ready_at,
    }


def _runs(record: Any) -> Iterator[Fields]:
    return map(_delivery, record.runs)


def _run(record: Any) -> Iterator[Fields]:
    yield _delivery(record.run)


def _pairs(record: Any) -> Iterator[Fields]:
    return ({"first": first, "jobs": count} for first, count in record.runs)


def _job(record: Any) -> Iterator[Fields]:
    yield {"first": record.job}


def _jobs(record: Any) -> Iterator[Fields]:
    return ({"first": job} for job in record.jobs)


SHAPES: dict[Jobs, Callable[[Any], Iterator[Fields]]] = {
    "": _no_job,
    "push": _push,
    "runs": _runs,
    "run": _run,
    "pairs": _pairs,
    "job": _job,
    "jobs": _jobs,
}


COUNTS: dict[Jobs, Callable[[Any], int]] = {
    "": lambda record: 1,
    "push": lambda record: len(record.payloads),
    "runs": lambda record: sum(abs(run.count) for run in record.runs),
    "run": lambda record: abs(record.run.count),
    "pairs": lambda record: sum(abs(count) for _, count in record.runs),
    "job": lambda record: 1,
    "jobs": lambda record: len(record.jobs),
}
"""How many jobs a record of this shape is about: as many as `SHAPES` makes of it."""


def _started(record: rec.Started) -> Iterator[Fields]:
    """Deliveries that begin. Their attempt is not counted in the record yet."""
    return (_delivery(run) | {"attempt": run.attempt + 1} for run in record.runs)


def _completed(record: rec.Completed) -> Iterator[Fields]:
    """Deliveries with the sizes of their results."""
    results = iter(record.results or ())
    for run in record.runs:
        fields = _delivery(run)
        if record.results is not None:
            own = (next(results) for _ in range(abs(run.count)))
            fields["result_bytes"] = [0 if result is None else len(result) for result in own]
        yield fields


EACH: dict[RecordType, Callable[[Any], Iterator[Fields]]] = {rec.Started: _started, rec.Completed: _completed}
"""Records that say more about each of their deliveries."""
