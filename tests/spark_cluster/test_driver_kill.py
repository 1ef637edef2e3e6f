"""Drivers that are killed with kill -9 at points of source, sink, fleet and lake: whoever goes on makes all whole.

The first driver dies while an executor reads a batch for the lake, while a batch of a stream is staged and not
published, and while jobs of a fleet are handled and not acknowledged. The second goes on and dies while a batch is in
bronze and not in gold, and while a batch is published and Spark does not know. The third ends it, on a cluster.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stoker
from stoker.client.sync import Client
from stoker.spark.lake import reading
from stoker.spark.lake.layout import Lake
from tests.spark.story import live
from tests.spark_cluster.cluster import INSTALLED, environment, killed, numbers_in, started, until
from tests.spark_cluster.drivers import REST, copy, fill, lake_path, work
from tests.spark_cluster.holding import Points, doubled
from tests.worker_kill.scene import Server

NUMBERS = 100
ORDERS = 24


@dataclass(frozen=True)
class Scene:
    """What all drivers have before them."""

    url: str
    queue: Client
    folder: Path
    numbers: list[int]
    orders: list[int]

    def copies(self) -> list[int]:
        """The orders whose copies are there, in order."""
        return numbers_in(self.queue, "copies")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("killed")
    server = Server(folder)
    try:
        with stoker.connect(server.url) as queue:
            yield Scene(server.url, queue, folder, *history(queue))
    finally:
        server.close()


@pytest.fixture(scope="module")
def one_dead(scene: Scene) -> Scene:
    die(scene, "reading", "publishing", "handled")
    return scene


@pytest.fixture(scope="module")
def two_dead(one_dead: Scene) -> Scene:
    die(one_dead, "layer", "published")
    return one_dead


@pytest.fixture(scope="module")
def lake(spark: SparkSession, two_dead: Scene) -> Lake:
    """The third driver ends it all, and the lake comes last: it tells of everything."""
    copy(spark, two_dead.folder, two_dead.url, REST).awaitTermination()
    until(lambda: worked_off(spark, two_dead), "all numbers are doubled")
    lake = Lake(spark, lake_path(two_dead.folder))
    fill(spark, lake, two_dead.url, REST).awaitTermination()
    return lake


def history(queue: Client) -> tuple[list[int], list[int]]:
    """Something of everything for the lake, among it orders to copy, and numbers for the fleet; their ids."""
    payloads = [msgspec.msgpack.encode(number) for number in range(NUMBERS)]
    numbers = list(queue.push_batch("numbers", payloads, codec="msgpack").ids)
    orders: list[int] = []
    for number in range(ORDERS):
        live(queue, seed=number, rounds=1)
        orders.append(queue.push("orders", b"").id)
    return numbers, orders


def die(scene: Scene, *names: str) -> None:
    """Start a driver, and kill it when it waits at all of these points."""
    folder = str(scene.folder)
    points, log = Points(folder, names), scene.folder / f"{names[0]}.log"
    command = [sys.executable, "-m", "tests.spark_cluster.drivers", "local[4]", scene.url, folder, *names]
    driver = started(command, log, environment(PYTHONPATH=INSTALLED))
    try:
        until(points.all_reached, f"the driver is at {', '.join(names)} ({log})", lambda: driver.poll() is None)
    finally:
        killed(driver)


def worked_off(spark: SparkSession, scene: Scene) -> bool:
    """Another round: what the dead drivers had in hand comes back when their leases have ended."""
    work(spark, scene.url, doubled(Points(str(scene.folder), ())), wait="1s")
    return scene.queue.get_stats("numbers").totals.completed >= NUMBERS


def events(lake: Lake, **where: str) -> list[int]:
    """The jobs of the events in bronze that are like this."""
    bronze = lake.read("bronze")
    assert bronze is not None
    for name, value in where.items():
        bronze = bronze.where(F.col(name) == value)
    return [row.job for row in bronze.select("job").collect()]


def test_no_row_of_a_batch_is_pushed_when_its_driver_dies_before_the_commit(one_dead: Scene):
    copies = one_dead.copies()
    assert 0 < len(copies) == len(set(copies)) < ORDERS


def test_a_batch_is_pushed_once_when_its_driver_dies_after_the_commit(two_dead: Scene):
    copies = two_dead.copies()
    assert len(copies) == len(set(copies))
    assert set(copies) <= set(two_dead.orders)


def test_every_row_is_pushed_once_though_its_batch_was_staged_and_published_again(lake: Lake, two_dead: Scene):
    assert two_dead.copies() == sorted(two_dead.orders)


def test_a_job_is_completed_once_though_the_driver_of_its_fleet_died_after_the_handler(lake: Lake, two_dead: Scene):
    assert Counter(events(lake, queue="numbers", event="completed")) == Counter(two_dead.numbers)
    results = [two_dead.queue.get_job(job).result for job in two_dead.numbers]
    assert [msgspec.msgpack.decode(result or b"") for result in results] == [2 * n for n in range(NUMBERS)]
    again = [job for job, times in Counter(events(lake, queue="numbers", event="started")).items() if times > 1]
    assert again, "some were in hand when the driver died"


def test_every_event_is_in_bronze_once_though_its_reader_died(spark: SparkSession, lake: Lake, two_dead: Scene):
    bronze = lake.read("bronze")
    assert bronze is not None
    found = [tuple(row) for row in bronze.select("shard", "sequence", "index").collect()]
    log = spark.read.format("stoker").option("url", two_dead.url).load()
    known = {tuple(row) for row in log.select("shard", "sequence", "index").collect()}
    assert len(found) == len(set(found))
    assert set(found) == known


def test_silver_and_gold_count_what_the_queue_counts_though_their_driver_died(lake: Lake, two_dead: Scene):
    gold, jobs = reading.summary(lake, "day"), reading.jobs(lake)
    assert gold is not None
    assert jobs is not None
    totals = two_dead.queue.get_stats().totals
    names = ("pushed", "started", "completed", "failed")
    found = gold.agg(*[F.sum(name).alias(name) for name in names]).first()
    assert found is not None
    assert tuple(found) == tuple(getattr(totals, name) for name in names)
    ended = [row.job for row in jobs.select("job").collect()]
    assert len(ended) == len(set(ended)) == totals.completed + totals.failed + totals.cancelled
