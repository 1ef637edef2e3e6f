"""The numbers of a report as plain values: for `--json`, the charts and the page.

They come from gold, and from silver where jobs must be told apart (dead letters). Only a history of a few minutes is
counted from bronze: it is too short for gold.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stoker.spark.lake import gold, reading
from stoker.spark.lake.gold import COUNTED, ENDING
from stoker.spark.lake.layout import Lake
from stoker.spark.report import tables
from stoker.spark.report.dead import Deaths, deaths, newest, then_and_now, with_dead
from stoker.spark.report.markers import markers
from stoker.spark.report.rows import listed, plain
from stoker.spark.report.scope import MINUTE, ReportScope

POINTS = 240
"""Points on the time axis; with more, the next coarser grain is used."""
SHORT_MINUTES = 5
"""Shorter histories are shown by seconds."""
SHORT_EVENTS = 1_000_000
"""Unless they have more events than this."""
GRAIN_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
LATEST_SHARE = 0.25
"""The share of the period that a forecast extrapolates."""


def numbers(
    lake: Lake,
    settings: reading.ReportSettings | None = None,
    scope: ReportScope | None = None,
    *,
    compare: bool = False,
) -> dict[str, Any]:
    """Everything in a report. A period without events gives a report that says so.

    With `compare`, `before` is the headline of the period of the same length before this one.
    """
    settings, scope = settings or reading.ReportSettings(), (scope or ReportScope()).in_minutes()
    about = {"from": plain(scope.since), "until": plain(scope.until), "queue": scope.queue, "tenant": scope.tenant}
    minutes = scope.read(lake, "minutes")
    extent = None if minutes is None else extent_of(minutes)
    if minutes is None or extent is None:
        return {"scope": about, "headline": {"events": 0}, "series": [], "grain": "minute"}
    grain = grain_for(extent)
    points = by_start(lake, scope, minutes, grain).cache()
    asked = questions(lake, scope, settings, points, grain)
    if compare and scope.since is not None:
        before = scope.before(extent.last + MINUTE)
        asked["before"] = lambda: headline_of(lake, before, settings)
    try:
        first = totals(points, settings)  # first and alone: it fills the cache for the others
        found = at_once(lake, asked)
    finally:
        points.unpersist()
    died, earlier, then = found.pop("deaths"), found.pop("earlier"), found.pop("then")
    for name, keys in DEAD_BY.items():
        found[name] = with_dead(found[name], died, *keys)
    found["drains"] = drains(found.pop("growth"), earlier, grain)
    found["series"] = without_gaps(with_backlog(found["series"], sum(earlier.values()), settings), grain)
    found["dead"] = then_and_now(then, died)
    head = first | by_last_state(first, died) | forecast(found["drains"])
    head["dead_letters_then"] = sum(row["then"] for row in found["dead"])
    return {"scope": about, "grain": grain, "headline": head, **found}


DEAD_BY = {"kinds": ("queue", "name"), "tenants": ("tenant",), "failures": ("fingerprint",), "queues": ("queue",)}
"""Tables that say how many jobs are dead letters now, and by which columns."""

Questions = dict[str, Callable[[], Any]]


def questions(
    lake: Lake, scope: ReportScope, settings: reading.ReportSettings, points: DataFrame, grain: str
) -> Questions:
    """What is asked of the lake besides the totals, each on its own."""
    at_start = replace(scope, since=None, until=scope.since)
    return {
        "series": lambda: series(points, settings),
        "growth": lambda: growth(points),
        "queues": lambda: tables.queues(points),
        "kinds": lambda: tables.kinds(points),
        "payloads": lambda: tables.payloads(points),
        "tenants": lambda: tables.tenants(points, settings),
        "failures": lambda: tables.failures(lake, scope),
        "workers": lambda: tables.workers(lake, scope),
        "schedules": lambda: tables.schedules(lake, scope),
        "markers": lambda: markers(lake, scope, grain),
        "deaths": lambda: deaths(lake, scope),
        "letters": lambda: newest(lake, scope),
        "earlier": lambda: {} if scope.since is None else backlogs(scope.read_earlier(lake, "minutes")),
        "then": lambda: [] if scope.since is None else deaths(lake, at_start),
    }


def at_once(lake: Lake, asked: Questions) -> dict[str, Any]:
    """The answers, asked at the same time: while one is being planned, others work."""
    with ThreadPoolExecutor(len(asked), "stoker-report") as pool:
        inherited = inheritable_thread_target(lake.spark)
        found = {name: pool.submit(inherited(ask)) for name, ask in asked.items()}
        return {name: answer.result() for name, answer in found.items()}


class Extent(NamedTuple):
    """The first and the last minute with events, and how many there are."""

    first: datetime
    last: datetime
    events: int


def extent_of(minutes: DataFrame) -> Extent | None:
    """None if there are no events."""
    counted = sum((F.col(name) for name in COUNTED), F.lit(0))
    span = minutes.agg(F.min("minute").alias("first"), F.max("minute").alias("last"), F.sum(counted).alias("events"))
    found = span.first()
    if found is None or found["first"] is None:
        return None
    return Extent(found["first"].astimezone(UTC), found["last"].astimezone(UTC), found["events"])


def grain_for(extent: Extent) -> str:
    """The grain with neither too many nor too few points."""
    length = (extent.last - extent.first).total_seconds() / 60
    if length <= SHORT_MINUTES and extent.events <= SHORT_EVENTS:
        return "second"
    return "minute" if length <= POINTS else "hour" if length / 60 <= POINTS else "day"


def by_start(lake: Lake, scope: ReportScope, minutes: DataFrame, grain: str) -> DataFrame:
    """Gold by tenant, queue, kind and point in time."""
    if grain == "second":
        events = scope.read(lake, "bronze")
        assert events is not None
        minutes = gold.minutes(events, "second")
    starts = minutes.withColumn("start", F.date_trunc(grain, "minute"))
    return reading.merged(starts, "tenant", "queue", "name", "start")


# --- the headline --------------------------------------------------------------------------------------------------


def headline_of(lake: Lake, scope: ReportScope, settings: reading.ReportSettings) -> dict[str, Any]:
    """The headline of another period."""
    minutes = scope.read(lake, "minutes")
    if minutes is None:
        return {"events": 0}
    found = totals(minutes.withColumn("start", F.col("minute")), settings)
    return found | by_last_state(found, deaths(lake, scope)) if found["events"] else {"events": 0}


def totals(points: DataFrame, settings: reading.ReportSettings) -> dict[str, Any]:
    """Over everything. Each count of events has the event's own name: a job that died twice counts twice."""
    span = points.agg(F.min("start").alias("from"), F.max("start").alias("until")).first()
    whole = reading.merged(points)
    quantiles = [
        reading.quantile(name, share).alias(f"{name}_{word}")
        for name in reading.MEASURED
        for word, share in reading.QUANTILES.items()
    ]
    sums = [*COUNTED, "payload_bytes", *[f"{name}_sum" for name in reading.MEASURED]]
    found = whole.select(*sums, *quantiles, late(settings).alias("late")).first()
    assert found is not None
    assert span is not None
    told: dict[str, Any] = {name: plain(value) for name, value in {**found.asDict(), **span.asDict()}.items()}
    told["events"] = sum(told[name] or 0 for name in COUNTED)
    if not told["events"]:
        return told
    told["missed"] = told["late"] + told["failed"] + told["expired"]
    deliveries = told["completed"] + told["failed"]
    told["retry_amplification"] = told["started"] / deliveries if deliveries else None
    judged = deliveries + told["expired"]
    told["in_time"] = 1 - told["missed"] / judged if judged else None
    told["slo_burn"] = burn(told["missed"], judged, settings)
    told["objective_ms"], told["objective_share"] = settings.objective_ms, settings.objective_share
    told["cost"] = tables.cost_of(told["pushed"], told["run_ms_sum"], told["payload_bytes"], settings)
    return told


