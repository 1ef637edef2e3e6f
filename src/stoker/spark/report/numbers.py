"""The numbers of a report as plain values: for `--json`, the charts and the page."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stoker.model.event_table import FAILS_DELIVERY, in_order
from stoker.spark.lake import reading
from stoker.spark.lake.gold import COUNTED
from stoker.spark.lake.layout import Lake

TOP = 12
"""Rows of a table."""
POINTS = 240
"""Points on the time axis; with more, the next coarser grain is used."""


SHORT_MINUTES = 5
"""Shorter histories are shown by seconds."""
GRAIN_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
LATEST_SHARE = 0.25
"""The share of the lake's period that a forecast extrapolates."""


def numbers(lake: Lake, settings: reading.ReportSettings | None = None) -> dict[str, Any]:
    """Everything in a report. An empty lake gives a report that says so."""
    settings = settings or reading.ReportSettings()
    deltas = lake.read("minutes")
    grain = None if deltas is None else grain_for(deltas)
    if grain is None:
        return {"headline": {"events": 0}, "series": [], "grain": "minute"}
    rows = reading.seconds(lake, settings) if grain == "second" else reading.summary(lake, grain, settings)
    assert rows is not None
    rows = rows.cache()
    asked: dict[str, Callable[[], Any]] = {
        "series": lambda: without_gaps(series(rows, settings), grain),
        "drains": lambda: drains(rows, grain),
        "states": lambda: states(lake),
        "kinds": lambda: kinds(rows),
        "payloads": lambda: payloads(rows),
        "tenants": lambda: tenants(rows),
        "failures": lambda: failures(lake),
        "dead": lambda: dead(lake),
        "workers": lambda: workers(lake),
        "schedules": lambda: schedules(lake),
    }
    try:
        first = headline(lake, rows, settings)  # first and alone: it fills the cache for the others
        with ThreadPoolExecutor(len(asked), "stoker-report") as pool:
            inherited = inheritable_thread_target(lake.spark)
            found = {name: pool.submit(inherited(ask)) for name, ask in asked.items()}
            told = {name: answer.result() for name, answer in found.items()}
        return {"grain": grain, "headline": first | forecast(told["drains"]), **told}
    finally:
        rows.unpersist()


def grain_for(deltas: DataFrame) -> str | None:
    """The grain with neither too many nor too few points; None if there are no events."""
    span = deltas.agg(F.min("minute").alias("first"), F.max("minute").alias("last")).first()
    if span is None or span["first"] is None:
        return None
    length = (span["last"] - span["first"]).total_seconds() / 60
    if length <= SHORT_MINUTES:
        return "second"
    return "minute" if length <= POINTS else "hour" if length / 60 <= POINTS else "day"


def headline(lake: Lake, rows: DataFrame, settings: reading.ReportSettings) -> dict[str, Any]:
    merged = [F.kll_merge_agg_bigint(f"{name}_sketch").alias(f"{name}_sketch") for name in reading.MEASURED]
    sums = [F.sum(name).alias(name) for name in (*COUNTED, "late", "missed", "payload_bytes", "run_ms_sum")]
    span = [F.min("start").alias("from"), F.max("start").alias("until"), F.sum("cost").alias("cost")]
    whole = rows.agg(*sums, *merged, *span)
    for name in reading.MEASURED:
        whole = whole.withColumns(
            {f"{name}_{word}": reading.quantile(name, share) for word, share in reading.QUANTILES.items()}
        )
    found = whole.drop(*[f"{name}_sketch" for name in reading.MEASURED]).first()
    assert found is not None
    told: dict[str, Any] = {name: plain(value) for name, value in found.asDict().items()}
    bronze = lake.read("bronze")
    told["events"] = bronze.count() if bronze is not None else 0
    ended = told["completed"] + told["failed"]
    told["success"] = told["completed"] / ended if ended else None
    told["retry_amplification"] = told["started"] / ended if ended else None
    judged = ended + told["expired"]
    told["in_time"] = 1 - told["missed"] / judged if judged else None
    told["slo_burn"] = burn(told["missed"], judged, settings)
    told["objective_ms"], told["objective_share"] = settings.objective_ms, settings.objective_share
    return told


