"""Event streams in front of Redis: any server tells what happened through any other, to the tenant it happened to."""

import json
import socket
from typing import Any

import pytest
from websockets.sync.client import connect

from stoker.model.errors import NotFound
from tests.http.support import EventReader
from tests.redis_served.nodes import SOON_S, Node

Nodes = tuple[Node, Node]


def test_a_stream_goes_on_at_another_server(nodes: Nodes):
    one, two = nodes
    with two.connect() as client:
        reader = EventReader(one.port, "/events/sse", {})
        first = client.push("sse", b"1").id
        assert reader.next()[1]["job_id"] == first
        reader.close()
        second = client.push("sse", b"2").id
        again = EventReader(two.port, "/events", {"last_event_id": reader.last_id})
        name, event = again.next()
        again.close()
    assert (name, event["job_id"], event["queue"]) == ("pushed", second, "sse")


def test_a_stream_has_the_events_of_one_job_from_the_beginning(nodes: Nodes):
    one, two = nodes
    with one.connect() as client:
        job = client.push("story", b"1").id
        delivery = client.pull("story")
        client.push("story", b"2")
        client.ack(job, delivery.token)
    reader = EventReader(two.port, f"/events/job/{job}?from=beginning", {})
    assert reader.take(3) == [("pushed", job), ("started", job), ("completed", job)]
    reader.close()


def test_a_websocket_tells_what_happens(nodes: Nodes):
    one, two = nodes
    with connect(f"ws://127.0.0.1:{one.port}/ws/told", open_timeout=SOON_S) as stream, two.connect() as client:
        client.push("other", b"1")
        job = client.push("told", b"2").id
        event = json.loads(stream.recv(SOON_S))
    assert (event["event_type"], event["job_id"]) == ("pushed", job)


def test_a_connection_subscribes(nodes: Nodes):
    one, two = nodes
    host, port = one.urls["tcp"].removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), SOON_S) as peer, two.connect() as client:
        answers = peer.makefile("rb")

        def line() -> Any:
            return json.loads(answers.readline())

        peer.sendall(b'{"cmd":"subscribe","reqId":1,"body":{"queue":"subscribed"}}\n')
        assert line()["ok"]
        job = client.push("subscribed", b"x").id
        event = line()["event"]
        answers.close()
    assert (event["kind"], event["job"]) == ("pushed", job)


def test_a_tenant_has_its_own_events_and_jobs(nodes: Nodes):
    """Two tenants count their ids by themselves, so each may have a job of the same number."""
    one, two = nodes
    reader = EventReader(one.port, "/events", {"stoker_tenant": "blue"})
    with two.connect(tenant="red") as red, two.connect(tenant="blue") as blue:
        for number in range(3):
            red.push("secret", b"red %d" % number)
        job = blue.push("open", b"blue").id
        name, event = reader.next()
        assert (name, event["job_id"], event["queue"]) == ("pushed", job, "open")
        assert blue.get_job(job).payload == b"blue"
        assert blue.list_queues() == ["open"]
        with pytest.raises(NotFound):
            blue.get_job(3 * 64)
    reader.close()
