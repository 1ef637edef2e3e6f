"""One cluster, and one driver that uses it, for all tests here; each test has a server of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stoker
import stoker.spark
from stoker.client.sync import Client
from tests.spark_cluster.cluster import INSTALLED, SETTINGS, Cluster
from tests.worker_kill.scene import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def spark(cluster: Cluster) -> "Iterator[SparkSession]":
    """A driver in this process. Stoker is installed where its executors run."""
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    if before is not None:  # of other tests in this process, which are over
        before.stop()
    settings = SETTINGS | {"spark.executorEnv.PYTHONPATH": INSTALLED}
    running = stoker.spark.session(cluster.url, name="tests", settings=settings)
    yield running
    running.stop()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(folder)
    yield server.url
    server.close()


@pytest.fixture
def queue(url: str) -> Iterator[Client]:
    with stoker.connect(url) as client:
        yield client