def forecast(drained: list[dict[str, Any]]) -> dict[str, Any]:
    """The forecast over all queues."""
    left, growth = sum(queue["backlog"] for queue in drained), sum(queue["growth_per_s"] for queue in drained)
    return {"backlog": left, "growth_per_s": growth, "drained_in_s": time_to_drain(left, growth)}


def burn(missed: float, judged: float, settings: reading.ReportSettings) -> float | None:
    budget = judged * (1 - settings.objective_share)
    return missed / budget if budget else None


def drains(rows: DataFrame, grain: str) -> list[dict[str, Any]]:
    """By queue: the backlog, its growth, and when it is empty at this rate. The largest first."""
    arrived = (F.col("pushed") + F.col("revived")).alias("arrived")
    points = rows.select("queue", "start", arrived, "ended").groupBy("queue", "start")
    found = points.agg(F.sum("arrived").alias("arrived"), F.sum("ended").alias("ended")).collect()
    if not found:
        return []
    first, last = min(point["start"] for point in found), max(point["start"] for point in found)
    buckets = round((last - first).total_seconds() / GRAIN_S[grain]) + 1
    latest_s = max(1, round(buckets * LATEST_SHARE)) * GRAIN_S[grain]
    told: dict[str, dict[str, Any]] = {}
    for point in found:
        queue = told.setdefault(point["queue"], {"queue": point["queue"], "backlog": 0, "growth_per_s": 0.0})
        growth = point["arrived"] - point["ended"]
        queue["backlog"] += growth
        if (last - point["start"]).total_seconds() < latest_s:
            queue["growth_per_s"] += growth / latest_s
    for queue in told.values():
        queue["drained_in_s"] = time_to_drain(queue["backlog"], queue["growth_per_s"])
    return sorted(told.values(), key=lambda queue: (-queue["backlog"], queue["queue"]))


def time_to_drain(backlog: int, growth_per_s: float) -> float | None:
    """0 if nothing is left, None if it does not shrink."""
    if backlog <= 0:
        return 0.0
    return backlog / -growth_per_s if growth_per_s < 0 else None


def series(rows: DataFrame, settings: reading.ReportSettings) -> list[dict[str, Any]]:
    """By time, over everything."""
    merged = [F.kll_merge_agg_bigint(f"{name}_sketch").alias(f"{name}_sketch") for name in reading.MEASURED]
    sums = [F.sum(name).alias(name) for name in (*COUNTED, "ended", "missed")]
    found = rows.groupBy("start").agg(*sums, *merged)
    for name in ("wait_ms", "total_ms"):
        found = found.withColumns(
            {f"{name}_{word}": reading.quantile(name, reading.QUANTILES[word]) for word in ("p50", "p90", "p99")}
        )
    points = found.drop(*[f"{name}_sketch" for name in reading.MEASURED]).orderBy("start").collect()
    backlog = 0
    told = []
    for point in points:
        backlog += point["pushed"] + point["revived"] - point["ended"]
        judged = point["completed"] + point["failed"] + point["expired"]
        more = {"backlog": backlog, "slo_burn": burn(point["missed"], judged, settings)}
        told.append({name: plain(value) for name, value in point.asDict().items()} | more)
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


def states(lake: Lake) -> list[dict[str, Any]]:
    """How long jobs were in each state, and how many are in it now."""
    rows = reading.states(lake, "year")
    if rows is None:
        return []
    is_now = F.col("start").isNull()
    found = rows.groupBy("state").agg(
        F.coalesce(F.sum(F.when(~is_now, F.col("stays"))), F.lit(0)).alias("stays"),
        F.coalesce(F.sum("ms_sum"), F.lit(0)).alias("ms_sum"),
        F.max("ms_max").alias("ms_max"),
        F.coalesce(F.sum(F.when(is_now, F.col("stays"))), F.lit(0)).alias("now"),
    )
    return listed(found.orderBy(F.desc("ms_sum"), "state"))


