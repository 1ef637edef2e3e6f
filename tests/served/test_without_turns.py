"""A broker without turns that has logs: its events are streamed, subscribed to and posted, as those of any other.

That its commands mean what they mean is shown by the conformance suite, over `tcp-without-turns`.
"""

import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import stoker
from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.client.sync import Client
from stoker.server.config.tree import TracingSettings
from tests.grpc.support import LoopThread
from tests.http.support import EventReader
from tests.served.any_server import TRANSPORTS, AnyServer
from tests.served.no_turns import WithoutTurns
from tests.webhooks.support import Receiver, settings

WAIT_S = 60


def make() -> WithoutTurns:
    return WithoutTurns(LocalBroker(LocalSettings(shards=4)))


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def server(loop: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyServer]:
    """With spans for each command, which must not be in the way."""
    folder, spans = tmp_path_factory.mktemp("without"), TracingSettings(enabled=True)
    server = AnyServer(loop, folder, make, webhooks=settings(), tracing=spans)
    yield server
    server.close()


@pytest.fixture
def client(server: AnyServer) -> Iterator[Client]:
    with stoker.connect(server.urls["tcp"]) as client:
        yield client


def port_of(server: AnyServer, transport: str) -> int:
    return int(server.urls[transport].rpartition(":")[2])


@pytest.mark.parametrize("path", ["/events", "/events/sse"])
def test_events_are_streamed_as_they_happen_and_again(server: AnyServer, client: Client, path: str):
    reader = EventReader(port_of(server, "http"), path, {})
    first = client.push("sse", b"1").id
    assert reader.next()[1]["job_id"] == first
    reader.close()
    second = client.push("sse", b"2").id
    again = EventReader(port_of(server, "http"), path, {"last_event_id": reader.last_id})
    name, event = again.next()
    again.close()
    assert (name, event["job_id"]) == ("pushed", second)


def test_a_connection_subscribes_to_events(server: AnyServer, client: Client):
    def line() -> Any:
        return msgspec.json.decode(answers.readline())

    with socket.create_connection(("127.0.0.1", port_of(server, "tcp")), WAIT_S) as peer:
        answers = peer.makefile("rb")
        peer.sendall(b'{"cmd":"subscribe","reqId":1,"body":{"queue":"told"}}\n')
        assert line()["ok"]
        job = client.push("told", b"x").id
        event = line()["event"]
        assert (event["kind"], event["job"]) == ("pushed", job)


def test_events_are_posted_to_hooks(server: AnyServer, client: Client):
    """Where the hooks are kept is the system's own tenant, which the broker is asked for like any other."""

    async def open_receiver() -> Receiver:
        return await Receiver().__aenter__()

    receiver = server.run(open_receiver())
    try:
        wanted = {"url": receiver.url(), "events": ["pushed"], "queue": "hooked"}
        status, hook = server.ask("POST", "/webhooks", wanted)
        assert status == 201
        client.push("hooked", b"x")
        (got,) = server.run(receiver.count(1))
        assert got.json["queue"] == "hooked"
        status, listed = server.ask("GET", "/webhooks")
        assert [one["id"] for one in listed["data"]] == [hook["data"]["id"]]
    finally:
        server.run(receiver.__aexit__())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_many_pushes_at_once_keep_their_order(server: AnyServer, transport: str):
    with stoker.connect(server.urls[transport]) as client:
        ids = client.push_many(f"order-{transport}", [b"%d" % number for number in range(500)]).ids
        assert client.pull(f"order-{transport}", 500).payloads == [b"%d" % number for number in range(500)]
        assert list(ids) == sorted(ids)


def test_requests_without_numbers_are_answered_in_their_order(server: AnyServer):
    with socket.create_connection(("127.0.0.1", port_of(server, "tcp")), WAIT_S) as peer:
        pushes = [b'{"cmd":"push","body":{"queue":"lined","payload":""}}' for _ in range(50)]
        peer.sendall(b"\n".join([*pushes, b'{"cmd":"get_stats","body":{"queue":"lined"}}', b""]))
        answers = peer.makefile("rb")
        told = [msgspec.json.decode(answers.readline()) for _ in range(51)]
    ids = [one["body"]["id"] for one in told[:50]]
    assert ids == sorted(ids)
    assert told[50]["body"]["counts"]["waiting"] == 50