def by_last_state(told: dict[str, Any], died: list[Deaths]) -> dict[str, Any]:
    """Jobs that ended in the period, each counted once, by its last state: a job that was revived did not fail."""
    failed = sum(one.jobs for one in died if one.inside)
    ended = told["completed"] + failed
    return {
        "jobs": {state: told[state] for state in ENDING} | {"failed": failed},
        "dead_letters": sum(one.jobs for one in died if one.is_here),
        "success": told["completed"] / ended if ended else None,
    }


def late(settings: reading.ReportSettings) -> Column:
    """Jobs that completed too late after they were due."""
    in_time = F.round(reading.rank("latency_ms", settings.objective_ms) * F.col("completed"))
    return (F.col("completed") - in_time).cast("bigint")


def burn(missed: float, judged: float, settings: reading.ReportSettings) -> float | None:
    budget = judged * (1 - settings.objective_share)
    return missed / budget if budget else None


# --- backlogs, and when they are gone ------------------------------------------------------------------------------


def ended() -> Column:
    return sum((F.col(event) for event in ENDING), F.lit(0))


def backlogs(minutes: DataFrame | None) -> dict[str, int]:
    """By queue: how many jobs these minutes left behind."""
    if minutes is None:
        return {}
    left = F.sum(F.col("pushed") + F.col("revived") - ended()).alias("left")
    return {row["queue"]: row["left"] for row in minutes.groupBy("queue").agg(left).collect()}


