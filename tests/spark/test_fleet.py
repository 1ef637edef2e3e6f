"""Executors as workers: every job is settled once, in the driver, whatever Spark runs again."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import stoker
import stoker.spark
from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.spark.fleet.leases import Leases
from stoker.spark.fleet.settling import read_ends, settle
from stoker.spark.options import QueueConnection


def test_a_function_gives_each_job_a_result_or_an_error(spark: SparkSession, url: str, queue: Client):
    def doubled(payloads: list[Any]) -> list[Any]:
        return [payload["n"] * 2 if payload["n"] % 10 else ValueError("a round number") for payload in payloads]

    payloads = [msgspec.msgpack.encode({"n": number}) for number in range(50)]
    ids = queue.push_batch("numbers", payloads, codec="msgpack", max_attempts=1).ids
    done = stoker.spark.process(spark, "numbers", doubled, url=url, batch=15)
    assert (done.taken, done.completed, done.failed, done.lost) == (50, 45, 5, 0)
    assert msgspec.msgpack.decode(queue.get_job(ids[7]).result or b"") == 14
    dead = queue.get_job(ids[10])
    assert (dead.state, dead.error) == ("failed", "a round number")


def test_any_dataframe_code_is_a_worker(spark: SparkSession, url: str, queue: Client):
    ids = queue.push_batch("texts", [f"text {number}".encode() for number in range(20)]).ids

    def lengths(jobs: DataFrame) -> DataFrame:
        texts = jobs.withColumn("text", F.col("payload").cast("string"))
        kept = texts.where(F.col("text") != "text 3")  # which goes back to its queue
        return kept.select("id", F.upper("text").alias("result"))

    done = stoker.spark.process(spark, "texts", transform=lengths, url=url)
    assert (done.completed, done.lost) == (19, 0)
    assert done.released >= 1  # also in a second round, which does nothing else, and is the last
    first = queue.get_job(ids[0])
    assert (first.result, first.result_codec) == (b"TEXT 0", "bytes")
    back = queue.get_job(ids[3])
    assert (back.state, back.attempts) == ("waiting", 0)


def test_a_task_that_runs_twice_settles_nothing_twice(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    """An attempt gets its jobs, runs the handler, and is then lost before Spark has its rows."""
    queue.push_batch("texts", [b"x"] * 30)
    seen = tmp_path / "seen"

    def again(jobs: DataFrame) -> DataFrame:
        def first_time_in_vain(batches):
            task = TaskContext.get()
            assert task is not None
            for batch in batches:
                with seen.open("a") as file:
                    file.write(f"{batch.num_rows}\n")
                yield batch

        handled = jobs.mapInArrow(first_time_in_vain, jobs.schema)
        handled.count()  # Spark runs everything once for nothing
        return handled.select("id", F.lit("done").alias("result"))

    done = stoker.spark.process(spark, "texts", transform=again, url=url)
    assert (done.completed, done.lost) == (30, 0)
    assert sum(map(int, seen.read_text().split())) == 60
    assert queue.get_stats().totals.started == 30


def test_a_function_that_gives_too_few_results_fails_its_jobs(spark: SparkSession, url: str, queue: Client):
    queue.push_batch("numbers", [b"1", b"2"], max_attempts=1)
    done = stoker.spark.process(spark, "numbers", lambda payloads: payloads[:1], url=url)
    assert (done.completed, done.failed) == (0, 2)
    assert "1 results for 2 jobs" in done.errors[0]


def test_a_job_that_cannot_be_read_or_answered_costs_no_other_anything(spark: SparkSession, url: str, queue: Client):
    def answers(payloads: list[Any]) -> list[Any]:
        return [{1: object(), 2: b"two", 3: None}.get(payload, payload) for payload in payloads]

    payloads = [b"\xc1 is no MessagePack", *map(msgspec.msgpack.encode, range(1, 5))]
    ids = queue.push_batch("odd", payloads, codec="msgpack", max_attempts=1).ids
    done = stoker.spark.process(spark, "odd", answers, url=url, slots=1)
    assert (done.completed, done.failed, done.lost) == (3, 2, 0)
    views = [queue.get_job(job) for job in ids]
    assert [view.state for view in views] == ["failed", "failed", "completed", "completed", "completed"]
    assert [(view.result, view.result_codec) for view in views[2:]] == [
        (b"two", "bytes"),
        (None, "bytes"),
        (b"\x04", "msgpack"),
    ]


def refused(spark: SparkSession, url: str, transform: Callable[[DataFrame], DataFrame]) -> StokerError:
    with pytest.raises(StokerError) as raised:
        stoker.spark.process(spark, "texts", transform=transform, url=url, lease="1h")
    return raised.value


def test_what_spark_cannot_finish_is_released_at_once(spark: SparkSession, url: str, queue: Client):
    """No job waits for the end of its lease, and none loses an attempt."""

    def broken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise RuntimeError("an executor without its model")

    queue.push_batch("texts", [b"x"] * 30)
    failures = [
        refused(spark, url, lambda jobs: jobs.mapInArrow(broken, jobs.schema)),
        refused(spark, url, lambda jobs: jobs.select("no_such_column")),
        refused(spark, url, lambda jobs: jobs.select(F.col("payload").alias("result"))),
        refused(spark, url, lambda jobs: jobs.select("id", F.lit(7).alias("result"))),
        refused(spark, url, lambda jobs: jobs.select("id").union(jobs.select("id"))),
        refused(spark, url, lambda jobs: jobs.select((F.col("id") + 1).alias("id"))),
    ]
    assert [failure.code for failure in failures] == ["round_failed"] * 2 + ["invalid"] * 4
    said = [
        "without its model",
        "no_such_column",
        "no column id",
        "expected binary or string",
        "twice",
        "is not in this round",
    ]
    assert all(word in str(failure) for word, failure in zip(said, failures, strict=True))
    counts = queue.get_counts("texts")
    assert (counts.waiting, counts.active) == (30, 0)
    assert all(job.attempts == 0 for job in queue.browse("texts").jobs)


def test_a_result_that_is_too_large_fails_its_job_alone(queue: Client):
    ids = list(queue.push_batch("texts", [b"x"] * 5, max_attempts=1).ids)
    delivery = queue.pull("texts", 5)
    results = pa.array([b"a", b"b", b"c" * (11 * 1024 * 1024), b"d", None], pa.binary())
    outcome = settle(queue, delivery.token, read_ends(pa.table({"id": ids, "result": results})), delivery.ids)
    assert (outcome.completed, outcome.failed) == (4, 1)
    assert [queue.get_job(job).state for job in ids] == ["completed"] * 2 + ["failed"] + ["completed"] * 2


def test_leases_are_renewed_while_somebody_works(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/queue?shards=1"
    with stoker.connect(url) as queue:
        job = queue.push("texts", b"x").id
        queue.pull("texts", claim="ours", lease_ms=600_000)
        with Leases(QueueConnection(url), 900) as leases:
            leases.hold("of nobody", "ours")  # the queue does not know the one: the other is renewed all the same
            (renewed, *_) = queue.read_events(kinds=["extended"], wait_ms=60_000).events
    assert renewed.job == job
