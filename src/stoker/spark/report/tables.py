"""The tables of a report, each from a few columns of gold."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stoker.model.event_table import FAILS_DELIVERY, in_order
from stoker.spark.lake import reading
from stoker.spark.lake.layout import Lake
from stoker.spark.report.rows import TOP, listed
from stoker.spark.report.scope import ReportScope

SHOWN = ("p50", "p95", "p99")
"""The quantiles of tables."""


def quantiles(name: str) -> dict[str, Any]:
    return {f"{name}_{word}": reading.quantile(name, reading.QUANTILES[word]) for word in SHOWN}


def queues(points: DataFrame) -> list[dict[str, Any]]:
    """Latency by queue, the slowest first. `intended_ms` is the time in which its jobs were not meant to start."""
    shown = ("ready_ms", "latency_ms", "run_ms")
    found = reading.merged(points, "queue", measured=shown)
    for name in shown:
        found = found.withColumns(quantiles(name)).drop(f"{name}_sketch")
    kept = ["queue", "pushed", "completed", "failed", *[f"{name}_{word}" for name in shown for word in SHOWN]]
    intended = F.greatest(F.col("wait_ms_sum") - F.col("ready_ms_sum"), F.lit(0)).alias("intended_ms")
    order = (F.desc_nulls_last("latency_ms_p99"), "queue")
    return listed(found.select(*kept, intended).orderBy(*order).limit(TOP))


def kinds(points: DataFrame) -> list[dict[str, Any]]:
    """Kinds of jobs, the slowest first."""
    found = points.groupBy("queue", "name").agg(
        F.sum("completed").alias("completed"),
        F.sum("failed").alias("failed"),
        F.sum("retrying").alias("retrying"),
        F.sum("run_ms_sum").alias("run_ms"),
        F.kll_merge_agg_bigint("run_ms_sketch").alias("run_ms_sketch"),
        F.max("payload_bytes_max").alias("payload_bytes_max"),
    )
    found = found.withColumns(quantiles("run_ms")).drop("run_ms_sketch")
    return listed(found.orderBy(F.desc_nulls_last("run_ms_p95"), "queue", "name").limit(TOP))


def payloads(points: DataFrame) -> list[dict[str, Any]]:
    """Kinds of jobs by their largest payload."""
    found = points.groupBy("queue", "name").agg(
        F.sum("pushed").alias("pushed"),
        F.sum("payload_bytes").alias("payload_bytes"),
        F.max("payload_bytes_max").alias("payload_bytes_max"),
        F.sum("result_bytes").alias("result_bytes"),
    )
    largest = found.where("payload_bytes_max > 0").orderBy(F.desc("payload_bytes_max"), "queue", "name")
    return listed(largest.limit(TOP))


def tenants(points: DataFrame, settings: reading.ReportSettings) -> list[dict[str, Any]]:
    found = points.groupBy("tenant").agg(
        F.sum("pushed").alias("pushed"),
        F.sum("completed").alias("completed"),
        F.sum("failed").alias("failed"),
        F.sum("run_ms_sum").alias("run_ms"),
        F.sum("payload_bytes").alias("payload_bytes"),
    )
    cost = cost_of(F.col("pushed"), F.col("run_ms"), F.col("payload_bytes"), settings)
    return listed(found.withColumn("cost", cost).orderBy(F.desc("cost"), F.desc("run_ms"), "tenant").limit(TOP))


def cost_of(pushed: Any, run_ms: Any, payload_bytes: Any, settings: reading.ReportSettings) -> Any:
    """The cost of so many jobs, of numbers or of columns."""
    run = run_ms / 3_600_000 * settings.price_run_hour
    return pushed * settings.price_job + run + payload_bytes / 1e9 * settings.price_payload_gb


def failures(lake: Lake, scope: ReportScope) -> list[dict[str, Any]]:
    """Why deliveries failed, by fingerprint."""
    rows = scope.read(lake, "failures")
    if rows is None:
        return []
    failed = rows.where(F.col("event").isin(*in_order(FAILS_DELIVERY)))
    found = failed.groupBy(F.coalesce("fingerprint", "reason").alias("fingerprint")).agg(
        F.array_sort(F.collect_set("reason")).alias("reasons"),
        F.sum("count").alias("count"),
        F.max("example").alias("example"),
        F.max_by("example_job", "minute").alias("example_job"),
        F.array_sort(F.collect_set("queue")).alias("queues"),
    )
    return listed(found.orderBy(F.desc("count"), "fingerprint").limit(TOP))


def workers(lake: Lake, scope: ReportScope) -> list[dict[str, Any]]:
    """How busy workers were, from the start of their first delivery to the end of their last.

    Gold does not know the queues of a worker; for one queue the deliveries themselves are asked.
    """
    if scope.queue is None:
        rows, busy, count, start, end = (
            scope.read(lake, "workers"),
            "busy_ms",
            F.sum("attempts"),
            "started_min",
            "ended_max",
        )
    else:
        rows, busy, count, start, end = scope.read(lake, "attempts"), "run_ms", F.count("*"), "started_at", "time"
    if rows is None:
        return []
    found = (
        rows.where("worker IS NOT NULL")
        .groupBy("worker")
        .agg(
            F.sum(busy).alias("busy_ms"),
            count.alias("attempts"),
            (F.unix_millis(F.max(end)) - F.unix_millis(F.min(start))).alias("span_ms"),
        )
    )
    return listed(found.orderBy(F.desc("busy_ms"), "worker").limit(TOP))


def schedules(lake: Lake, scope: ReportScope) -> list[dict[str, Any]]:
    rows = scope.read(lake, "schedules")
    if rows is None:
        return []
    found = rows.groupBy("schedule").agg(
        F.sum("runs").alias("runs"), F.sum("lag_ms_sum").alias("lag_ms_sum"), F.max("lag_ms_max").alias("lag_ms_max")
    )
    return listed(found.orderBy(F.desc("lag_ms_max"), "schedule").limit(TOP))
