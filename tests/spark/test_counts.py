"""Every layer of a lake counts what the queue itself counts: by event, queue and state, and how long things took."""

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stoker.client.sync import Client
from stoker.spark.lake import reading, running
from stoker.spark.lake.layout import Lake
from tests.spark.life import counters, lived, opened, told

EVENTS_OF = {"retried": "retrying"}
"""Where the queue's own word is another."""
COUNTED = ("pushed", "started", "completed", "failed", "cancelled", "expired", "retried", "timed_out", "stalled")
RANK_ERROR = 0.01
"""Of a sketch with k = 400: 0.7 % in 99 of 100 cases, so 1 % in far more than anybody will ever run."""


@pytest.fixture(scope="module")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Lake]]:
    """A queue that has lived for days, and a lake that took it in, in several batches."""
    place = tmp_path_factory.mktemp("past")
    lived(place / "queue", ("default", "other"))
    with opened(place / "queue") as queue:
        running.run(spark, str(place / "lake"), {"url": f"sqlite:///{place}/queue", "maxRecordsPerTrigger": "2000"})
        yield queue, Lake(spark, str(place / "lake"))


def rows_of(frame: DataFrame | None) -> DataFrame:
    assert frame is not None
    return frame


def counts_by(frame: DataFrame, *columns: str) -> Counter[tuple[str, ...]]:
    return Counter({tuple(row[:-1]): row[-1] for row in frame.groupBy(*columns).count().collect()})


def test_bronze_has_the_events_that_the_queue_tells(past: tuple[Client, Lake]):
    queue, lake = past
    assert counts_by(rows_of(lake.read("bronze")), "queue", "event") == told(queue)


def test_silver_and_gold_add_up_to_the_queues_own_counters(past: tuple[Client, Lake]):
    queue, lake = past
    own = {name: {word: counted[word] for word in COUNTED} for name, counted in counters(queue).items()}
    assert all(sum(counted[word] for counted in own.values()) for word in COUNTED), "something has not happened at all"
    for grain in ("minute", "day"):
        sums = [F.sum(EVENTS_OF.get(word, word)).alias(word) for word in COUNTED]
        found = rows_of(reading.summary(lake, grain)).groupBy("queue").agg(*sums).collect()
        assert {row["queue"]: {word: row[word] for word in COUNTED} for row in found} == own
    ended = counts_by(rows_of(lake.read("jobs")), "queue", "state")
    for state in ("completed", "failed", "cancelled", "expired"):
        assert {name: ended[name, state] for name in own} == {name: counted[state] for name, counted in own.items()}
    outcomes = counts_by(rows_of(lake.read("attempts")), "queue", "outcome")
    for word in ("completed", "retried"):
        assert {name: outcomes[name, EVENTS_OF.get(word, word)] for name in own} == {
            name: counted[word] for name, counted in own.items()
        }


def test_every_job_is_where_the_queue_says(past: tuple[Client, Lake]):
    """Live ones by their state; those that ended as they ended last."""
    queue, lake = past
    own = counters(queue)
    still = counts_by(rows_of(reading.stays(lake)).where("until IS NULL"), "queue", "state")
    days = rows_of(reading.summary(lake, "day")).groupBy("queue", "name").agg(F.max_by("backlog", "start").alias("n"))
    backlog = {row["queue"]: row["n"] for row in days.groupBy("queue").agg(F.sum("n").alias("n")).collect()}
    for name, counted in own.items():
        assert still[name, "active"] == counted["now_active"]
        assert still[name, "delayed"] == counted["now_delayed"]
        assert still[name, "waiting"] == counted["now_waiting"] + counted["now_blocked"]
        assert backlog[name] == sum(counted[f"now_{state}"] for state in ("waiting", "delayed", "blocked", "active"))
    failed = counts_by(rows_of(reading.jobs(lake)).where("state = 'failed'"), "queue")
    gone = counts_by(rows_of(lake.read("bronze")).where("event = 'removed' AND reason = 'purged'"), "queue")
    assert {name: failed[name,] - gone[name,] for name in own} == {n: c["now_failed"] for n, c in own.items()}


def test_gold_took_as_long_as_the_queue_says(past: tuple[Client, Lake]):
    queue, lake = past
    attempts = rows_of(lake.read("attempts")).where("outcome = 'completed'")
    found = attempts.groupBy("queue").agg(F.sum("run_ms"), F.sum("wait_ms")).collect()
    own = {name: (counted["run_ms_sum"], counted["wait_ms_sum"]) for name, counted in counters(queue).items()}
    assert {row[0]: (row[1], row[2]) for row in found} == own


def test_quantiles_of_gold_are_within_the_error_of_the_sketch(past: tuple[Client, Lake]):
    _, lake, grain = *past, "day"
    attempts = rows_of(lake.read("attempts")).where("outcome IN ('completed', 'retrying', 'failed')")
    exact: dict[tuple[object, ...], list[int]] = {}
    for row in attempts.withColumn("start", F.date_trunc(grain, "time")).collect():
        exact.setdefault((row["queue"], row["name"], row["start"]), []).append(row["run_ms"])
    assert exact
    for row in rows_of(reading.summary(lake, grain)).collect():
        values = sorted(exact.get((row["queue"], row["name"], row["start"]), []))
        for word, share in reading.QUANTILES.items():
            assert fits(row[f"run_ms_{word}"], share, values), f"{word} of {row['queue']} {row['start']}"


def fits(told: int | None, share: float, values: list[int]) -> bool:
    """Whether a value has this rank among the others, give or take the sketch's error."""
    if told is None or not values:
        return told is None and not values
    below, upto = sum(value < told for value in values), sum(value <= told for value in values)
    allowed = RANK_ERROR * len(values) + 1
    return told in values and below - allowed <= share * len(values) <= upto + allowed
