"""Several nodes of which any serves and any may die."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec
import pytest

import stoker
from stoker.brokers.local import LocalSettings, open_seat
from stoker.journal.postgres.cluster import status_of
from stoker.journal.postgres.schema import install
from stoker.model.commands import Command
from stoker.model.errors import Unavailable, Unknown
from stoker.model.ids import process_of, shard_for
from tests.cluster.nodes import ClusterNode, TestCluster, cluster_of, until
from tests.postgres_server import fresh_database, shared

R = TypeVar("R")

QUEUES = [f"q{number}" for number in range(8)]
"""In all of four seats."""
TRIES_S = 60
SHARDS, SEATS = 16, 4


@pytest.fixture
def database() -> Iterator[str]:
    with fresh_database(shared()) as name:
        yield shared().url(name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    with fresh_database(shared()) as name, cluster_of(shared().url(name), tmp_path_factory.mktemp("nodes")) as found:
        yield found


def waiting(client: stoker.Client) -> int:
    return client.get_stats().counts.waiting


class PatientClient(stoker.Client):
    """Asks as often as it takes: a seat may be away for a moment, and `unavailable` says that nothing has happened."""

    def execute(self, command: Command[R]) -> R:
        ends = time.monotonic() + TRIES_S
        while True:
            try:
                return super().execute(command)
            except Unavailable:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.1)


def patient(url: str) -> PatientClient:
    return PatientClient(stoker.connect(url).broker)


def push_all(client: stoker.Client, payload: bytes) -> None:
    """One job to each queue, under a name by which the queue knows a second try."""
    name = uuid4().hex
    for queue in QUEUES:
        until(lambda queue=queue: pushed(client, queue, payload, name), "a push", TRIES_S)  # type: ignore[misc]


def pushed(client: stoker.Client, queue: str, payload: bytes, name: str) -> bool:
    try:
        client.push(queue, payload, custom_id=name)
        return True
    except Unknown:
        return False


def test_any_node_answers_any_request(cluster: TestCluster):
    for number, node in enumerate(cluster.nodes):
        client = patient(f"tcp://{node.tcp}")
        push_all(client, b"from any node")
        assert waiting(client) == (number + 1) * len(QUEUES)
        client.close()
    client = patient(cluster.address)
    for queue in QUEUES:
        jobs = client.pull(queue, len(cluster.nodes), lease_ms=300_000)
        assert len(jobs) == len(cluster.nodes)
        client.ack_batch(jobs.ids, jobs.token)
    assert waiting(client) == 0
    client.close()


def test_nothing_is_lost_when_a_node_is_killed_and_it_comes_back(cluster: TestCluster):
    client = patient(f"{cluster.address}?retry_s=30")
    push_all(client, b"before")
    leased = client.pull(QUEUES[0], 1, lease_ms=300_000)
    before = {row.seat: row.epoch for row in cluster.status().seats}
    lost = cluster.nodes[0]
    gone = cluster.held()[lost.name]
    lost.kill()
    push_all(client, b"after")
    client.ack_batch(leased.ids, leased.token)
    cluster.until_served()
    assert waiting(client) == 2 * len(QUEUES) - 1
    after = {row.seat: row.epoch for row in cluster.status().seats}
    assert all(after[seat] > before[seat] for seat in gone), "another process has taken them"
    lost.start()
    cluster.until_balanced()
    assert cluster.held()[lost.name], "a node that comes back gets its share"
    assert waiting(client) == 2 * len(QUEUES) - 1
    client.close()


def test_a_process_that_dies_on_a_living_node_is_started_again_with_the_next_epoch(cluster: TestCluster):
    node = next(node for node in cluster.nodes if cluster.held().get(node.name))
    (seat, *_) = cluster.held()[node.name]
    before = {row.seat: row.epoch for row in cluster.status().seats}
    for pid in node.children:
        os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        row = cluster.status().seats[seat]
        return row.epoch > before[seat] and row.is_held

    until(is_back, "the next epoch")
    cluster.until_served()


def test_a_node_that_is_told_to_stop_hands_its_seats_over(cluster: TestCluster):
    client = patient(f"{cluster.address}?retry_s=30")
    node = cluster.nodes[1]
    seats = cluster.held()[node.name]
    queue = next(name for name in QUEUES if process_of(shard_for("default", name, SHARDS), SEATS) in seats)
    client.push(queue, b"running")
    running = client.pull(queue, 1, lease_ms=300_000)
    jobs = waiting(client)
    assert node.stop() == 0, node.last_log
    rows = {row.seat: row for row in cluster.status().seats}
    assert all(rows[seat].in_order or rows[seat].node not in ("", node.name) for seat in seats)
    assert node.name not in {found.node for found in cluster.status().nodes}, "it has signed off"
    push_all(client, b"meanwhile")
    cluster.until_served()
    assert waiting(client) == jobs + len(QUEUES)
    client.ack_batch(running.ids, running.token)
    node.start()
    cluster.until_balanced()
    client.close()


def test_status_tells_nodes_seats_and_the_leader(cluster: TestCluster):
    cluster.until_balanced()
    shown = subprocess.run(command("status", cluster.url, "--json"), capture_output=True, text=True, check=True)
    found = msgspec.json.decode(shown.stdout)
    assert {row["node"] for row in found["nodes"] if row["is_alive"]} == {node.name for node in cluster.nodes}
    assert found["leader"] in {node.name for node in cluster.nodes}
    table = subprocess.run(command("status", cluster.url), capture_output=True, text=True, check=True).stdout
    assert "leader" in table


def test_a_name_that_a_living_node_has_is_refused(cluster: TestCluster, tmp_path: Path):
    twin = ClusterNode(cluster.url, cluster.nodes[0].name, tmp_path)
    twin.begin()
    assert twin.process is not None
    twin.process.communicate(timeout=TRIES_S)
    assert twin.process.returncode != 0
    assert "give this one another name" in twin.log


def test_a_process_that_does_not_hear_of_every_seat_gives_its_own_back(database: str, tmp_path: Path):
    """What the other seat has decided for it could be missing."""
    install(database, 4, 2)
    mute = open_seat(database, 1, "mute", "127.0.0.1:1", LocalSettings(shards=4))
    node = ClusterNode(database, "node", tmp_path)
    node.begin()
    try:
        until(lambda: "seat 0 has not heard of seat 1" in node.log, "the complaint")
        until(lambda: not status_of(database).seats[0].node, "the end of its seat")
        until(lambda: "this node takes no seat for 60 s" in node.log, "the reason why it rests")
        assert status_of(database).seats[0].in_order
    finally:
        node.await_served()
        node.stop()
        mute.close()


# --- bad input -----------------------------------------------------------------------------------


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "stoker", "cluster", *words]


def refused(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "stoker", *words], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_database_without_a_cluster_is_refused(database: str):
    assert "stoker cluster init" in refused("serve", "--cluster", database)
    assert "stoker cluster init" in refused("cluster", "status", database)


def test_other_numbers_than_the_cluster_has_are_refused(database: str):
    install(database, 8, 2)
    assert "has 8 shards, not 16" in refused("cluster", "init", database)
    assert "has 8 shards, not 4" in refused("serve", "--cluster", database, "--set", "shards=4")


def test_a_cluster_of_a_later_release_is_refused(database: str):
    install(database, 8, 2)
    with shared().connect(database.rpartition("/")[2]) as connection:
        connection.execute("UPDATE stoker.cluster SET format = 99")
    assert "use the later one" in refused("serve", "--cluster", database)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--data", "x"), "PostgreSQL or in a directory"),
        (("--processes", "2"), "a process for each seat"),
        (("--durability", "memory"), "when PostgreSQL has it"),
        (("--cluster-listen", "0.0.0.0:7000"), "set cluster.tls"),
        (("--cluster-listen", "off"), "must reach this one"),
    ],
)
def test_what_a_node_cannot_have_is_refused(words: tuple[str, ...], problem: str):
    assert problem in refused("serve", "--cluster", "postgresql://nobody@127.0.0.1/nothing", *words)
