"""Turns events into attempts and jobs.

Events that end a delivery or a job carry everything about it, so a row needs no join, and a job that lives for days
costs no memory anywhere.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stoker.model.event_table import ENDS_DELIVERY, ENDS_JOB, in_order

ENDS_OF_ATTEMPT = in_order(ENDS_DELIVERY)
ENDS_OF_JOB = in_order(ENDS_JOB)

PATTERNS = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<uuid>"),
    (r"\b0x[0-9a-fA-F]+\b", "<hex>"),
    (r"\b[0-9a-fA-F]{16,}\b", "<hex>"),
    (r"'[^']*'", "'…'"),
    (r'"[^"]*"', '"…"'),
    (r"\d+", "#"),
    (r"\s+", " "),
)
"""Parts in which otherwise equal errors differ, and their placeholders."""
FINGERPRINT_CHARS = 200


POSITION = ("time", "shard", "sequence", "index", "tenant", "queue", "name", "job")
TIMES = ("pushed_at", "started_at", "finished_at", "wait_ms", "run_ms", "total_ms")
SIZES_AND_LINKS = ("payload_bytes", "result_bytes", "tags", "parent_id", "workflow", "schedule")


def attempts(events: DataFrame) -> DataFrame:
    """One row for each delivery that ended."""
    ended = events.where(F.col("event").isin(*ENDS_OF_ATTEMPT) & F.col("started_at").isNotNull())
    return ended.select(*POSITION, "attempt", F.col("event").alias("outcome"), "worker", *what_it_tells())


def jobs(events: DataFrame) -> DataFrame:
    """One row each time a job ends. A revived job ends again; its last row counts (`reading.jobs`)."""
    ended = events.where(F.col("event").isin(*ENDS_OF_JOB))
    how = (F.col("event").alias("state"), F.col("attempt").alias("attempts"))
    return ended.select(*POSITION, *how, *what_it_tells())


def what_it_tells() -> list[str | Column]:
    """The columns that both tables have from here on."""
    why: list[str | Column] = ["reason", "error", "error_class", fingerprint().alias("fingerprint"), "priority"]
    return [*why, *TIMES, *SIZES_AND_LINKS]


def fingerprint() -> Column:
    """The same text for errors that differ only in numbers, ids and quoted values; null without an error."""
    text = F.coalesce(F.col("error"), F.lit(""))
    for pattern, stands in PATTERNS:
        text = F.regexp_replace(text, pattern, stands)
    whole = F.concat_ws(": ", F.col("error_class"), F.when(text != "", F.trim(text)))
    return F.when(
        F.col("error").isNotNull() | F.col("error_class").isNotNull(), F.substring(whole, 1, FINGERPRINT_CHARS)
    )