def growth(points: DataFrame) -> list[tuple[str, datetime, int]]:
    """By queue and time: how many jobs came, less those that ended."""
    came = F.sum(F.col("pushed") + F.col("revived") - ended()).alias("came")
    return [(row["queue"], row["start"], row["came"]) for row in points.groupBy("queue", "start").agg(came).collect()]


def drains(found: list[tuple[str, datetime, int]], earlier: dict[str, int], grain: str) -> list[dict[str, Any]]:
    """By queue: the backlog, its growth, and when it is empty at this rate. The largest first."""
    starts = [start for _, start, _ in found]
    first, last = min(starts), max(starts)
    buckets = round((last - first).total_seconds() / GRAIN_S[grain]) + 1
    latest_s = max(1, round(buckets * LATEST_SHARE)) * GRAIN_S[grain]
    told: dict[str, dict[str, Any]] = {
        queue: {"queue": queue, "backlog": left, "growth_per_s": 0.0} for queue, left in earlier.items()
    }
    for name, start, came in found:
        queue = told.setdefault(name, {"queue": name, "backlog": 0, "growth_per_s": 0.0})
        queue["backlog"] += came
        if (last - start).total_seconds() < latest_s:
            queue["growth_per_s"] += came / latest_s
    for queue in told.values():
        queue["drained_in_s"] = time_to_drain(queue["backlog"], queue["growth_per_s"])
    return sorted(told.values(), key=lambda one: (-one["backlog"], one["queue"]))


def forecast(drained: list[dict[str, Any]]) -> dict[str, Any]:
    """The forecast over all queues."""
    left, growing = sum(queue["backlog"] for queue in drained), sum(queue["growth_per_s"] for queue in drained)
    return {"backlog": left, "growth_per_s": growing, "drained_in_s": time_to_drain(left, growing)}


def time_to_drain(backlog: int, growth_per_s: float) -> float | None:
    """0 if nothing is left, None if it does not shrink."""
    if backlog <= 0:
        return 0.0
    return backlog / -growth_per_s if growth_per_s < 0 else None


# --- over time -----------------------------------------------------------------------------------------------------


def series(points: DataFrame, settings: reading.ReportSettings) -> list[dict[str, Any]]:
    """By time, over everything."""
    shown = ("wait_ms", "total_ms", "ready_ms", "latency_ms")
    found = reading.merged(points, "start", measured=shown)
    quantiles = [
        reading.quantile(name, reading.QUANTILES[word]).alias(f"{name}_{word}")
        for name in shown
        for word in ("p50", "p90", "p99")
    ]
    missed = (late(settings) + F.col("failed") + F.col("expired")).alias("missed")
    chosen = found.select("start", *COUNTED, ended().alias("ended"), missed, *quantiles)
    return listed(chosen.orderBy("start"))


def with_backlog(points: list[dict[str, Any]], backlog: int, settings: reading.ReportSettings) -> list[dict[str, Any]]:
    """Add what is left at the end of each point, and the budget that it burnt."""
    told = []
    for point in points:
        backlog += point["pushed"] + point["revived"] - point["ended"]
        judged = point["completed"] + point["failed"] + point["expired"]
        told.append(point | {"backlog": backlog, "slo_burn": burn(point["missed"], judged, settings)})
    return told


def without_gaps(points: list[dict[str, Any]], grain: str) -> list[dict[str, Any]]:
    """Add points for times without events: a line from one busy hour to the next would be wrong."""
    told: list[dict[str, Any]] = []
    step = timedelta(seconds=GRAIN_S[grain])
    for point in points:
        start = datetime.fromisoformat(point["start"])
        while told and (before := datetime.fromisoformat(told[-1]["start"]) + step) < start and len(told) < POINTS * 4:
            quiet = {name: None if "_ms_" in name else 0 for name in point if name != "start"}
            told.append(quiet | {"start": plain(before), "backlog": told[-1]["backlog"], "slo_burn": None})
        told.append(point)
    return told
