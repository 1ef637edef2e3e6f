"""Lost answers, and a server that is away, busy, full, or elsewhere."""

import asyncio
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

import stoker
from stoker.brokers.redis import links
from stoker.brokers.redis.greeting import AWAY, meaning
from stoker.brokers.redis.links import BlockingRedisLink, RedisNode, RedisRefusal, node_of
from stoker.brokers.redis.opening import open_redis
from stoker.brokers.remote.links import LinkLost
from stoker.model import commands as c
from stoker.model import errors
from tests.redis.conftest import MakeServer
from tests.redis.servers import RedisServer

HERE = RedisNode("tcp", "h", 1)


@contextmanager
def one_answer_lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Redis carries the next script out, and its answer does not arrive."""
    lost: list[Any] = []
    plain = BlockingRedisLink.call

    def call(self: BlockingRedisLink, words: Any) -> Any:
        answer = plain(self, words)
        if words[0] in ("EVALSHA", "EVAL") and not lost:
            lost.append(answer)
            raise LinkLost("lost by the test", sent=True)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(links.BlockingRedisLink, "call", call)
        yield lost


def test_a_push_whose_answer_was_lost_makes_one_job(server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    with stoker.connect(server.url) as queue:
        queue.push("q", b"first")
        with one_answer_lost(monkeypatch) as lost:
            pushed = queue.push("q", b"x")
        assert lost
        assert list(queue.pull("q", 10).ids)[1:] == [pushed.id]


def test_an_ack_whose_answer_was_lost_counts_as_done(server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    with stoker.connect(server.url) as queue:
        job = queue.push("q", b"x").id
        delivery = queue.pull("q")
        with one_answer_lost(monkeypatch) as lost:
            queue.ack(job, delivery.token)
        assert lost


def test_what_may_not_be_repeated_is_unknown(server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    with stoker.connect(server.url) as queue:
        queue.execute(c.KvSet("n", b"1"))
        with one_answer_lost(monkeypatch), pytest.raises(errors.Unknown, match="KvIncrement"):
            queue.execute(c.KvIncrement("n", 1))


def test_a_restart_is_waited_for(make_server: MakeServer):
    server = make_server("redis", "--appendonly", "yes", "--appendfsync", "always")
    with stoker.connect(server.url + "?retry_s=60") as queue:
        first = queue.push("q", b"x")
        server.kill()
        starts = threading.Timer(0.5, server.start)
        starts.start()
        second = queue.push("q", b"y")
        starts.join()
        assert second.id > first.id
        assert not queue.broker.losses  # type: ignore[attr-defined]


def test_a_server_that_is_away_is_unreachable_at_once_if_asked_for(make_server: MakeServer):
    server = make_server()
    with stoker.connect(server.url + "?retry_s=0") as queue:
        queue.push("q", b"x")
        server.kill()
        with pytest.raises(errors.Unavailable):
            queue.push("q", b"x")
        with pytest.raises(errors.Unreachable):
            queue.pull("q", wait_ms=60_000)


def test_a_waiting_pull_outlives_a_restart(make_server: MakeServer):
    server = make_server("redis", "--appendonly", "yes")
    with stoker.connect(server.url + "?retry_s=60&net_ms=600000") as queue:
        queue.push("other", b"x")
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(queue.pull("q", wait_ms=60_000)))
        thread.start()
        time.sleep(0.2)
        server.restart()
        with stoker.connect(server.url) as producer:
            producer.push("q", b"x")
        thread.join(60)
        assert found
        assert found[0].runs


def test_scripts_are_loaded_again_after_script_flush(server: RedisServer):
    with stoker.connect(server.url) as queue, server.client() as client:
        queue.push("q", b"x")
        client.script_flush()
        queue.push("q", b"x")
        client.script_flush()
        assert len(queue.pull("q", 10).ids) == 2


def test_a_full_memory_refuses_pushes_and_lets_jobs_be_worked_off(make_server: MakeServer):
    server = make_server()
    with stoker.connect(server.url + "?retry_s=0") as queue, server.client() as client:
        job = queue.push("q", b"x").id
        client.config_set("maxmemory", "1mb")
        with pytest.raises(errors.MemoryFull, match="maxmemory"):
            queue.push("q", b"y" * 100_000)
        delivery = queue.pull("q")
        queue.ack(job, delivery.token)
        client.config_set("maxmemory", "0")
        assert queue.push("q", b"y").id > job


def until_busy(client: "redis.Redis") -> None:
    for _ in range(6_000):
        try:
            client.ping()
        except redis.ResponseError:
            return
        time.sleep(0.01)
    raise AssertionError("no script takes too long")


def test_a_script_that_takes_too_long_is_waited_for(make_server: MakeServer):
    server = make_server("redis", "--lua-time-limit", "50")
    with stoker.connect(server.url + "?retry_s=60") as queue, server.client() as slow, server.client() as client:
        queue.push("q", b"x")

        def spin() -> None:
            try:
                slow.eval("while true do end", 0)
            except Exception:
                pass  # it was killed

        thread = threading.Thread(target=spin)
        thread.start()
        until_busy(client)
        with stoker.connect(server.url + "?retry_s=0") as hasty, pytest.raises(errors.Unreachable, match="script"):
            hasty.push("q", b"x")
        killer = threading.Timer(0.3, client.script_kill)
        killer.start()
        assert queue.push("q", b"y").id
        killer.join()
        thread.join()


def test_a_master_that_becomes_a_replica_is_unreachable_until_it_is_back(make_server: MakeServer):
    server = make_server()
    with stoker.connect(server.url + "?retry_s=0") as queue, server.client() as client:
        queue.push("q", b"x")
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(errors.Unreachable, match="replica"):
            queue.push("q", b"x")
        client.execute_command("REPLICAOF", "NO", "ONE")
        assert queue.push("q", b"x").id


@pytest.mark.parametrize("code", sorted(AWAY))
def test_what_passes_is_tried_again(code: str):
    assert isinstance(meaning(HERE, RedisRefusal(f"{code} says why")), errors.Unreachable)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("OOM command not allowed", errors.MemoryFull),
        ("MISCONF Redis is configured to save RDB snapshots", errors.Unavailable),
        ("NOREPLICAS Not enough good replicas to write.", errors.Unavailable),
        ("NOPERM this user has no permissions", errors.Forbidden),
        ("NOAUTH Authentication required.", errors.Unauthenticated),
        ("WRONGTYPE Operation against a key", errors.Damaged),
        ("ERR user_script:1: something", errors.Damaged),
    ],
)
def test_every_error_of_redis_has_a_meaning(said: str, error: type[errors.StokerError]):
    assert type(meaning(HERE, RedisRefusal(said))) is error


@pytest.mark.parametrize("way", ["flushall", "restart"])
def test_lost_data_is_told_loudly_and_counted(make_server: MakeServer, way: str, caplog: pytest.LogCaptureFixture):
    server = make_server()
    with stoker.connect(server.url + "?retry_s=60") as queue, caplog.at_level(logging.ERROR, "stoker.client"):
        ids = [queue.push("q", b"x").id for _ in range(3)]
        if way == "flushall":
            with server.client() as client:
                client.flushall()
        else:
            server.restart()
        again = queue.push("q", b"x").id
        queue.push("q", b"x")
        assert again > max(ids)
        assert queue.broker.losses == 1  # type: ignore[attr-defined]
        assert ["has lost data of tenant 'default'" in one.message for one in caplog.records] == [True]


def test_a_cancelled_pull_gives_its_jobs_back(server: RedisServer):
    async def main() -> None:
        queue = await stoker.aio.connect(server.url)
        await queue.push("q", b"x")
        pull = asyncio.create_task(queue.pull("q"))
        for _ in range(3):
            await asyncio.sleep(0)
        pull.cancel()
        await asyncio.gather(pull, return_exceptions=True)
        assert (await queue.pull("q", wait_ms=60_000)).runs
        await queue.close()

    asyncio.run(main())


def test_a_forked_process_has_connections_of_its_own(server: RedisServer):
    with stoker.connect(server.url) as queue:
        queue.push("q", b"parent")
        child = os.fork()
        if not child:
            try:
                queue.push("q", b"child")
                os._exit(0)
            finally:
                os._exit(1)
        queue.push("q", b"parent")
        assert os.waitpid(child, 0)[1] == 0
        assert sorted(queue.pull("q", 10).payloads) == [b"child", b"parent", b"parent"]


def test_a_forked_process_finds_connections_that_were_closed(server: RedisServer):
    """A broker that raised here would leave the other brokers of the child on the parent's connections."""
    broker = open_redis(urlsplit(server.url))
    broker.pool(node_of(broker.target)).take().close()
    broker.begin_anew()
    broker.close()


