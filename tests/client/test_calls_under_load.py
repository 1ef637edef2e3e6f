"""Many calls of one event loop at once: cancelled ones and those that run out of time leave nothing behind."""

import asyncio
import gc
import logging
import random
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from stoker.brokers.remote.broker import LoopConnections, RemoteBroker
from stoker.brokers.remote.links import OpenCalls, StreamLink
from stoker.brokers.remote.opening import open_remote
from stoker.client.aio import AsyncClient
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.replies import Delivery
from stoker.wire import native
from stoker.wire.frames import framed
from tests.client.serving import TIMEOUT_S, ServerThread, Stranger, read_all


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with ServerThread() as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_unheard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An error that no caller has heard of is told by asyncio when its future is collected."""
    with caplog.at_level(logging.ERROR, "asyncio"):
        yield
        gc.collect()
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


def opened(url: str) -> RemoteBroker:
    broker = open_remote(urlsplit(url), None)
    assert isinstance(broker, RemoteBroker)
    return broker


def connections(broker: RemoteBroker) -> LoopConnections:
    (streams,) = broker._streams.values()
    return streams


def open_calls(streams: LoopConnections) -> OpenCalls:
    assert isinstance(streams.link, StreamLink)
    return streams.link._calls


async def until_none_is_open(broker: RemoteBroker) -> None:
    streams = connections(broker)
    async with asyncio.timeout(TIMEOUT_S):
        while len(streams.deadlines) or len(open_calls(streams)):  # noqa: ASYNC110  late replies tell no caller
            await asyncio.sleep(0.01)


def test_cancelled_calls_leave_no_future_and_no_job_behind(server: ServerThread):
    chance = random.Random(7)

    async def main() -> None:
        broker = opened(f"{server.url}?timeout_s={TIMEOUT_S}")
        client = AsyncClient(broker)
        await client.push_batch("jobs", [b"x"] * 200)
        for _ in range(20):
            calls: list[asyncio.Task[Any]] = [asyncio.create_task(client.push("q", b"")) for _ in range(30)]
            calls += [asyncio.create_task(client.pull("jobs", 1)) for _ in range(10)]
            calls += [asyncio.create_task(client.pull("none", 1, wait_ms=600_000)) for _ in range(5)]
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            for call in calls:
                if not call.done():
                    call.cancel()
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(outcome, Delivery) and outcome.ids:
                    await client.execute(c.Release(list(outcome.ids), outcome.token))
        await until_none_is_open(broker)
        async with asyncio.timeout(TIMEOUT_S):
            while (await client.get_counts("jobs")).waiting < 200:  # noqa: ASYNC110  nor do jobs that go back
                await asyncio.sleep(0.01)
        assert await client.pull("jobs", 1)
        broker.close()

    asyncio.run(main())


def silent(connection: socket.socket) -> None:
    """Welcome a client, and answer nothing that comes after."""
    connection.recv(65_536)
    welcome = native.answered({"protocol": native.PROTOCOL}, 1, "msgpack")
    connection.sendall(framed(welcome, "lengths"))
    read_all(connection)


def test_calls_that_run_out_of_time_all_fail_and_leave_no_future_behind():
    async def main(port: int) -> None:
        broker = opened(f"tcp://127.0.0.1:{port}?timeout_s=0.5&retry_s=0&connect_timeout_s={TIMEOUT_S}")
        calls: list[Any] = [broker.execute_async("default", c.Push("q", b"")) for _ in range(200)]
        calls += [broker.execute_async("default", c.Pull(["q"], wait_ms=600_000)) for _ in range(20)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, StokerError) for outcome in outcomes)
        assert any("no answer within 0.5 s" in str(outcome) for outcome in outcomes)
        assert len(connections(broker).deadlines) == 0
        broker.close()

    with Stranger(silent) as stranger:
        asyncio.run(main(stranger.port))


def test_a_call_that_may_wait_for_longer_does_not_run_out_of_time_with_the_others(server: ServerThread):
    async def main() -> None:
        broker = opened(f"{server.url}?timeout_s={TIMEOUT_S}")
        waiting = asyncio.create_task(broker.execute_async("default", c.Pull(["q"], wait_ms=600_000)))
        for _ in range(50):
            await broker.execute_async("default", c.Push("other", b""))
        assert len(connections(broker).deadlines) == 1
        await broker.execute_async("default", c.Push("q", b"x"))
        assert list((await waiting).payloads) == [b"x"]
        assert len(connections(broker).deadlines) == 0
        broker.close()

    asyncio.run(main())
