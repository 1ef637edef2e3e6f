"""`/ready` and the metrics of a node whose PostgreSQL is away."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import stoker
from stoker.journal.postgres.seats import LEASE_S
from tests.cluster.nodes import ClusterNode, TestCluster, cluster_of, until
from tests.postgres_server import PostgresServer

BOUND_S = 60.0
ASKED = 10
"""So often that each process of a node answers: they share the port, and hear one after another that it is away."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Its own, because it is stopped."""
    found = PostgresServer()
    yield found
    found.close()


def ask(node: ClusterNode, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(node.where["http"] + path, timeout=BOUND_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def is_ready(node: ClusterNode) -> bool:
    return ask(node, "/ready")[0] == 200


def says_why_not(node: ClusterNode) -> bool:
    status, text = ask(node, "/ready")
    found = msgspec.json.decode(text)
    why = found.get("reason", "")
    return (status, found["ready"], found["stopping"]) == (503, False, False) and "does not answer" in why


def tells_metrics(node: ClusterNode, ready: int) -> bool:
    """By each of its processes: one without shards may still be there beside the one with the seat."""
    status, text = ask(node, "/metrics")
    numbers = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("stoker_ready")]
    return status == 200 and set(numbers) == {f"{ready}.0"}


def push(cluster: TestCluster) -> bool:
    try:
        with stoker.connect(cluster.address) as client:
            client.push("q", b"after")
            return True
    except stoker.StokerError:
        return False


def test_a_node_tells_that_postgresql_is_away_and_that_it_is_back(server: PostgresServer, tmp_path: Path):
    """One node has the only seat, the other one has none: both tell."""
    http = ("--grpc", "off", "--http", "127.0.0.1:0")
    with cluster_of(server.url(), tmp_path, 2, 4, 1, http) as cluster:
        for node in cluster.nodes:
            until(lambda node=node: is_ready(node), "a node that is ready")  # type: ignore[misc]
            until(lambda node=node: tells_metrics(node, 1), "the same in the metrics")  # type: ignore[misc]
        server.stop()
        for node in cluster.nodes:
            until(lambda node=node: all(says_why_not(node) for _ in range(ASKED)), "a node that is not")  # type: ignore[misc]
            assert ask(node, "/health")[0] == 200
            until(lambda node=node: tells_metrics(node, 0), "the same in the metrics")  # type: ignore[misc]
        server.start()
        for node in cluster.nodes:
            until(lambda node=node: is_ready(node), "a node that is ready again")  # type: ignore[misc]
            until(lambda node=node: tells_metrics(node, 1), "the same in the metrics")  # type: ignore[misc]
        until(lambda: push(cluster), "a push")


def test_a_node_whose_postgresql_is_away_ends_when_it_is_told(server: PostgresServer, tmp_path: Path):
    """Also beyond its lease: then it shows nothing that it has read, not even to its own last questions."""
    with cluster_of(server.url(), tmp_path, 1, 4, 1) as cluster:
        (node,) = cluster.nodes
        until(lambda: push(cluster), "a push")
        server.stop()
        until(lambda: "could not be renewed" in node.log, "the end of its lease")
        time.sleep(LEASE_S)
        assert node.stop() == 0, node.last_log
        server.start()
