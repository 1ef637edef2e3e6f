"""Jobs as a stream: a batch that is replayed brings the same jobs, and each is settled once."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

import stoker.spark
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.fleet.streaming import JobsReader, OneClaim, take_options

LIMIT = ReadAllAvailable()


def reader(url: str, **more: str) -> JobsReader:
    return JobsReader(take_options({"url": url, "queues": "texts", "settle": "rows", "maxJobsInFlight": "20"} | more))


def jobs_of(source: JobsReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    partitions = source.partitions(start, end)
    assert all(isinstance(partition, OneClaim) for partition in partitions)
    return [job for part in partitions for batch in source.read(part) for job in batch.column("id").to_pylist()]


def test_a_replayed_batch_brings_the_same_jobs(url: str, queue: Client):
    queue.push_batch("texts", [b"x"] * 50)
    first = reader(url)
    start = first.initialOffset()
    end = first.latestOffset(start, LIMIT)
    jobs = jobs_of(first, start, end)
    assert len(jobs) == 20
    after_a_crash = reader(url)  # which knows only what the checkpoint tells
    assert jobs_of(after_a_crash, after_a_crash.initialOffset(), end) == jobs
    assert first.latestOffset(start, LIMIT) == end  # Spark did not write it down: it is the same batch
    for source in (first, after_a_crash):
        source.stop()


def test_no_more_jobs_are_in_hand_than_allowed_and_a_committed_batch_makes_room(url: str, queue: Client):
    queue.push_batch("texts", [b"x"] * 50)
    source = reader(url, settle="batch")
    end = source.latestOffset(source.initialOffset(), LIMIT)
    assert queue.get_counts("texts").active == 20
    later = source.latestOffset(end, LIMIT)
    counts = queue.get_counts("texts")
    assert (counts.completed, counts.active, counts.waiting) == (20, 20, 10)
    assert reader(url, settle="rows").latestOffset(later, LIMIT)["batch"] == 3  # left out of the sink: back they go
    counts = queue.get_counts("texts")
    assert (counts.completed, counts.active, counts.waiting) == (20, 20, 10)
    source.stop()


def test_a_stream_with_nothing_to_do_stays_where_it_is(url: str, queue: Client):
    source = reader(url)
    start = source.initialOffset()
    assert source.latestOffset(start, LIMIT) == start
    queue.push_batch("texts", [b"x"] * 3)
    end = source.latestOffset(start, LIMIT)
    queue.release_claim(f"spark:{end['stream']}:1:0")  # as if the lease had ended while the driver was away
    assert source.latestOffset(start, LIMIT)["batch"] == 2
    source.stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"settle": "rows"}, "queues is missing"),
        ({"queues": "q"}, "option settle = None"),
        ({"queues": "q", "settle": "rows", "slots": "0"}, "option slots"),
        ({"queues": "q", "settle": "rows", "lease": "soon"}, "option lease = 'soon'"),
        ({"queues": "q", "settle": "rows", "maxJobs": "5"}, "did you mean maxJobsInFlight"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, str], said: str):
    with pytest.raises(InvalidRequest, match=said):
        take_options(options)


def with_pandas(jobs: DataFrame) -> DataFrame:
    def lengths(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            sizes = frame["payload"].map(len)
            errors = ["too short" if size < 3 else None for size in sizes]
            results = [str(size).encode() if size >= 3 else None for size in sizes]
            yield pd.DataFrame({"id": frame["id"], "token": frame["token"], "result": results, "error": errors})

    return jobs.mapInPandas(lengths, "id bigint, token bigint, result binary, error string")


def test_a_stream_settles_each_job_once_also_if_a_batch_is_run_again(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path
):
    ids = queue.push_batch("texts", [b"x" * number for number in range(10)], max_attempts=1).ids

    def work() -> None:
        query = stoker.spark.process_stream(
            spark,
            "texts",
            transform=with_pandas,
            url=url,
            checkpoint=f"{tmp_path}/at",
            max_in_flight=6,
            available_now=True,
        )
        query.awaitTermination()

    work()
    counts = queue.get_counts("texts")
    assert (counts.completed, counts.failed, counts.active) == (7, 3, 0)
    assert [queue.get_job(job).result for job in ids[7:]] == [b"7", b"8", b"9"]
    newest = max((tmp_path / "at" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # as if the driver had died after the jobs were settled and before Spark wrote it down
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    queue.push_batch("texts", [b"later"])
    work()
    counts = queue.get_counts("texts")
    assert (counts.completed, counts.failed, counts.active, counts.waiting) == (8, 3, 0, 0)
    assert queue.get_stats().totals.started == 11


def test_a_function_works_in_a_stream(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    ids = queue.push_batch("texts", [b"one", b"three"]).ids
    query = stoker.spark.process_stream(
        spark, "texts", lambda texts: list(map(len, texts)), url=url, checkpoint=f"{tmp_path}/at", available_now=True
    )
    query.awaitTermination()
    assert [queue.get_job(job).result for job in ids] == [b"\x03", b"\x05"]


def test_rows_that_do_not_name_their_delivery_are_refused_before_anything_runs(
    spark: SparkSession, url: str, tmp_path: Path
):
    with pytest.raises((PySparkException, InvalidRequest), match="no column token"):
        stoker.spark.process_stream(
            spark,
            "texts",
            transform=lambda jobs: jobs.select("id"),
            url=url,
            checkpoint=f"{tmp_path}/at",
            available_now=True,
        ).awaitTermination()
