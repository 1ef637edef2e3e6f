"""A server in front of Redis: what it prints and refuses, and that any server answers any request."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import stoker
from stoker.client.aio import AsyncClient
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.model.errors import ShuttingDown, Unsupported
from tests.redis.servers import RedisServer, shared
from tests.redis_served.conftest import MakeNode, MakeServer
from tests.redis_served.nodes import QUICK, SOON_S, TRANSPORTS, Node, until

Nodes = tuple[Node, Node]
LACKING = [c.AckClaim("x"), c.ReleaseClaim("x"), c.ExtendClaim("x"), c.Abort("x"), c.Pull(("q",), claim="x")]


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def refused(*words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    off = ("--tcp", "127.0.0.1:0", "--http", "off", "--grpc", "off")
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "serve", *off, *words],
        env=environment, capture_output=True, text=True, timeout=SOON_S, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert not done.stdout
    return done.stderr


def test_it_says_what_it_serves_and_what_an_answer_is_worth(make_server: MakeServer, make_node: MakeNode):
    server = make_server("redis", "--appendonly", "yes", "--appendfsync", "always")
    node = make_node(server)
    assert node.lines[-1] == f"broker {server.url} (version 6.2.14), durability: fsync\n"
    with node.connect() as client:
        assert client.push("q", b"x").level == "fsync"
    assert sorted(path.name for path in node.folder.iterdir()) == ["log", "node.sock"]
    assert node.terminate() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "stoker.db"), "data (--data): the queue is in Redis"),
        (("--processes", "2"), "start more servers with the same broker"),
        (("--durability", "fsync"), "appendfsync"),
        (("--set", "journal.events_bytes_max=1MiB"), "journal.events_bytes_max"),
    ],
)
def test_what_belongs_to_a_data_directory_is_refused(words: tuple[str, ...], said: str, tmp_path: Path):
    told = refused("--broker", "redis://127.0.0.1:1", *words)
    assert said in told
    assert "--broker" in told


def test_a_broker_that_cannot_be_served_is_refused(tmp_path: Path):
    assert "redis://" in refused("--broker", "http://user:password@host")
    said = refused("--broker", f"redis+unix://{tmp_path}/nothing.sock")
    assert "no Redis answers" in said
    assert "password" not in refused("--broker", "redis://user:password@127.0.0.1:1")


def test_something_that_is_no_redis_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            peer, _ = listener.accept()
            peer.recv(1_000)
            peer.close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        said = refused("--broker", f"redis://127.0.0.1:{listener.getsockname()[1]}")
        answering.join()
    assert "does not answer" in said
    assert "(unreachable)" in said


def test_any_server_answers_any_request(nodes: Nodes, transport: str):
    with nodes[0].connect(transport) as one, nodes[1].connect(transport) as two:
        first = one.push("mail", b"one").id
        rest = two.push_many("mail", [b"two", b"three"]).ids
        delivery = two.pull("mail", count=2)
        assert [(job.id, job.payload) for job in delivery] == [(first, b"one"), (rest[0], b"two")]
        one.ack(first, delivery.token, b"done")
        two.fail(rest[0], delivery.token, "no")
        assert two.get_job(first).result == b"done"
        assert one.get_job(rest[0]).error == "no"
        assert one.list_queues() == two.list_queues()
        one.obliterate("mail")


@pytest.mark.parametrize("command", LACKING, ids=lambda command: type(command).__name__)
def test_what_redis_lacks_is_refused_with_the_same_words_everywhere(nodes: Nodes, command: c.Command[object]):
    said = set[str]()
    for transport in TRANSPORTS:
        with nodes[0].connect(transport) as client, pytest.raises(Unsupported) as refusal:
            client.execute(command)
        said.add(refusal.value.message)
    (words,) = said
    assert "'redis'" in words
    assert "sqlite:///" in words


def blocked(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("clients")["blocked_clients"])


def pulls_of(node: Node) -> int:
    """Counted when they are handed in."""
    found = re.search(r'command="pull",outcome="ok"} ([0-9]+)', node.ask("GET", "/metrics/prometheus")[1])
    return int(found[1]) if found is not None else 0


def test_waiting_pulls_of_all_connections_share_one_blocked_connection(nodes: Nodes):
    """One for each server, and each job wakes one pull."""
    server, count = shared("redis"), 60

    async def wait(clients: list[AsyncClient], pusher: Client) -> list[bytes]:
        pulls = [asyncio.ensure_future(clients[at % 4].pull("many", wait_ms=60_000)) for at in range(count)]
        await asyncio.to_thread(until, lambda: sum(map(pulls_of, nodes)) >= count)
        await asyncio.to_thread(until, lambda: blocked(server) == 2)
        await asyncio.to_thread(pusher.push_many, "many", [b"%d" % number for number in range(count)])
        async with asyncio.timeout(SOON_S):
            return [payload for delivery in await asyncio.gather(*pulls) for payload in delivery.payloads]

    async def run() -> list[bytes]:
        clients = [await stoker.aio.connect(nodes[at % 2].urls["tcp"]) for at in range(4)]
        try:
            with nodes[0].connect() as pusher:
                return await wait(clients, pusher)
        finally:
            for client in clients:
                await client.close()

    found = asyncio.run(run())
    assert sorted(found, key=int) == [b"%d" % number for number in range(count)]
    with nodes[0].connect() as client:
        client.obliterate("many", force=True)


def test_sigterm_lets_running_jobs_end(make_node: MakeNode):
    """Those that were pulled through this server; those of another one are not its own."""
    server = shared("valkey")
    node, other = make_node(server), make_node(server)
    with node.connect(query=QUICK) as client, other.connect() as beside:
        client.push_many("q", [b"1", b"2"])
        mine, theirs = client.pull("q"), beside.pull("q", lease_ms=600_000)
        node.process.terminate()
        until(lambda: is_refused(client))
        assert node.process.poll() is None
        client.ack(mine.ids[0], mine.token)
        assert node.process.wait(SOON_S) == 0
        assert beside.get_job(mine.ids[0]).state == "completed"
        beside.ack(theirs.ids[0], theirs.token)
    with server.client() as redis:
        redis.flushall()


def is_refused(client: Client) -> bool:
    """Whether the server gives out no more jobs."""
    try:
        client.pull("none")
    except ShuttingDown:
        return True
    return False


def test_a_second_signal_hands_running_jobs_back(make_node: MakeNode):
    server = shared("valkey")
    node, other = make_node(server), make_node(server)
    with node.connect(query=QUICK) as client, other.connect() as beside:
        job = client.push("q", b"1").id
        client.pull("q", lease_ms=600_000)
        node.process.terminate()
        until(lambda: is_refused(client))
        node.process.terminate()
        assert node.process.wait(SOON_S) == 0
        view = beside.get_job(job)
        assert (view.state, view.attempts) == ("waiting", 0)
    with server.client() as redis:
        redis.flushall()
