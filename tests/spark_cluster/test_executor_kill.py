"""An executor that is killed with kill -9 at a chosen point: Spark runs its tasks again, and nothing is seen twice."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import stoker.spark
from stoker.client.sync import Client
from stoker.spark.lake import running
from stoker.spark.lake.layout import Lake
from tests.spark.story import live
from tests.spark_cluster.cluster import kill_executor, numbers_in, until
from tests.spark_cluster.holding import Points, doubled, hold_source, release_source


@pytest.fixture
def points(spark: SparkSession, tmp_path: Path) -> Iterator[Points]:
    """Where the source, and what else is told of them, waits."""
    points = Points(str(tmp_path), ("reading", "staged", "handled"))
    hold_source(spark, points)
    yield points
    release_source(spark)


def killing(points: Points, point: str, work: Callable[[], Any]) -> Any:
    """Do it, and kill the executor that comes to the point first.

    The work is done here and not in another thread: there Spark would not know its session.
    """
    over = threading.Event()

    def kill() -> None:
        until(lambda: points.reached(point) or over.is_set(), f"an executor is at {point}")
        if points.reached(point):
            kill_executor(points.process_at(point))

    with ThreadPoolExecutor(1) as threads:
        killed = threads.submit(kill)
        try:
            result = work()
        finally:
            over.set()
        killed.result()
    assert points.reached(point)
    return result


def test_events_are_in_bronze_once_when_an_executor_dies_reading_them(
    spark: SparkSession, points: Points, url: str, queue: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(running, "STEPS", {})  # silver and gold are made of bronze, and cost seconds
    live(queue, rounds=12)
    path = f"file://{tmp_path}/lake"
    done = killing(points, "reading", lambda: running.run(spark, path, {"url": url, "maxRecordsPerTrigger": "50"}))
    bronze = Lake(spark, path).read("bronze")
    assert bronze is not None
    expected = {tuple(row) for row in keys(spark, url)}
    found = [tuple(row) for row in bronze.select("shard", "sequence", "index").collect()]
    assert len(found) == len(set(found)) == done.events
    assert set(found) == expected


def keys(spark: SparkSession, url: str) -> list[Any]:
    return spark.read.format("stoker").option("url", url).load().select("shard", "sequence", "index").collect()


def test_rows_are_pushed_once_when_an_executor_dies_between_staging_and_commit(
    spark: SparkSession, points: Points, url: str, queue: Client
):
    rows = spark.range(600, numPartitions=3).selectExpr("cast(id as string) as payload")
    killing(
        points,
        "staged",
        lambda: rows.write.format("stoker").mode("append").option("url", url).option("queue", "rows").save(),
    )
    assert numbers_in(queue, "rows") == list(range(600))


def test_a_job_is_completed_once_when_its_executor_dies_after_the_handler_and_before_the_commit(
    spark: SparkSession, points: Points, url: str, queue: Client
):
    payloads = [msgspec.msgpack.encode(number) for number in range(100)]
    ids = queue.push_batch("numbers", payloads, codec="msgpack").ids
    done = killing(
        points,
        "handled",
        lambda: stoker.spark.process(spark, "numbers", doubled(points), url=url, batch=25, slots=2, lease="10m"),
    )
    assert (done.taken, done.completed, done.failed, done.released, done.lost) == (100, 100, 0, 0, 0)
    totals = queue.get_stats("numbers").totals
    assert (totals.started, totals.completed, totals.failed) == (100, 100, 0)
    results = [queue.get_job(job).result for job in ids]
    assert [msgspec.msgpack.decode(result or b"") for result in results] == [2 * number for number in range(100)]