def kinds(rows: DataFrame) -> list[dict[str, Any]]:
    """Kinds of jobs, the slowest first."""
    found = rows.groupBy("queue", "name").agg(
        F.sum("completed").alias("completed"),
        F.sum("failed").alias("failed"),
        F.sum("retrying").alias("retrying"),
        F.sum("run_ms_sum").alias("run_ms"),
        F.kll_merge_agg_bigint("run_ms_sketch").alias("run_ms_sketch"),
        F.max("payload_bytes_max").alias("payload_bytes_max"),
    )
    shares = {f"run_ms_{word}": reading.quantile("run_ms", reading.QUANTILES[word]) for word in ("p50", "p95", "p99")}
    found = found.withColumns(shares).drop("run_ms_sketch")
    return listed(found.orderBy(F.desc_nulls_last("run_ms_p95"), "queue", "name").limit(TOP))


def payloads(rows: DataFrame) -> list[dict[str, Any]]:
    """Kinds of jobs by their largest payload."""
    found = rows.groupBy("queue", "name").agg(
        F.sum("pushed").alias("pushed"),
        F.sum("payload_bytes").alias("payload_bytes"),
        F.max("payload_bytes_max").alias("payload_bytes_max"),
        F.sum("result_bytes").alias("result_bytes"),
    )
    largest = found.where("payload_bytes_max > 0").orderBy(F.desc("payload_bytes_max"), "queue", "name")
    return listed(largest.limit(TOP))


def tenants(rows: DataFrame) -> list[dict[str, Any]]:
    found = rows.groupBy("tenant").agg(
        F.sum("pushed").alias("pushed"),
        F.sum("completed").alias("completed"),
        F.sum("failed").alias("failed"),
        F.sum("run_ms_sum").alias("run_ms"),
        F.sum("payload_bytes").alias("payload_bytes"),
        F.sum("cost").alias("cost"),
    )
    return listed(found.orderBy(F.desc("cost"), F.desc("run_ms"), "tenant").limit(TOP))


def failures(lake: Lake) -> list[dict[str, Any]]:
    """Why deliveries failed, by fingerprint."""
    rows = lake.read("failures")
    if rows is None:
        return []
    failed = rows.where(F.col("event").isin(*in_order(FAILS_DELIVERY)))
    found = failed.groupBy(F.coalesce("fingerprint", "reason").alias("fingerprint")).agg(
        F.array_sort(F.collect_set("reason")).alias("reasons"),
        F.sum("count").alias("count"),
        F.sum(F.when(F.col("event") == "failed", F.col("count")).otherwise(0)).alias("dead"),
        F.max("example").alias("example"),
        F.array_sort(F.collect_set("queue")).alias("queues"),
    )
    return listed(found.orderBy(F.desc("count"), "fingerprint").limit(TOP))


def dead(lake: Lake) -> list[dict[str, Any]]:
    """Dead letters by reason."""
    rows = lake.read("failures")
    if rows is None:
        return []
    found = rows.where("event = 'failed'").groupBy("reason").agg(F.sum("count").alias("count"))
    return listed(found.orderBy(F.desc("count"), "reason"))


def workers(lake: Lake) -> list[dict[str, Any]]:
    """How busy workers were, from the start of their first delivery to the end of their last."""
    rows = lake.read("workers")
    if rows is None:
        return []
    found = rows.groupBy("worker").agg(
        F.sum("busy_ms").alias("busy_ms"),
        F.sum("attempts").alias("attempts"),
        (F.unix_millis(F.max("ended_max")) - F.unix_millis(F.min("started_min"))).alias("span_ms"),
    )
    return listed(found.orderBy(F.desc("busy_ms"), "worker").limit(TOP))


def schedules(lake: Lake) -> list[dict[str, Any]]:
    rows = lake.read("schedules")
    if rows is None:
        return []
    found = rows.groupBy("schedule").agg(
        F.sum("runs").alias("runs"), F.sum("lag_ms_sum").alias("lag_ms_sum"), F.max("lag_ms_max").alias("lag_ms_max")
    )
    return listed(found.orderBy(F.desc("lag_ms_max"), "schedule").limit(TOP))


def listed(rows: DataFrame) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.asDict().items()} for row in rows.collect()]


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")  # Spark returns it in this process's time zone
    return value
