"""Every layer of a lake counts what the queue itself counts: by event, queue and state, and how long things took."""

import re
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stoker.spark.lake import reading, running
from stoker.spark.lake.gold import SKETCH_K
from tests.spark import life
from tests.spark.conftest import Past
from tests.spark.life import counters

PAGE = Path(__file__).parent.parent.parent / "docs" / "pipeline" / "tables.md"
EVENTS_OF = {"retried": "retrying"}
"""Where the queue's own word is another."""
COUNTED = ("pushed", "started", "completed", "failed", "cancelled", "expired", "retried", "timed_out", "stalled")
RANK_ERROR = 0.02
"""A sketch with k = 400 is off by less than 0.7 % in 99 of 100 cases, which is 2.6 of its deviations; this is seven."""


def rows_of(frame: DataFrame | None) -> DataFrame:
    assert frame is not None
    return frame


def counts_by(frame: DataFrame, *columns: str) -> Counter[tuple[str, ...]]:
    return Counter({tuple(row[:-1]): row[-1] for row in frame.groupBy(*columns).count().collect()})


def test_bronze_has_the_events_that_the_queue_tells(past: Past):
    queue, lake = past.queue, past.lake
    assert counts_by(rows_of(lake.read("bronze")), "tenant", "queue", "event") == life.told(queue)


def test_silver_and_gold_add_up_to_the_queues_own_counters(past: Past):
    queue, lake = past.queue, past.lake
    own = {name: {word: counted[word] for word in COUNTED} for name, counted in counters(queue).items()}
    assert all(sum(counted[word] for counted in own.values()) for word in COUNTED), "something has not happened at all"
    for grain in ("minute", "day"):
        sums = [F.sum(EVENTS_OF.get(word, word)).alias(word) for word in COUNTED]
        found = rows_of(reading.summary(lake, grain)).groupBy("tenant", "queue").agg(*sums).collect()
        assert {(row["tenant"], row["queue"]): {word: row[word] for word in COUNTED} for row in found} == own
    ended = counts_by(rows_of(lake.read("jobs")), "tenant", "queue", "state")
    for state in ("completed", "failed", "cancelled", "expired"):
        assert {name: ended[*name, state] for name in own} == {name: counted[state] for name, counted in own.items()}
    outcomes = counts_by(rows_of(lake.read("attempts")), "tenant", "queue", "outcome")
    for word in ("completed", "retried"):
        assert {name: outcomes[*name, EVENTS_OF.get(word, word)] for name in own} == {
            name: counted[word] for name, counted in own.items()
        }


def test_every_job_is_where_the_queue_says(past: Past):
    """Live ones by their state; those that ended as they ended last."""
    queue, lake = past.queue, past.lake
    own = counters(queue)
    still = counts_by(rows_of(reading.stays(lake)).where("until IS NULL"), "tenant", "queue", "state")
    days = rows_of(reading.summary(lake, "day")).groupBy("tenant", "queue", "name")
    left = days.agg(F.max_by("backlog", "start").alias("n")).groupBy("tenant", "queue").agg(F.sum("n"))
    backlog = {tuple(row[:2]): row[2] for row in left.collect()}
    for name, counted in own.items():
        assert still[*name, "active"] == counted["now_active"]
        assert still[*name, "delayed"] == counted["now_delayed"]
        assert still[*name, "waiting"] == counted["now_waiting"] + counted["now_blocked"]
        assert backlog[name] == sum(counted[f"now_{state}"] for state in ("waiting", "delayed", "blocked", "active"))
    failed = counts_by(rows_of(reading.jobs(lake)).where("state = 'failed'"), "tenant", "queue")
    gone = counts_by(rows_of(lake.read("bronze")).where("event = 'removed' AND reason = 'purged'"), "tenant", "queue")
    assert {name: failed[name] - gone[name] for name in own} == {n: c["now_failed"] for n, c in own.items()}


def test_gold_took_as_long_as_the_queue_says(past: Past):
    queue, lake = past.queue, past.lake
    attempts = rows_of(lake.read("attempts")).where("outcome = 'completed'")
    found = attempts.groupBy("tenant", "queue").agg(F.sum("run_ms"), F.sum("wait_ms")).collect()
    own = {name: (counted["run_ms_sum"], counted["wait_ms_sum"]) for name, counted in counters(queue).items()}
    assert {tuple(row[:2]): tuple(row[2:]) for row in found} == own


def test_quantiles_of_gold_are_within_the_error_of_the_sketch(past: Past):
    lake, grain = past.lake, "day"
    attempts = rows_of(lake.read("attempts")).where("outcome IN ('completed', 'retrying', 'failed')")
    exact: dict[tuple[object, ...], list[int]] = {}
    for row in attempts.withColumn("start", F.date_trunc(grain, "time")).collect():
        exact.setdefault((row["tenant"], row["queue"], row["name"], row["start"]), []).append(row["run_ms"])
    assert exact
    for row in rows_of(reading.summary(lake, grain)).collect():
        values = sorted(exact.get((row["tenant"], row["queue"], row["name"], row["start"]), []))
        for word, share in reading.QUANTILES.items():
            assert fits(row[f"run_ms_{word}"], share, values), f"{word} of {row['queue']} {row['start']}"
    everything = sorted(value for values in exact.values() for value in values)
    assert len(everything) > 2 * SKETCH_K, "a sketch that holds them all has no error"
    merged = rows_of(lake.read("minutes")).agg(F.kll_merge_agg_bigint("run_ms_sketch").alias("run_ms_sketch"))
    whole = merged.select(*[reading.quantile("run_ms", share) for share in reading.QUANTILES.values()]).first()
    assert whole is not None
    for told, share in zip(whole, reading.QUANTILES.values(), strict=True):
        assert fits(told, share, everything), f"{told} is no quantile {share} of everything"


def fits(told: int | None, share: float, values: list[int]) -> bool:
    """Whether a value has this rank among the others, give or take the sketch's error."""
    if told is None or not values:
        return told is None and not values
    below, upto = sum(value < told for value in values), sum(value <= told for value in values)
    allowed = RANK_ERROR * len(values) + 1
    return told in values and below - allowed <= share * len(values) <= upto + allowed


def test_every_column_that_a_lake_has_is_told(past: Past):
    lake, page = past.lake, PAGE.read_text()
    made = {"summary": reading.summary(lake), "stays": reading.stays(lake), "states": reading.states(lake)}
    for name, frame in (made | {layer: lake.read(layer) for layer in running.STEPS}).items():
        missing = set(rows_of(frame).columns) - set(re.findall(r"`(\w+)`", page))
        assert not missing, f"{PAGE.name} says nothing of {missing} of {name}"
