"""Counts over all seats, while one of them is not there: they are refused, and the error names the seat."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stoker
from stoker.brokers.local import LocalSettings, open_seat
from stoker.cli.top import pages
from stoker.model.errors import Unavailable
from stoker.model.filters import JobFilter
from stoker.model.ids import process_of, shard_for
from tests.cli.test_top import as_text
from tests.cluster.nodes import TestCluster, cluster_of, until
from tests.postgres_server import fresh_database, shared

SHARDS, SEATS = 4, 2
BOUND_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    with fresh_database(shared()) as name, cluster_of(shared().url(name), tmp_path, 2, SHARDS, SEATS) as found:
        yield found


def queue_of(seat: int) -> str:
    names = (f"q{number}" for number in range(100))
    return next(name for name in names if process_of(shard_for("default", name, SHARDS), SEATS) == seat)


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stoker", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=BOUND_S)


def test_counts_name_the_seat_that_is_missing(cluster: TestCluster):
    """The seat is held by a process that does not answer, for as long as the test wants."""
    lost = next(node for node in cluster.nodes if 1 in cluster.held()[node.name])
    stays = next(node for node in cluster.nodes if node is not lost)
    epoch = cluster.status().seats[1].epoch
    mute = open_seat(cluster.url, 1, "mute", "127.0.0.1:1", LocalSettings(shards=SHARDS), instead_of=epoch)
    lost.kill()
    url = f"tcp://{stays.tcp}?retry_s=0"
    with stoker.connect(url) as client:
        try:
            client.push(queue_of(0), b"the other seat works")
            until(lambda: counts(client) == -1, "the end of the link to the process before")
            for ask in (client.get_stats, client.list_queues, lambda: client.count_jobs(JobFilter())):
                with pytest.raises(Unavailable, match=r"^process 1 is not there at the moment"):
                    ask()
            for words in (("stats",), ("top", "--once"), ("top", "--json"), ("queue", "list")):
                done = run(*words, "--url", url)
                assert done.returncode != 0
                assert "process 1 is not there" in done.stderr
            drawn = pages(client, "live", ())
            assert as_text(next(drawn)).startswith("no answer: process 1 is not there")
        finally:
            mute.close()
        until(lambda: counts(client) == 1, "all counts")
        assert as_text(next(drawn)).startswith("live")


def counts(client: stoker.Client) -> int:
    try:
        return client.get_stats().counts.waiting
    except Unavailable:
        return -1
