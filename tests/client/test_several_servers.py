"""A URL that names several servers: calls go to one of them, and to the next one when it is away."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

import stoker
from stoker.brokers.connect import open_broker
from stoker.brokers.remote.broker import RemoteBroker
from stoker.brokers.remote.opening import open_remote
from stoker.brokers.remote.settings import read_url
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, Unreachable
from stoker.model.options import Options
from tests.client.serving import TIMEOUT_S, ServerThread, Stranger, read_all
from tests.client.test_connections import ONLY
from tests.ports import kept_port

PATIENT = "retry_s=30&connect_timeout_s=30"


class Two:
    """Two servers of which either can be stopped."""

    def __init__(self, scheme: str = "tcp") -> None:
        self.scheme = scheme
        self.servers = [ServerThread(ONLY[scheme]) for _ in range(2)]
        self._stacks = [ExitStack() for _ in self.servers]

    def __enter__(self) -> "Two":
        for stack, server in zip(self._stacks, self.servers, strict=True):
            stack.enter_context(server)
        return self

    def __exit__(self, *error: object) -> None:
        for stack in self._stacks:
            stack.close()

    @property
    def url(self) -> str:
        return f"{self.scheme}://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def stop(self, number: int) -> None:
        self._stacks[number].close()

    def pushed(self, number: int) -> int:
        """How many jobs one of them has."""
        return self.servers[number].broker.execute("default", c.GetStats("a")).counts.waiting

    def used(self) -> int:
        """The server that the client has pushed to."""
        return 0 if self.pushed(0) else 1


@pytest.fixture
def two() -> Iterator[Two]:
    with Two() as servers:
        yield servers


def caller(broker: RemoteBroker, is_async: bool) -> tuple[Callable[[c.Command[Any]], Any], Callable[[], None]]:
    """A way to ask: with calls that block, or on one event loop that stays. And what ends it."""
    if not is_async:
        return lambda command: broker.execute("default", command), broker.close
    loop = asyncio.new_event_loop()

    def end() -> None:
        broker.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    return lambda command: loop.run_until_complete(broker.execute_async("default", command)), end


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("scheme", ["tcp", "http", "grpc"])
def test_calls_go_on_at_the_other_server_when_one_ends(scheme: str, is_async: bool):
    with Two(scheme) as two:
        broker = open_broker(f"{two.url}?{PATIENT}")
        assert isinstance(broker, RemoteBroker)
        ask, end = caller(broker, is_async)
        for _ in range(3):
            ask(c.Push("a", b""))
        used = two.used()
        assert two.pushed(used) == 3, "one server is preferred"
        two.stop(used)
        for _ in range(3):
            ask(c.Push("a", b""))
        assert two.pushed(1 - used) == 3
        end()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_server_that_listens_and_says_nothing_is_passed_over(is_async: bool):
    with Stranger(read_all) as silent, ServerThread() as server:
        url = f"tcp://127.0.0.1:{silent.port},127.0.0.1:{server.port}"
        for _ in range(4):  # which one is tried first is chosen at random
            broker = open_broker(f"{url}?retry_s=30&connect_timeout_s=0.5&timeout_s=30")  # a busy one may be late, too
            assert isinstance(broker, RemoteBroker)
            ask, end = caller(broker, is_async)
            ask(c.Push("a", b""))
            end()
        assert server.broker.execute("default", c.GetStats("a")).counts.waiting == 4


@pytest.mark.parametrize("is_async", [False, True])
def test_a_pull_that_waits_goes_to_the_other_server_when_its_own_one_stops(two: Two, is_async: bool):
    broker = open_broker(f"{two.url}?{PATIENT}")
    assert isinstance(broker, RemoteBroker)
    ask, end = caller(broker, is_async)
    ask(c.Push("a", b"here"))
    used = two.used()
    assert len(ask(c.Pull(["a"], worker="w", lease_ms=60_000))) == 1
    got: list[Any] = []
    waiting_pull = c.Pull(["a"], worker="w", lease_ms=60_000, wait_ms=50_000)
    pulling = threading.Thread(target=lambda: got.append(ask(waiting_pull)))
    pulling.start()
    leaving = two.servers[used]
    until(lambda: leaving.server.dispatcher.is_waiting)
    stopping = asyncio.run_coroutine_threadsafe(leaving.server.stop(), leaving._loop)
    two.servers[1 - used].broker.execute("default", c.Push("a", b"there"))
    pulling.join(TIMEOUT_S)
    assert [payload for delivery in got for run in delivery.runs for payload in run.payloads] == [b"there"]
    leaving._loop.call_soon_threadsafe(leaving.server.hurry)
    stopping.result(TIMEOUT_S)
    end()


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(TIMEOUT_S * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


def test_a_worker_goes_on_at_the_other_server(two: Two):
    """Each of these two servers has a queue of its own, so what was done tells where the worker pulls."""
    app = stoker.App(url=f"{two.url}?{PATIENT}")
    done: list[str] = []

    @app.job(queue="a", name="note")
    def note(where: str) -> None:
        done.append(where)

    worker = app.worker()
    working = threading.Thread(target=worker.run, daemon=True)
    working.start()
    for number, server in enumerate(two.servers):
        server.broker.execute("default", c.Push("a", note_of(str(number)), Options(name="note", codec="json")))
    until(lambda: len(done) == 1)
    first = int(done[0])
    until(lambda: completed(two.servers[first]) == 1)
    two.stop(first)
    until(lambda: len(done) == 2)
    assert done[1] == str(1 - first)
    worker.stop()
    working.join(TIMEOUT_S)
    app.close()


def note_of(where: str) -> bytes:
    return msgspec.json.encode({"where": where})


def completed(server: ServerThread) -> int:
    return server.broker.execute("default", c.GetStats("a")).counts.completed


def test_all_servers_away_names_all_of_them():
    with kept_port() as one, kept_port() as other:
        broker = open_broker(f"tcp://127.0.0.1:{one},127.0.0.1:{other}?retry_s=0")
        with pytest.raises(Unreachable, match=f"(?s)any address of.*{one}.*{other}"):
            broker.execute("default", c.ListQueues())
        broker.close()


def test_the_command_line_takes_several_addresses():
    with kept_port() as silent, ServerThread() as server:
        url = f"tcp://127.0.0.1:{silent},127.0.0.1:{server.port}"
        command = [sys.executable, "-m", "stoker", "push", "a", "1", "--url", url]
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
        assert server.broker.execute("default", c.GetStats("a")).counts.waiting == 1


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("tcp://a:1,b:2", [("a", 1), ("b", 2)]),
        ("tcp://:secret@a,b:2", [("a", 6789), ("b", 2)]),
        ("https://[::1]:1,[::2]", [("::1", 1), ("::2", 6790)]),
        ("tcp://", [("127.0.0.1", 6789)]),
    ],
)
def test_addresses_are_divided_by_commas(url: str, places: list[tuple[str, int]]):
    address, settings = read_url(urlsplit(url), None)
    assert [(each.host, each.port) for each in address.each] == places
    assert settings.token == ("secret" if "secret" in url else None)
    assert "secret" not in str(address)


@pytest.mark.parametrize("url", ["tcp://a,,b", "tcp://a,b:x", "tcp://a:1,"])
def test_an_address_that_is_none_is_refused(url: str):
    with pytest.raises(InvalidRequest, match="cannot connect to tcp://"):
        open_remote(urlsplit(url), None)
