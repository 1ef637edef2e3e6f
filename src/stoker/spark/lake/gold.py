"""Turns events into numbers per minute that add up: counts and sums, and sketches for what cannot be added.

A batch of events becomes a delta of each table; readers add up the deltas by minute, hour or day (`reading.py`). Times
are those of the events, so late events fall into the minute in which they happened.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stoker.model.event_table import ENDS_DELIVERY, ENDS_JOB, EXPLAINS, in_order, with_outcome
from stoker.spark.lake.silver import fingerprint

SKETCH_K = 400
"""Size of the KLL sketches: a rank error of about 0.7 % at 99 % confidence, some kilobytes each."""

KEYS = ("tenant", "queue", "name", "minute")
ENDING = in_order(ENDS_JOB)
COUNTED = ("pushed", "started", *ENDING, *in_order(ENDS_DELIVERY - ENDS_JOB), "revived")
"""In the column order of existing tables."""
RAN = in_order(with_outcome("done", "failed"))
"""Events of a job that a worker ran to its end."""
FAILING = in_order(with_outcome("failed", "stopped"))
CHANGING = in_order(EXPLAINS)


def minute() -> Column:
    return F.date_trunc("minute", "time").alias("minute")


def count_of(event: str) -> Column:
    return F.count_if(F.col("event") == event)


def minutes(events: DataFrame, unit: str = "minute") -> DataFrame:
    """Counts for each minute (or `unit`), by tenant, queue and kind of job."""
    is_end = F.col("event").isin(*ENDING)
    is_delivery = F.col("event").isin(*RAN) & F.col("started_at").isNotNull()
    counted = events.where(F.col("event").isin(*COUNTED)).withColumn("minute", F.date_trunc(unit, "time"))
    counts = [count_of(event).alias(event) for event in COUNTED]
    return counted.groupBy(*KEYS).agg(
        *counts,
        F.count_if(is_delivery & (F.col("reason") == "timeout")).alias("timed_out"),
        F.count_if(is_delivery & F.col("reason").isin("stalled", "worker_lost")).alias("stalled"),
        total("wait_ms", F.col("event") == "started"),
        total("run_ms", is_delivery),
        total("total_ms", F.col("event") == "completed"),
        sketch("wait_ms", F.col("event") == "started"),
        sketch("run_ms", is_delivery),
        sketch("total_ms", F.col("event") == "completed"),
        F.coalesce(F.sum(F.when(F.col("event") == "pushed", F.col("payload_bytes"))), F.lit(0)).alias("payload_bytes"),
        F.max(F.when(F.col("event") == "pushed", F.col("payload_bytes"))).alias("payload_bytes_max"),
        F.coalesce(F.sum(F.when(is_end, F.col("result_bytes"))), F.lit(0)).alias("result_bytes"),
        *since_due(),
    )


def since_due() -> list[Column]:
    """Latencies from the moment at which a delivery was due: intended delays, backoffs and stays among the dead letters
    ended before it. Older logs do not know it; for those it is from the push.
    """
    ready_ms, latency_ms = F.coalesce("ready_ms", "wait_ms"), F.coalesce("latency_ms", "total_ms")
    is_start, is_done = F.col("event") == "started", F.col("event") == "completed"
    return [
        total("ready_ms", is_start, ready_ms),
        total("latency_ms", is_done, latency_ms),
        sketch("ready_ms", is_start, ready_ms),
        sketch("latency_ms", is_done, latency_ms),
    ]


def total(name: str, when: Column, value: Column | None = None) -> Column:
    value = F.col(name) if value is None else value
    return F.coalesce(F.sum(F.when(when, value)), F.lit(0)).alias(f"{name}_sum")


def sketch(name: str, when: Column, value: Column | None = None) -> Column:
    value = F.col(name) if value is None else value
    return F.kll_sketch_agg_bigint(F.when(when, value), F.lit(SKETCH_K)).alias(f"{name}_sketch")


def failures(events: DataFrame) -> DataFrame:
    """Why deliveries failed and jobs died, by minute; and what was changed meanwhile: queues, and dead letters that
    had to leave because there were too many.
    """
    failed = events.where(F.col("event").isin(*FAILING, *CHANGING))
    return (
        failed.withColumn("minute", minute())
        .withColumn("fingerprint", fingerprint())
        .groupBy(*KEYS, "event", "reason", "error_class", "fingerprint")
        .agg(
            F.count("*").alias("count"),
            F.max(F.coalesce("error", "message")).alias("example"),
            F.max("job").alias("example_job"),
            F.max("worker").alias("example_worker"),
        )
    )


def workers(events: DataFrame) -> DataFrame:
    """How long workers were busy, by the minute in which deliveries ended."""
    ended = events.where(F.col("worker").isNotNull() & F.col("run_ms").isNotNull())
    return (
        ended.withColumn("minute", minute())
        .groupBy("tenant", "worker", "minute")
        .agg(
            F.sum("run_ms").alias("busy_ms"),
            F.count("*").alias("attempts"),
            F.min("started_at").alias("started_min"),
            F.max("time").alias("ended_max"),
        )
    )


def schedules(events: DataFrame) -> DataFrame:
    """How late the jobs of schedules began: from the slot to the start of the first delivery.

    Older logs have no slots of started jobs; for those it is from the push.
    """
    begun = events.where((F.col("event") == "started") & F.col("schedule").isNotNull() & (F.col("attempt") == 1))
    lag_ms = F.unix_millis("started_at") - F.unix_millis(F.coalesce("slot", "pushed_at"))
    return (
        begun.withColumns({"minute": minute(), "lag_ms": F.greatest(lag_ms, F.lit(0))})
        .groupBy("tenant", "schedule", "queue", "minute")
        .agg(F.count("*").alias("runs"), F.sum("lag_ms").alias("lag_ms_sum"), F.max("lag_ms").alias("lag_ms_max"))
    )
