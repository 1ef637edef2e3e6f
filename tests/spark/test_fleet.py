"""Executors as workers: every job is settled once, in the driver, whatever Spark runs again."""

from pathlib import Path
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import stoker.spark
from stoker.client.sync import Client


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
        return kept.select("id", "claim", F.upper("text").alias("result"))

    done = stoker.spark.process(spark, "texts", transform=lengths, url=url, rounds=1)
    assert (done.completed, done.released, done.lost) == (19, 1, 0)
    assert queue.get_job(ids[0]).result == b"TEXT 0"
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
        return handled.select("id", "claim", F.lit("done").alias("result"))

    done = stoker.spark.process(spark, "texts", transform=again, url=url)
    assert (done.completed, done.lost) == (30, 0)
    assert sum(map(int, seen.read_text().split())) == 60
    assert queue.get_stats().totals.started == 30


def test_a_function_that_gives_too_few_results_fails_its_jobs(spark: SparkSession, url: str, queue: Client):
    queue.push_batch("numbers", [b"1", b"2"], max_attempts=1)
    done = stoker.spark.process(spark, "numbers", lambda payloads: payloads[:1], url=url)
    assert (done.completed, done.failed) == (0, 2)
    assert "1 results for 2 jobs" in done.errors[0]
