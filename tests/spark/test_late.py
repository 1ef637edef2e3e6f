"""Events that come late, in disorder, over midnight, or by a clock that jumps: each counts where it belongs.

The rules are those of `docs/pipeline/tables.md`: no watermark, nothing is dropped, the log's order is the order.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stoker.spark.lake import reading, running
from stoker.spark.lake.layout import Lake
from stoker.spark.tables import EVENTS, spark_schema

MIDNIGHT = datetime(2026, 11, 2, tzinfo=UTC)
MS = timedelta(milliseconds=1)


def event(sequence: int, job: int, kind: str, at: datetime, **more: Any) -> dict[str, Any]:
    """What a log tells; events that end something bring along when it began."""
    told: dict[str, Any] = dict.fromkeys(column.name for column in EVENTS)
    told |= {"shard": 0, "sequence": sequence, "index": 0, "tenant": "default", "queue": "mail", "name": "send"}
    told |= {"time": at, "job": job, "event": kind, "tags": [], "payload_bytes": 10, "result_bytes": 0} | more
    if told["started_at"] and told["pushed_at"]:
        told["wait_ms"] = (told["started_at"] - told["pushed_at"]) // MS
    if told["finished_at"]:
        told["run_ms"] = (at - told["started_at"]) // MS if told["started_at"] else None
        told["total_ms"] = (at - told["pushed_at"]) // MS
    return told


def delivered(sequence: int, job: int, pushed: datetime, started: datetime, ended: datetime) -> list[dict[str, Any]]:
    """A job that is pushed, started and completed."""
    about = {"pushed_at": pushed, "attempt": 1, "worker": "w"}
    return [
        event(sequence, job, "pushed", pushed, pushed_at=pushed),
        event(sequence + 1, job, "started", started, started_at=started, **about),
        event(sequence + 2, job, "completed", ended, started_at=started, finished_at=ended, **about),
    ]


HISTORY = [
    *delivered(1, 1, MIDNIGHT - 5_000 * MS, MIDNIGHT - 100 * MS, MIDNIGHT + 200 * MS),  # over midnight
    *delivered(10, 2, MIDNIGHT, MIDNIGHT + timedelta(days=3), MIDNIGHT + timedelta(days=5)),  # for days
    *delivered(20, 3, MIDNIGHT, MIDNIGHT + 10 * MS, MIDNIGHT + 20 * MS),
    *delivered(30, 4, MIDNIGHT - timedelta(days=1), MIDNIGHT - timedelta(hours=2), MIDNIGHT - timedelta(hours=1)),
]
LATEST_FIRST = sorted(HISTORY, key=lambda each: each["time"], reverse=True)


def frame(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    names = [column.name for column in EVENTS]
    return spark.createDataFrame([tuple(each[name] for name in names) for each in events], spark_schema(EVENTS))


def filled(spark: SparkSession, path: Path, *batches: list[dict[str, Any]]) -> Lake:
    lake = Lake(spark, str(path))
    for number, events in enumerate(batches):
        running.fill(lake, frame(spark, events), lake.batch(number), 1)
    return lake


def told(frame: DataFrame | None, *columns: str) -> list[tuple[Any, ...]]:
    assert frame is not None
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_the_order_in_which_events_come_changes_no_number(spark: SparkSession, tmp_path: Path):
    orderly = filled(spark, tmp_path / "orderly", HISTORY)
    late = filled(spark, tmp_path / "late", LATEST_FIRST[:7], LATEST_FIRST[7:])
    columns = ("start", "pushed", "started", "completed", "backlog", "total_ms_sum", "total_ms_p50", "run_ms_p999")
    for grain in ("minute", "day"):
        assert told(reading.summary(late, grain), *columns) == told(reading.summary(orderly, grain), *columns)
    jobs = told(reading.jobs(late), "job", "state", "wait_ms", "run_ms", "total_ms")
    assert jobs == told(reading.jobs(orderly), "job", "state", "wait_ms", "run_ms", "total_ms")
    assert told(reading.stays(late), "job", "state", "ms") == told(reading.stays(orderly), "job", "state", "ms")

    days = told(reading.summary(late, "day"), "start", "pushed", "completed", "backlog")
    assert [(start.astimezone(UTC).day, *counts) for start, *counts in days] == [
        (1, 2, 1, 1),  # the job of midnight is pushed on the first, and completes on the second
        (2, 2, 2, 1),
        (5, 0, 0, 1),  # a start of three days later
        (7, 0, 1, 0),
    ]
    day = 86_400_000
    assert (2, "completed", 3 * day, 2 * day, 5 * day) in jobs
    assert {(2, "waiting", 3 * day), (2, "active", 2 * day)} <= set(told(reading.stays(late), "job", "state", "ms"))


def test_the_log_says_what_came_last_and_not_the_clock(spark: SparkSession, tmp_path: Path):
    """Clocks jump ahead by a year and back: a job counts by its last record, and no time is less than none."""
    noon, ahead = MIDNIGHT + timedelta(hours=12), MIDNIGHT + timedelta(days=365)
    events = [
        event(1, 1, "pushed", noon, pushed_at=noon),
        event(2, 1, "started", ahead, pushed_at=noon, started_at=ahead, attempt=1),
        event(3, 1, "failed", ahead, pushed_at=noon, started_at=ahead, finished_at=ahead, attempt=1, reason="failed"),
        event(4, 1, "revived", noon + 1 * MS),
        event(5, 1, "started", noon + 2 * MS, pushed_at=noon, started_at=noon + 2 * MS, attempt=2),
        event(6, 1, "completed", noon + 9 * MS, pushed_at=noon, started_at=noon + 2 * MS, finished_at=noon + 9 * MS),
    ]
    lake = filled(spark, tmp_path / "lake", events[::-1])
    assert told(reading.jobs(lake), "job", "state", "run_ms") == [(1, "completed", 7)]
    assert [ms for _, ms in told(reading.stays(lake), "state", "ms") if ms < 0] == []
    days = told(reading.summary(lake, "day"), "start", "name", "backlog")
    assert sum({name: backlog for _, name, backlog in days}.values()) == 0
