"""One Spark for all tests here, and queues in directories that the tests and Spark's executors share."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import stoker
import stoker.spark
from stoker.client.sync import Client
from stoker.spark.lake import running
from stoker.spark.lake.layout import Lake
from stoker.spark.logs import reaches
from tests.spark.life import TENANTS, lived

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    running = stoker.spark.session("local[2,2]", name="tests")  # a task that fails is tried once more, as on a cluster
    yield running
    running.stop()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue?shards=4"


@pytest.fixture
def queue(url: str) -> Iterator[Client]:
    with stoker.connect(url) as client:
        yield client


class Past(NamedTuple):
    """A queue that has lived for days, and a lake that took it in. Made once: look at it, and change nothing."""

    queue: Client
    lake: Lake
    path: Path
    """Of the lake."""
    url: str


@pytest.fixture(scope="session")
def past(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    place = tmp_path_factory.mktemp("past")
    lived(place / "queue")
    url = f"sqlite:///{place}/queue"
    with stoker.connect(url) as queue:
        events = sum(queue.read_records(shard, counted=True, tenants=TENANTS).events for shard in reaches(queue))
        options = {"url": url, "tenants": ",".join(TENANTS), "maxRecordsPerTrigger": str(-(-events // 3))}
        running.run(spark, str(place / "lake"), options)
        yield Past(queue, Lake(spark, str(place / "lake")), place / "lake", url)
