"""The numbers of a report, as plain values: what `--json` prints and what the charts and the page are drawn from."""

from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stoker.spark.lake import reading
from stoker.spark.lake.layout import Lake

TOP = 12
"""Lines in a table."""
POINTS = 240
"""On the axis of time: beyond, the next coarser grain is taken."""


SHORT_MINUTES = 5
"""Of a history that is shown by seconds."""


def numbers(lake: Lake, settings: reading.Settings | None = None) -> dict[str, Any]:
    """Everything in a report. An empty lake gives a report that says so."""
    settings = settings or reading.Settings()
    minutes = reading.summary(lake, "minute", settings)
    if minutes is None or minutes.isEmpty():
        return {"headline": {"events": 0}, "series": [], "grain": "minute"}
    grain = grain_for(minutes)
    rows = reading.seconds(lake, settings) if grain == "second" else reading.summary(lake, grain, settings)
    assert rows is not None
    rows = rows.cache()
    try:
        return {
            "grain": grain,
            "headline": headline(lake, rows, settings),
            "series": series(rows),
            "kinds": kinds(rows),
            "tenants": tenants(rows),
            "failures": failures(lake),
            "dead": dead(lake),
            "workers": workers(lake),
            "schedules": schedules(lake),
        }
    finally:
        rows.unpersist()


def grain_for(minutes: DataFrame) -> str:
    span = minutes.agg(F.min("start").alias("first"), F.max("start").alias("last")).first()
    assert span is not None
    length = (span["last"] - span["first"]).total_seconds() / 60
    if length <= SHORT_MINUTES:
        return "second"
    return "minute" if length <= POINTS else "hour" if length / 60 <= POINTS else "day"


def headline(lake: Lake, rows: DataFrame, settings: reading.Settings) -> dict[str, Any]:
    merged = [F.kll_merge_agg_bigint(f"{name}_sketch").alias(f"{name}_sketch") for name in reading.MEASURED]
    counted = ("pushed", "started", "completed", "failed", "retrying", "cancelled", "expired", "late")
    sums = [F.sum(name).alias(name) for name in counted]
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
    told["backlog"] = told["pushed"] - ended - told["cancelled"] - told["expired"]
    told["in_time"] = 1 - told["late"] / told["completed"] if told["completed"] else None
    told["objective_ms"], told["objective_share"] = settings.objective_ms, settings.objective_share
    told["drained_in_s"] = forecast(rows, told["backlog"])
    return told


def forecast(rows: DataFrame, backlog: int) -> float | None:
    """Seconds until the backlog is gone, if things go on as in the last quarter of the time; None if it grows."""
    buckets = rows.groupBy("start").agg(
        F.sum("pushed").alias("pushed"), F.sum("ended").alias("ended"), F.count("*").alias("n")
    )
    points = buckets.orderBy("start").collect()
    latest = points[-max(1, len(points) // 4) :]
    seconds = max(60.0, (latest[-1]["start"] - latest[0]["start"]).total_seconds() + 60)
    rate = (sum(point["ended"] for point in latest) - sum(point["pushed"] for point in latest)) / seconds
    return backlog / rate if backlog > 0 and rate > 0 else None


def series(rows: DataFrame) -> list[dict[str, Any]]:
    """By time, over everything."""
    names = ("pushed", "started", "completed", "failed", "retrying", "cancelled", "expired")
    merged = [F.kll_merge_agg_bigint(f"{name}_sketch").alias(f"{name}_sketch") for name in reading.MEASURED]
    found = rows.groupBy("start").agg(
        *[F.sum(name).alias(name) for name in names], F.sum("ended").alias("ended"), *merged
    )
    for name in ("wait_ms", "total_ms"):
        found = found.withColumns(
            {f"{name}_{word}": reading.quantile(name, reading.QUANTILES[word]) for word in ("p50", "p90", "p99")}
        )
    points = found.drop(*[f"{name}_sketch" for name in reading.MEASURED]).orderBy("start").collect()
    backlog = 0
    told = []
    for point in points:
        backlog += point["pushed"] - point["ended"]
        told.append({**{name: plain(value) for name, value in point.asDict().items()}, "backlog": backlog})
    return told


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
    failed = rows.where(F.col("event").isin("retrying", "failed"))
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
    """How busy workers were, between the first and the last minute in which one was heard of."""
    rows = lake.read("workers")
    if rows is None:
        return []
    found = rows.groupBy("worker").agg(
        F.sum("busy_ms").alias("busy_ms"),
        F.sum("attempts").alias("attempts"),
        ((F.max("minute").cast("long") - F.min("minute").cast("long") + 60) * 1000).alias("span_ms"),
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
        return value.isoformat() + "Z"
    return value