# --- a cluster -------------------------------------------------------------------------------------


def free_port() -> int:
    """One below those that the system gives to connections. A node's second port is this one and 10,000."""
    while True:
        port = random.randrange(10_000, 22_000)
        with socket.socket() as bound, socket.socket() as second:
            try:
                bound.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            return port


def cluster_node(make_server: MakeServer, kind: str) -> tuple[RedisServer, int]:
    port = free_port()
    return make_server(kind, "--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes"), port


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_one_node_in_cluster_mode(make_server: MakeServer, kind: str):
    server, port = cluster_node(make_server, kind)
    with (
        server.client() as client,
        stoker.connect(f"redis://127.0.0.1:{port}?cluster=true&retry_s=0") as hasty,
        stoker.connect(f"redis://127.0.0.1:{port}?cluster=true&retry_s=60") as queue,
    ):
        with pytest.raises(errors.Unreachable):
            hasty.push("q", b"x")  # no server has the slot yet
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        job = queue.push("q", b"x")
        assert list(queue.pull("q", wait_ms=60_000).ids) == [job.id]
        assert queue.as_tenant("other").push("q", b"x").id
        client.execute_command("CLUSTER", "DELSLOTS", *range(16384))
        with pytest.raises(errors.Unreachable):
            hasty.push("q", b"x")


