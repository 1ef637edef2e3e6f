"""A real receiver on loopback, a real server, and jobs to make events of."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stoker.model import commands as c
from stoker.model.options import Options
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener, WebhookSettings
from stoker.server.run import new_loop, open_queue
from stoker.server.server import Server
from stoker.server.webhooks import HookRequest
from stoker.server.webhooks.hooks import HookView, Status

T = TypeVar("T")
PATIENCE_S = 60.0
SECRET = "canary-secret-of-a-webhook"
LOOPBACK = ("127.0.0.0/8",)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def run(body: Coroutine[Any, Any, T]) -> T:
    """On the event loop that a server uses. A test that hangs is a test that fails."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(asyncio.wait_for(body, 2 * PATIENCE_S))


class Got(msgspec.Struct):
    """One request that a receiver got."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def delivery(self) -> str:
        return self.headers["x-stoker-delivery"]


Respond = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


def answering(*statuses: int) -> Respond:
    """These statuses one after another, then 200 for ever."""
    left = list(statuses)

    async def respond(got: Got, writer: asyncio.StreamWriter) -> None:
        status = left.pop(0) if left else 200
        writer.write(f"HTTP/1.1 {status} Whatever\r\nContent-Length: 0\r\n\r\n".encode())

    return respond


class Receiver:
    """Takes one request a connection, remembers it and answers as it was told."""

    def __init__(self, respond: Respond | None = None) -> None:
        self.got: list[Got] = []
        self.connections = 0
        self.respond = respond or answering()
        self._news = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0

    async def __aenter__(self) -> "Receiver":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def until(self, is_so: Callable[["Receiver"], bool]) -> list[Got]:
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: is_so(self))
        return list(self.got)

    async def count(self, number: int) -> list[Got]:
        return await self.until(lambda self: len(self.got) >= number)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
            got = Got(head[0], headers, await reader.readexactly(int(headers["content-length"])))
            async with self._news:
                self.got.append(got)
                self._news.notify_all()
            await self.respond(got, writer)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)


def settings(**given: Any) -> WebhookSettings:
    """Loopback is allowed, and nothing takes long."""
    defaults = {"allow": LOOPBACK, "backoff_s": 0.01, "backoff_s_max": 0.05, "circuit_failures": 1_000}
    return WebhookSettings(**{**defaults, **given})


def config(data: Path | None = None, webhooks: WebhookSettings | None = None, **listeners: str) -> ServerConfig:
    return ServerConfig(
        data=str(data) if data is not None else None,
        shards=4,
        tcp=TcpListener(listen=listeners.get("tcp", "off")),
        http=HttpListener(listen=listeners.get("http", "off")),
        grpc=GrpcListener(listen="off"),
        webhooks=webhooks or settings(),
    )


@asynccontextmanager
async def serving(data: Path | None = None, **given: Any) -> AsyncIterator[Server]:
    """A server in this process; on leaving, everything of it is closed in good order."""
    async with serving_with(config(data, settings(**given))) as server:
        yield server


@asynccontextmanager
async def serving_with(chosen: ServerConfig) -> AsyncIterator[Server]:
    async with listening(chosen) as (server, _):
        yield server


@asynccontextmanager
async def listening(chosen: ServerConfig) -> AsyncIterator[tuple[Server, dict[str, int]]]:
    """A server, and the ports of its listeners."""
    broker, _ = await open_queue(chosen)
    try:
        server = Server(chosen, broker)
        lines = await server.start()
        try:
            yield server, {line.split()[0]: int(line.rpartition(":")[2]) for line in lines}
        finally:
            await server.close()
    finally:
        broker.close()


async def hook(server: Server, url: str, *events: str, tenant: str = "default", **more: Any) -> HookView:
    return await server.webhooks.add(
        tenant, HookRequest(url=url, events=events or ("*",), **{"secret": SECRET, **more})
    )


async def status_when(server: Server, is_so: Callable[[Status], bool], tenant: str = "default") -> Status:
    """How the tenant's only hook fares, once it is so: a receiver knows of an answer before its sender does."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            (seen,) = await server.webhooks.list(tenant)
            if is_so(seen.status):
                return seen.status
            await asyncio.sleep(0.001)


async def push(server: Server, queue: str = "mail", payload: bytes = b"{}", tenant: str = "default") -> int:
    done = await server.dispatcher.call(tenant, c.Push(queue, payload, Options(codec="json")))
    return done.id


async def work(server: Server, queue: str = "mail", result: bytes | None = None) -> int:
    """Take a job and complete it."""
    delivery = await server.dispatcher.call("default", c.Pull([queue], 1, 0))
    (job,) = delivery.ids
    results = None if result is None else [result]
    await server.dispatcher.call("default", c.Ack([job], delivery.token, results, codec="json"))
    return int(job)
