"""One Spark for all tests here, and queues in directories that the tests and Spark's executors share."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stoker
import stoker.spark
from stoker.client.sync import Client

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
