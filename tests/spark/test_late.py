"""Events that come late, in disorder, over midnight, or by a clock that jumps: each counts where it belongs.

The rules are those of `docs/pipeline/tables.md`: no watermark, nothing is dropped, the log's order is the order.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

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
NOON, AHEAD = MIDNIGHT + timedelta(hours=12), MIDNIGHT + timedelta(days=365)
JUMPS = [
    event(1, 1, "pushed", NOON, pushed_at=NOON),
    event(2, 1, "started", AHEAD, pushed_at=NOON, started_at=AHEAD, attempt=1),
    event(3, 1, "failed", AHEAD, pushed_at=NOON, started_at=AHEAD, finished_at=AHEAD, attempt=1, reason="failed"),
    event(4, 1, "revived", NOON + 1 * MS),
    event(5, 1, "started", NOON + 2 * MS, pushed_at=NOON, started_at=NOON + 2 * MS, attempt=2),
    event(6, 1, "completed", NOON + 9 * MS, pushed_at=NOON, started_at=NOON + 2 * MS, finished_at=NOON + 9 * MS),
]
"""The clock jumps ahead by a year and back."""


def of(tenant: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each | {"tenant": tenant} for each in events]


BATCHES = (
    [*of("orderly", HISTORY), *of("late", LATEST_FIRST[:7]), *of("jumps", JUMPS[::-1])],
    of("late", LATEST_FIRST[7:]),
)
"""One lake of three tenants, two of which have the same history: it comes in order to the one, late to the other."""


def frame(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    names = [column.name for column in EVENTS]
    return spark.createDataFrame([tuple(each[name] for name in names) for each in events], spark_schema(EVENTS))


Told = dict[str, dict[str, list[Row]]]
"""By table and tenant."""


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    lake = Lake(spark, str(tmp_path_factory.mktemp("late") / "lake"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "STEPS", {layer: running.STEPS[layer] for layer in ("minutes", "jobs")})  # those told of
        for number, events in enumerate(BATCHES):
            running.fill(lake, frame(spark, events), lake.batch(number), 1)
    tables = {grain: reading.summary(lake, grain) for grain in ("minute", "day")}
    found: Told = {}
    for name, table in (tables | {"jobs": reading.jobs(lake), "stays": reading.stays(lake)}).items():
        assert table is not None
        found[name] = {"orderly": [], "late": [], "jumps": []}
        for row in table.collect():
            found[name][row["tenant"]].append(row)
    return found


def columns(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_the_order_in_which_events_come_changes_no_number(told: Told):
    numbers = ("start", "pushed", "started", "completed", "backlog", "total_ms_sum", "total_ms_p50", "run_ms_p999")
    compared = {
        "minute": numbers,
        "day": numbers,
        "jobs": ("job", "state", "wait_ms", "run_ms", "total_ms"),
        "stays": ("job", "state", "ms"),
    }
    for table, names in compared.items():
        assert columns(told[table]["late"], *names) == columns(told[table]["orderly"], *names), table


def test_what_spans_days_counts_on_each_of_them(told: Told):
    days = columns(told["day"]["late"], "start", "pushed", "completed", "backlog")
    assert [(start.astimezone(UTC).day, *counts) for start, *counts in days] == [
        (1, 2, 1, 1),  # the job of midnight is pushed on the first, and completes on the second
        (2, 2, 2, 1),
        (5, 0, 0, 1),  # a start of three days later
        (7, 0, 1, 0),
    ]
    day = 86_400_000
    jobs = columns(told["jobs"]["late"], "job", "state", "wait_ms", "run_ms", "total_ms")
    assert (2, "completed", 3 * day, 2 * day, 5 * day) in jobs
    stays = columns(told["stays"]["late"], "job", "state", "ms")
    assert {(2, "waiting", 3 * day), (2, "active", 2 * day)} <= set(stays)


def test_the_log_says_what_came_last_and_not_the_clock(told: Told):
    """A job counts by its last record, and no time is less than none."""
    assert columns(told["jobs"]["jumps"], "job", "state", "run_ms") == [(1, "completed", 7)]
    assert [row["ms"] for row in told["stays"]["jumps"] if row["ms"] < 0] == []
    days = columns(told["day"]["jumps"], "start", "name", "backlog")
    assert sum({name: backlog for _, name, backlog in days}.values()) == 0
