"""Every layer of a lake counts what the queue itself counts: by event, queue and state, and how long things took."""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, Row
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


class Told(NamedTuple):
    """What a lake tells: each table read once, for all tests here."""

    bronze: list[Row]
    attempts: list[Row]
    ends: list[Row]
    """Of jobs, all of them."""
    jobs: list[Row]
    """As they ended last."""
    dead: list[Row]
    """Those that died and were not revived."""
    stays: list[Row]
    summary: dict[str, list[Row]]
    """By grain."""


@pytest.fixture(scope="module")
def told(past: Past) -> Told:
    lake = past.lake
    attempts = rows_of(lake.read("attempts")).withColumn("day", F.date_trunc("day", "time"))
    return Told(
        rows_of(lake.read("bronze")).select("tenant", "queue", "event", "error").collect(),
        attempts.select("tenant", "queue", "name", "day", "outcome", "run_ms", "wait_ms").collect(),
        rows_of(lake.read("jobs")).select("tenant", "queue", "state").collect(),
        rows_of(reading.jobs(lake)).select("tenant", "queue", "state").collect(),
        rows_of(reading.dead_letters(lake)).select("tenant", "queue", "left").collect(),
        rows_of(reading.stays(lake)).select("tenant", "queue", "state", "until").collect(),
        {grain: rows_of(reading.summary(lake, grain)).collect() for grain in ("minute", "day")},
    )


def counts_by(rows: Iterable[Row], *columns: str) -> Counter[tuple[str, ...]]:
    return Counter(tuple(row[name] for name in columns) for row in rows)


def sums_by_queue(rows: Iterable[Row], *columns: str) -> dict[tuple[str, str], tuple[int, ...]]:
    found: dict[tuple[str, str], tuple[int, ...]] = {}
    for row in rows:
        name = (row["tenant"], row["queue"])
        before = found.get(name, (0,) * len(columns))
        found[name] = tuple(value + row[column] for value, column in zip(before, columns, strict=True))
    return found


def test_bronze_has_the_events_that_the_queue_tells(past: Past, told: Told):
    assert counts_by(told.bronze, "tenant", "queue", "event") == life.told(past.queue)


def test_an_error_after_a_cancel_request_is_in_bronze(told: Told):
    late = {row["event"] for row in told.bronze if row["error"] == life.LATE_ERROR}
    assert late == {"cancelled", "failed"}, "the dead letters of one queue take cancelled jobs"


def test_silver_and_gold_add_up_to_the_queues_own_counters(past: Past, told: Told):
    own = {name: {word: counted[word] for word in COUNTED} for name, counted in counters(past.queue).items()}
    assert all(sum(counted[word] for counted in own.values()) for word in COUNTED), "something has not happened at all"
    for rows in told.summary.values():
        found = sums_by_queue(rows, *[EVENTS_OF.get(word, word) for word in COUNTED])
        assert {name: dict(zip(COUNTED, found[name], strict=True)) for name in own} == own
    ended = counts_by(told.ends, "tenant", "queue", "state")
    for state in ("completed", "failed", "cancelled", "expired"):
        assert {name: ended[*name, state] for name in own} == {name: counted[state] for name, counted in own.items()}
    outcomes = counts_by(told.attempts, "tenant", "queue", "outcome")
    for word in ("completed", "retried"):
        assert {name: outcomes[*name, EVENTS_OF.get(word, word)] for name in own} == {
            name: counted[word] for name, counted in own.items()
        }


def test_every_job_is_where_the_queue_says(past: Past, told: Told):
    """Live ones by their state; those that ended as they ended last."""
    own = counters(past.queue)
    still = counts_by([row for row in told.stays if row["until"] is None], "tenant", "queue", "state")
    latest = {(row["tenant"], row["queue"], row["name"]): row for row in sorted(told.summary["day"], key=day_of)}
    backlog = sums_by_queue(latest.values(), "backlog")
    for name, counted in own.items():
        assert still[*name, "active"] == counted["now_active"]
        assert still[*name, "delayed"] == counted["now_delayed"]
        assert still[*name, "waiting"] == counted["now_waiting"] + counted["now_blocked"]
        live = sum(counted[f"now_{state}"] for state in ("waiting", "delayed", "blocked", "active"))
        assert backlog[name] == (live,)
    dead = counts_by([row for row in told.dead if row["left"] is None], "tenant", "queue")
    assert {name: dead[name] for name in own} == {name: counted["now_failed"] for name, counted in own.items()}
    failed = counts_by([row for row in told.jobs if row["state"] == "failed"], "tenant", "queue")
    assert failed == counts_by(told.dead, "tenant", "queue"), "a revived job is no failed one"


def day_of(row: Row) -> datetime:
    day: datetime = row["start"]
    return day


def test_gold_took_as_long_as_the_queue_says(past: Past, told: Told):
    completed = [row for row in told.attempts if row["outcome"] == "completed"]
    own = {name: (counted["run_ms_sum"], counted["wait_ms_sum"]) for name, counted in counters(past.queue).items()}
    found = sums_by_queue(completed, "run_ms", "wait_ms")
    assert {name: found.get(name, (0, 0)) for name in own} == own


def test_quantiles_of_gold_are_within_the_error_of_the_sketch(past: Past, told: Told):
    exact: dict[tuple[object, ...], list[int]] = {}
    for row in told.attempts:
        if row["outcome"] in ("completed", "retrying", "failed"):
            exact.setdefault((row["tenant"], row["queue"], row["name"], row["day"]), []).append(row["run_ms"])
    assert exact
    for row in told.summary["day"]:
        values = sorted(exact.get((row["tenant"], row["queue"], row["name"], row["start"]), []))
        for word, share in reading.QUANTILES.items():
            assert fits(row[f"run_ms_{word}"], share, values), f"{word} of {row['queue']} {row['start']}"
    everything = sorted(value for values in exact.values() for value in values)
    assert len(everything) > 2 * SKETCH_K, "a sketch that holds them all has no error"
    merged = rows_of(past.lake.read("minutes")).agg(F.kll_merge_agg_bigint("run_ms_sketch").alias("run_ms_sketch"))
    whole = merged.select(*[reading.quantile("run_ms", share) for share in reading.QUANTILES.values()]).first()
    assert whole is not None
    for value, share in zip(whole, reading.QUANTILES.values(), strict=True):
        assert fits(value, share, everything), f"{value} is no quantile {share} of everything"


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