def test_a_cluster_must_be_named_as_one_and_nothing_else(make_server: MakeServer, server: RedisServer):
    _, port = cluster_node(make_server, "redis")
    with stoker.connect(f"redis://127.0.0.1:{port}") as queue, pytest.raises(errors.CannotOpen, match="cluster=true"):
        queue.push("q", b"x")
    with stoker.connect(server.url + "?cluster=true") as queue, pytest.raises(errors.CannotOpen, match="no cluster"):
        queue.push("q", b"x")


def test_a_tenant_that_has_moved_is_followed(make_server: MakeServer):
    """MOVED by a server that gave its slots away."""
    (one, port), (other, other_port) = (cluster_node(make_server, "redis") for _ in range(2))
    with one.client() as first, other.client() as second:
        first.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        second.execute_command("CLUSTER", "MEET", "127.0.0.1", port)
        node_id = second.execute_command("CLUSTER", "MYID").decode()
        for client in (first, second):
            for _ in range(6_000):
                if b"cluster_known_nodes:2" in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True):
                    break
                time.sleep(0.01)
            else:
                raise AssertionError("the nodes do not meet")
        with stoker.connect(f"redis://127.0.0.1:{port}?cluster=true&retry_s=60") as queue:
            queue.as_tenant("stays").push("q", b"x")
            for client in (second, first):
                for slot in (slot_of("moves"),):
                    client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", node_id)
            broker: Any = queue.broker
            broker._routes["moves"] = broker._seed  # where it was until now
            moved = queue.as_tenant("moves")
            job = moved.push("q", b"x")
            assert list(moved.pull("q", wait_ms=60_000).ids) == [job.id]
        assert second.execute_command("DBSIZE") > 0
        assert other_port != port


def slot_of(tenant: str) -> int:
    from redis.crc import key_slot

    return int(key_slot(f"stoker:{{{tenant}/0}}:n".encode()))
