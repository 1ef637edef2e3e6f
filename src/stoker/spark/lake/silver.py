"""Turns events into attempts and jobs.

Events that end a delivery or a job carry everything about it, so a row needs no join, and a job that lives for days
costs no memory anywhere.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stoker.model.event_table import ENDS_DELIVERY, ENDS_JOB, FREES_DEAD, in_order
from stoker.model.fingerprints import FINGERPRINT_CHARS, PATTERNS

ENDS_OF_ATTEMPT = in_order(ENDS_DELIVERY)
ENDS_OF_JOB = in_order(ENDS_JOB)
LEAVES_DEAD = in_order(FREES_DEAD)

POSITION = ("time", "shard", "sequence", "index", "tenant", "queue", "name", "job")
TIMES = ("pushed_at", "started_at", "finished_at", "wait_ms", "run_ms", "total_ms")
SINCE_DUE = ("ready_at", "ready_ms", "latency_ms")
SIZES_AND_LINKS = ("payload_bytes", "result_bytes", "tags", "parent_id", "workflow", "schedule")


def attempts(events: DataFrame) -> DataFrame:
    """One row for each delivery that ended."""
    ended = events.where(F.col("event").isin(*ENDS_OF_ATTEMPT) & F.col("started_at").isNotNull())
    return ended.select(*POSITION, "attempt", F.col("event").alias("outcome"), "worker", *what_it_tells())


def jobs(events: DataFrame) -> DataFrame:
    """One row each time a job ends, and each time a dead letter leaves: it is revived, evicted or removed.

    The row of a queue that was obliterated has no job: all dead letters of the queue in that shard left.
    """
    is_end = F.col("event").isin(*ENDS_OF_JOB)
    was_retained = (F.col("event") == "removed") & F.col("reason").isNull()  # a job that was no dead letter
    leaves = F.col("event").isin(*LEAVES_DEAD) & ~was_retained
    how = (F.col("event").alias("state"), F.col("attempt").alias("attempts"))
    return events.where(is_end | leaves).select(*POSITION, *how, *what_it_tells(), "removed")


def what_it_tells() -> list[str | Column]:
    """The columns that both tables have from here on."""
    why: list[str | Column] = ["reason", "error", "error_class", fingerprint().alias("fingerprint"), "priority"]
    return [*why, *TIMES, *SIZES_AND_LINKS, *SINCE_DUE]


def fingerprint() -> Column:
    """`model.fingerprints.fingerprint_of` as a column; null without an error."""
    error, error_class = (F.coalesce(F.col(name), F.lit("")) for name in ("error", "error_class"))
    text = error
    for pattern, stands in PATTERNS:
        text = F.regexp_replace(text, pattern, stands)
    told = F.when(error != "", F.trim(text))
    whole = F.concat_ws(": ", F.when(error_class != "", error_class), told)
    return F.when((error != "") | (error_class != ""), F.substring(whole, 1, FINGERPRINT_CHARS))
