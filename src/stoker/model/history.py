"""What happened in a queue minute by minute, and how long its jobs wait and run: replies for people and autoscalers."""

from collections.abc import Mapping, Sequence

import msgspec

from stoker.model.histograms import Histogram, added

MINUTE_MS = 60_000
STEPS_MAX = 1_500
"""Points of one answer: a day by minutes fits."""


class Timings(msgspec.Struct, frozen=True, gc=False):
    """How long jobs of a queue, or of all queues of a tenant, wait and run."""

    oldest_waiting_at: int = 0
    """When the oldest waiting job was pushed; 0 if none waits."""
    wait: Histogram = Histogram()
    """From the push to the first start."""
    run: Histogram = Histogram()
    """From a start to the end of the delivery, whether it completed or failed."""


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened in one step of time."""

    at: int
    """When the step began, by the calendar: milliseconds since 1970, a multiple of the step."""
    pushed: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    """Deliveries that are tried again, and jobs that became dead letters."""
    dead: int = 0
    """Jobs that became dead letters."""
    backlog: int = 0
    """Waiting jobs at the end of the step."""
    wait: Histogram = Histogram()
    run: Histogram = Histogram()


def together(at: int, points: Sequence[HistoryPoint], *, last: bool = False) -> HistoryPoint:
    """Points of several queues as one; or of one queue at several times, where the `last` tells the backlog."""
    sums = {name: sum(getattr(point, name) for point in points) for name in SUMMED}
    backlog = points[-1].backlog if last else sum(point.backlog for point in points)
    wait, run = added(point.wait for point in points), added(point.run for point in points)
    return HistoryPoint(at=at, backlog=backlog, wait=wait, run=run, **sums)


SUMMED = ("pushed", "started", "completed", "failed", "dead")


class TrendPoint(msgspec.Struct, frozen=True, gc=False):
    """How many jobs ended in one step of time."""

    at: int
    """When the step began, as in `HistoryPoint`."""
    completed: int = 0
    dead: int = 0
    """Jobs that became dead letters."""


class Trends(msgspec.Struct, frozen=True):
    """What happened in some queues: steps in order of time. Queues and steps in which nothing happened are left out."""

    step_ms: int
    queues: Mapping[str, Sequence[TrendPoint]] = {}


class History(msgspec.Struct, frozen=True):
    """Steps in order of time, without those in which nothing happened and no job waited."""

    step_ms: int
    points: Sequence[HistoryPoint] = ()
