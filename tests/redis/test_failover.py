"""A failover to a replica that lags: what is lost is noticed and counted, and nothing is given twice.

The replica takes over the address of its master, as behind a name that is moved.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator

import pytest

import stoker
from stoker.model.errors import LostLease, NotFound
from stoker.model.ids import STEP
from tests.ports import kept_port
from tests.redis.conftest import MakeServer
from tests.redis.servers import RedisServer

SKIPPED = 2**24
"""How many numbers are left out after a loss."""


def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(6_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(what)


class MasterAndReplica:
    """A master that clients know, and its replica."""

    def __init__(self, make_server: MakeServer) -> None:
        self.master = make_server("redis")
        self.replica: RedisServer = make_server("redis")
        self.copy()

    def copy(self) -> None:
        """The replica gets what the master has, and nothing after that: from then on it lags."""
        with self.master.client() as client:
            client.config_set("appendonly", "no")
            client.save()
        self.replica.kill()
        (self.replica.folder / "dump.rdb").write_bytes((self.master.folder / "dump.rdb").read_bytes())
        self.replica.start()

    def fail_over(self) -> None:
        """The master dies, and the replica has its address."""
        self.master.kill()
        os.replace(self.replica.socket, self.master.socket)


@pytest.fixture
def pair(make_server: MakeServer) -> MasterAndReplica:
    return MasterAndReplica(make_server)


def test_what_a_replica_lacks_is_noticed_and_its_numbers_are_left_out(
    pair: MasterAndReplica, caplog: pytest.LogCaptureFixture
):
    with stoker.connect(pair.master.url + "?retry_s=60") as queue, caplog.at_level(logging.ERROR, "stoker.client"):
        kept = queue.push("q", b"kept").id
        pair.copy()
        lost = [queue.push("q", b"lost").id for _ in range(3)]
        seen = queue.read_events().events[-1].sequence
        pair.fail_over()
        new = queue.push("q", b"new").id
        assert new // STEP > lost[-1] // STEP + SKIPPED - 1
        assert queue.broker.losses == 1  # type: ignore[attr-defined]
        assert any("has lost data of tenant 'default'" in one.message for one in caplog.records)
        for job in lost:
            with pytest.raises(NotFound):
                queue.get_job(job)
        assert list(queue.pull("q", 10).ids) == [kept, new]
        page = queue.read_events(after=seen)
        assert {event.job for event in page.events} == {kept, new}, (
            "a reader that had seen more reads on, and skips none"
        )
        assert all(event.sequence > seen + SKIPPED - 1 for event in page.events)
        with pair.master.client() as client:
            assert client.hget("stoker:{default/0}:n", "losses") == b"1"
    with stoker.connect(pair.master.url) as other:
        assert other.push("q", b"later").id > new, "a client that has seen nothing goes on behind the gap, too"


def test_after_a_failover_two_leases_can_be_valid_and_their_tokens_differ(pair: MasterAndReplica):
    """The page says it first: a handler must be safe to run twice. The older token settles nothing any more."""
    with stoker.connect(pair.master.url + "?retry_s=60") as queue:
        job = queue.push("q", b"x").id
        pair.copy()
        first = queue.pull("q")
        pair.fail_over()
        second = queue.pull("q", wait_ms=60_000)
        assert list(first.ids) == list(second.ids) == [job]
        assert second.token > first.token
        with pytest.raises(LostLease):
            queue.ack(job, first.token)
        queue.ack(job, second.token)


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


def test_a_replica_that_is_not_promoted_yet_is_waited_for(make_server: MakeServer, port: int):
    """A real replica, with a real promotion."""
    master = make_server("redis")
    listen_too(master, port)
    replica = make_server("redis", "--replicaof", "127.0.0.1", str(port))
    with replica.client() as client, stoker.connect(master.url + "?retry_s=60") as queue:
        job = queue.push("q", b"x").id
        until(lambda: client.info("replication").get("master_link_status") == "up", "it copies")
        with master.client() as source:
            source.wait(1, 60_000)
        master.kill()
        os.replace(replica.socket, master.socket)
        with stoker.connect(master.url + "?retry_s=0") as hasty, pytest.raises(stoker.StokerError, match="replica"):
            hasty.push("q", b"y")
        with master.client() as promoted:
            promoted.execute_command("REPLICAOF", "NO", "ONE")
        assert list(queue.pull("q", wait_ms=60_000).ids) == [job]
        assert queue.broker.losses == 0  # type: ignore[attr-defined]


def listen_too(server: RedisServer, port: int) -> None:
    """Let the server listen on a port, too, for its replica."""
    server.kill()
    server.options = ("--port", str(port), "--bind", "127.0.0.1")
    server.start()
