"""A Redis that is slow, or away for a while: calls say so at once, and no client loses its connection."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import stoker
from stoker.model.errors import Unreachable
from tests.redis.servers import RedisServer
from tests.redis_served.conftest import MakeNode, MakeServer
from tests.redis_served.nodes import PATIENT, QUICK, SOON_S, TRANSPORTS, Node, until

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


class Peer:
    """A connection that speaks JSON lines, and never connects again."""

    def __init__(self, node: Node) -> None:
        host, port = node.urls["tcp"].removeprefix("tcp://").split(":")
        self._socket = socket.create_connection((host, int(port)), SOON_S)
        self._lines = self._socket.makefile("rb")

    def send(self, cmd: str, **body: Any) -> None:
        self._socket.sendall(json.dumps({"cmd": cmd, "body": body}).encode() + b"\n")

    def receive(self) -> Any:
        return json.loads(self._lines.readline())

    def ask(self, cmd: str, **body: Any) -> Any:
        self.send(cmd, **body)
        return self.receive()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@contextmanager
def asleep(server: RedisServer) -> Iterator[None]:
    """Redis does nothing for two seconds."""
    with server.client() as client:
        connection = client.connection_pool.get_connection()
        connection.send_command("DEBUG", "SLEEP", 2)
        yield
        assert connection.read_response() == b"OK"
        connection.disconnect()


def test_a_slow_redis_makes_calls_slow_and_refuses_no_connection(make_server: MakeServer, make_node: MakeNode):
    server = make_server()
    node = make_node(server)
    ids: list[int] = []

    def push(transport: str) -> None:
        query = PATIENT if transport == "grpc" else QUICK  # on a busy machine gRPC itself gives handshakes up
        with node.connect(transport, query=query) as client:
            ids.append(client.push("q", b"x").id)

    with asleep(server):
        pushing = [threading.Thread(target=push, args=(transport,)) for transport in TRANSPORTS * 5]
        for thread in pushing:
            thread.start()
        assert node.ask("GET", "/health")[0] == 200
        assert node.ask("GET", "/ready")[0] == 200
        for thread in pushing:
            thread.join()
    assert len(set(ids)) == len(TRANSPORTS) * 5


def test_redis_goes_away_and_comes_back(make_server: MakeServer, make_node: MakeNode):
    server = make_server("redis", *DURABLE)
    node = make_node(server)
    peer, waiting = Peer(node), Peer(node)
    try:
        assert peer.ask("push", queue="q", payload="eA==")["ok"]
        waiting.send("pull", queues=["later"], wait_ms=60_000)
        with server.client() as client:
            until(lambda: client.info("clients")["blocked_clients"] == 1)
        server.kill()
        told = waiting.receive()
        assert (told["ok"], told["code"]) == (False, "unreachable")
        told = peer.ask("push", queue="q", payload="eA==")
        assert (told["ok"], told["code"]) == (False, "unreachable")
        for transport in TRANSPORTS:
            with node.connect(transport, query=QUICK) as client, pytest.raises(Unreachable):
                client.push("q", b"x")
        until(lambda: node.ask("GET", "/ready")[0] == 503)
        assert node.ask("GET", "/health")[0] == 200
        server.start()
        assert peer.ask("push", queue="q", payload="eA==")["ok"]
        assert peer.ask("get_stats", queue="q")["body"]["counts"]["waiting"] == 2
        until(lambda: node.ask("GET", "/ready")[0] == 200)
    finally:
        peer.close()
        waiting.close()


def test_waiting_clients_go_on_when_redis_is_back(make_server: MakeServer, make_node: MakeNode):
    server = make_server("redis", *DURABLE)
    node = make_node(server)
    found: list[bytes] = []

    def wait() -> None:
        with stoker.connect(f"{node.urls['tcp']}?retry_s=60") as client:
            found.extend(client.pull("q", wait_ms=60_000).payloads)

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    with server.client() as client:
        until(lambda: client.info("clients")["blocked_clients"] == 1)
    server.restart()
    with node.connect() as client:
        client.push_many("q", [b"1", b"2", b"3"])
    for thread in waiting:
        thread.join(SOON_S)
    assert sorted(found) == [b"1", b"2", b"3"]


def test_a_push_whose_answer_redis_did_not_give_is_sent_again_and_makes_one_job(
    make_server: MakeServer, make_node: MakeNode
):
    """Redis is killed under pushes: their client tries again with the same number until it is answered."""
    server = make_server("redis", *DURABLE)
    node = make_node(server)
    ids: list[int] = []

    def push(number: int) -> None:
        with stoker.connect(f"{node.urls['tcp']}?retry_s=60") as client:
            ids.extend(client.push(f"q{number}", b"%d" % place).id for place in range(200))

    pushing = [threading.Thread(target=push, args=(number,)) for number in range(3)]
    for thread in pushing:
        thread.start()
    for count in (60, 240):
        until(partial(has_stored, server, count))
        server.restart()
    for thread in pushing:
        thread.join(SOON_S)
    assert len(set(ids)) == 600
    with node.connect() as client:
        for number in range(3):
            assert client.pull(f"q{number}", 300).payloads == [b"%d" % place for place in range(200)]


def has_stored(server: RedisServer, count: int) -> bool:
    """Whether so many jobs were pushed by now."""
    with server.client() as client:
        return int(client.hget("stoker:{default/0}:n", "sequence") or 0) >= count
