"""Webhooks in front of Redis: any server registers them, one posts them, and another one goes on when it dies."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.grpc.support import LoopThread
from tests.redis.servers import shared
from tests.redis_served.conftest import MakeNode
from tests.redis_served.nodes import Node, until
from tests.webhooks.support import Receiver

Nodes = tuple[Node, Node]


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def receiver(loop: LoopThread) -> Iterator[Receiver]:
    async def opened() -> Receiver:
        return await Receiver().__aenter__()

    found = loop.run(opened())
    yield found
    loop.run(found.__aexit__())


def posted(node: Node) -> int:
    """How many posts of this server were taken."""
    text = node.ask("GET", "/metrics/prometheus")[1]
    found = re.search(r'stoker_webhooks_total{outcome="delivered"} ([0-9]+)', text)
    assert found is not None
    return int(found[1])


def register(node: Node, receiver: Receiver, **more: Any) -> str:
    wanted = {"url": receiver.url(), "events": ["pushed"], "queue": "mail", **more}
    status, answer = node.ask("POST", "/webhooks", wanted)
    assert status == 201, answer
    return str(answer["data"]["id"])


def push(node: Node, count: int) -> list[int]:
    with node.connect() as client:
        return [client.push("mail", b"%d" % number).id for number in range(count)]


def test_any_server_registers_and_one_posts(nodes: Nodes, receiver: Receiver):
    one, two = nodes
    hook = register(one, receiver)
    jobs = push(two, 20)
    until(lambda: len(receiver.got) >= 20)
    assert [got.json["job_id"] for got in receiver.got] == jobs
    assert len({got.delivery for got in receiver.got}) == 20
    until(lambda: sorted(map(posted, nodes)) == [0, 20])  # a post is counted when its answer has come
    for node in nodes:
        assert [listed["id"] for listed in node.ask("GET", "/webhooks")[1]["data"]] == [hook]
    until(lambda: all(delivered(node) == 20 for node in nodes))
    assert two.ask("POST", f"/webhooks/{hook}/test")[1]["data"]["ok"]
    assert two.ask("DELETE", f"/webhooks/{hook}")[0] == 200
    assert one.ask("GET", "/webhooks")[1]["data"] == []


def delivered(node: Node) -> int:
    return int(node.ask("GET", "/webhooks")[1]["data"][0]["status"]["delivered"])


def test_a_change_on_one_server_reaches_the_one_that_posts(nodes: Nodes, receiver: Receiver):
    hooks = [register(node, receiver, queue=f"q{number}") for number, node in enumerate(nodes)]
    with nodes[0].connect() as client:
        client.push("q0", b"x")
        client.push("q1", b"x")
        until(lambda: {got.json["queue"] for got in receiver.got} == {"q0", "q1"})
        silent = next(node for node in nodes if not posted(node))
        assert silent.ask("DELETE", f"/webhooks/{hooks[0]}")[0] == 200
        changed = {"id": hooks[1], "url": receiver.url("/other"), "events": ["pushed"], "queue": "q1"}
        assert silent.ask("POST", "/webhooks", changed)[0] == 200
        until(lambda: client.push("q1", b"y").id and receiver.got[-1].line.startswith("POST /other"))
        before = len([got for got in receiver.got if got.json["queue"] == "q0"])
        client.push("q0", b"z")
        last = client.push("q1", b"z").id
        until(lambda: any(got.json["job_id"] == last for got in receiver.got))
        assert len([got for got in receiver.got if got.json["queue"] == "q0"]) == before == 1


def test_another_server_goes_on_when_the_one_that_posts_ends(make_node: MakeNode, receiver: Receiver):
    """One that stops hands over what it has done. What one that is killed has not noted is posted again: same ids."""
    server = shared("valkey")
    stops = make_node(server)
    register(stops, receiver)
    jobs = push(stops, 5)
    until(lambda: len(receiver.got) >= 5)
    dies = make_node(server)
    assert stops.terminate() == 0
    jobs += push(dies, 5)
    until(lambda: len(receiver.got) >= 10)
    assert [got.json["job_id"] for got in receiver.got] == jobs
    other = make_node(server)
    jobs += push(other, 50)
    until(lambda: len(receiver.got) >= 20)
    dies.kill()
    jobs += push(other, 50)
    until(lambda: {got.json["job_id"] for got in receiver.got} == set(jobs))
    ids: dict[int, set[str]] = {}
    for got in receiver.got:
        ids.setdefault(got.json["job_id"], set()).add(got.delivery)
    assert all(len(each) == 1 for each in ids.values())
    until(lambda: posted(other) >= 50)
    with server.client() as client:
        client.flushall()
