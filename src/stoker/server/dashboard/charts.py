"""What happened in a queue over time, as charts: each with the numbers for the script, and as a table for readers."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from markupsafe import Markup

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.history import MINUTE_MS, HistoryPoint, TrendPoint
from stoker.server.dashboard.page import DashboardPage
from stoker.server.dashboard.rendering import clock, render

RANGES_MS = {"15m": 15 * MINUTE_MS, "1h": 60 * MINUTE_MS, "6h": 360 * MINUTE_MS, "24h": 1_440 * MINUTE_MS}
STEPS_MS = {"15m": MINUTE_MS, "1h": MINUTE_MS, "6h": 5 * MINUTE_MS, "24h": 15 * MINUTE_MS}
DEFAULT_RANGE = "1h"
SPARK_STEP_MS = 2 * MINUTE_MS
TRENDS_ASKED = 25
"""Queues of one command: an hour of them takes 2 ms."""
TRENDS_S = 30.0
CHARTS_S = 5.0

Value = Callable[[HistoryPoint, float], float | None]
"""The value of a line in a step, from the step's length in seconds."""


class ChartLine(NamedTuple):
    label: str
    tone: str
    """A colour of the stylesheet."""
    value: Value


class Chart(NamedTuple):
    """One chart."""

    title: str
    unit: str
    labels: list[str]
    rows: list[tuple[str, list[str]]]
    """The time of each step in which something happened, and its values; the newest first."""
    data: str
    """For the script, as JSON."""


def _quantile(name: str, share: float) -> Value:
    def value(point: HistoryPoint, _: float) -> float | None:
        found = getattr(point, name).quantile(share)
        return None if found is None else found / 1_000

    return value


def _shares(name: str) -> tuple[ChartLine, ...]:
    tones = {"p50": "good", "p95": "warn", "p99": "bad"}
    return tuple(ChartLine(label, tone, _quantile(name, int(label[1:]) / 100)) for label, tone in tones.items())


CHARTS: tuple[tuple[str, str, tuple[ChartLine, ...]], ...] = (
    (
        "Jobs in and out",
        "/s",
        (
            ChartLine("pushed", "waiting", lambda point, seconds: point.pushed / seconds),
            ChartLine("completed", "good", lambda point, seconds: point.completed / seconds),
        ),
    ),
    ("Backlog", "jobs", (ChartLine("waiting", "waiting", lambda point, _: point.backlog),)),
    ("Time to start", "s", _shares("wait")),
    ("Time to run", "s", _shares("run")),
    (
        "Failures",
        "jobs",
        (
            ChartLine("failed", "warn", lambda point, _: point.failed),
            ChartLine("dead letters", "bad", lambda point, _: point.dead),
        ),
    ),
)


async def charts_of(page: DashboardPage, queue: str | None) -> Markup:
    """The charts of a queue, or of all queues, over the range that the URL names. Nothing without a history.

    They change once a minute, so all pages share them for a few seconds.
    """
    wanted = page.query.get("range") or DEFAULT_RANGE
    if wanted not in RANGES_MS:
        raise InvalidRequest(f"invalid range {wanted[:20]!r}: expected one of {', '.join(RANGES_MS)}")

    async def draw() -> Markup:
        step = STEPS_MS[wanted]
        history = await page.ask_if_there(c.GetHistory(queue, RANGES_MS[wanted], step))
        if history is None:
            return Markup()
        points = filled(history.points, RANGES_MS[wanted], step, page.now)
        charts = [_chart(title, unit, lines, points, step / 1_000) for title, unit, lines in CHARTS]
        return Markup(render("charts.html", charts=charts, range=wanted).decode())

    return await page.shared(("charts", queue, wanted), draw, seconds=CHARTS_S)


async def sparks_of(page: DashboardPage, names: Sequence[str]) -> dict[str, list[int]]:
    """The completed jobs of each queue over the last hour. Queues in which nothing happened are left out."""
    length = RANGES_MS["1h"]
    trends = await trends_of(page, names, length, SPARK_STEP_MS)
    steps = steps_of(length, SPARK_STEP_MS, page.now)
    found = {}
    for name, points in trends.items():
        completed = {point.at: point.completed for point in points}
        found[name] = [completed.get(at, 0) for at in steps]
    return found


async def trends_of(
    page: DashboardPage, names: Sequence[str], length_ms: int, step_ms: int
) -> Mapping[str, Sequence[TrendPoint]]:
    """What ended in these queues. It changes once a minute, so all pages share it for half of one."""

    async def ask() -> dict[str, Sequence[TrendPoint]]:
        found: dict[str, Sequence[TrendPoint]] = {}
        for start in range(0, len(names), TRENDS_ASKED):
            asked = c.GetTrends(names[start : start + TRENDS_ASKED], length_ms, step_ms)
            reply = await page.ask_if_there(asked)
            if reply is None:
                break
            found |= reply.queues
        return found

    return await page.shared(("trends", tuple(names), length_ms, step_ms), ask, seconds=TRENDS_S)


def steps_of(length_ms: int, step_ms: int, now: int) -> range:
    """When each step of a range begins."""
    last = now // step_ms * step_ms
    return range(last - length_ms + step_ms, last + step_ms, step_ms)


def filled(points: Sequence[HistoryPoint], length_ms: int, step_ms: int, now: int) -> list[HistoryPoint]:
    """Every step of the range: a step in which nothing happened is left out of a history."""
    known = {point.at: point for point in points}
    return [known.get(at) or HistoryPoint(at=at) for at in steps_of(length_ms, step_ms, now)]


def _chart(title: str, unit: str, lines: Sequence[ChartLine], points: Sequence[HistoryPoint], seconds: float) -> Chart:
    columns: list[list[float | None]] = [[_rounded(line.value(point, seconds)) for point in points] for line in lines]
    times = [point.at for point in points]
    data = {
        "data": [[at // 1_000 for at in times], *columns],
        "series": [{"label": line.label, "tone": line.tone} for line in lines],
        "unit": unit,
    }
    rows = [
        (clock(at)[:16], ["" if value is None else f"{value:g}" for value in values])
        for at, *values in zip(times, *columns, strict=True)
        if any(values)
    ]
    return Chart(title, unit, [line.label for line in lines], rows[::-1], msgspec.json.encode(data).decode())


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
