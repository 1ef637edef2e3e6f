"""A server in this process, for tests that look at single bytes: real sockets, real clock, one event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, ServerLimits, TcpListener
from stoker.server.server import Server
from stoker.wire.frames import LENGTH

PATIENCE_S = 60.0
"""For what takes milliseconds: whoever waits longer waits for ever, however busy the machine is."""
OFF = {"http": HttpListener(listen="off"), "grpc": GrpcListener(listen="off")}


class Peer:
    """A client that knows nothing but bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, **request: Any) -> None:
        self.writer.write(msgspec.json.encode(request) + b"\n")

    def send_frame(self, **request: Any) -> None:
        body = msgspec.msgpack.encode(request)
        self.writer.write(LENGTH.pack(len(body)) + body)

    async def line(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return msgspec.json.decode(await self.reader.readline())

    async def frame(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            length = LENGTH.unpack(await self.reader.readexactly(4))[0]
            return msgspec.msgpack.decode(await self.reader.readexactly(length))

    async def ask(self, **request: Any) -> Any:
        self.send(**request)
        return await self.line()

    async def ask_frame(self, **request: Any) -> Any:
        self.send_frame(**request)
        return await self.frame()

    async def is_cut_off(self) -> bool:
        """Whether the server closes the connection; fails if it does not within some seconds."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await self.reader.read(65_536):
                    pass
            except ConnectionError:
                pass
            return True

    def close(self) -> None:
        self.writer.close()


class Place:
    """The server and how to reach it."""

    def __init__(self, server: Server, broker: LocalBroker, port: int) -> None:
        self.server, self.broker, self.port = server, broker, port
        self.peers: list[Peer] = []

    async def peer(self) -> Peer:
        self.peers.append(Peer(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.peers[-1]


@asynccontextmanager
async def serving(
    limits: ServerLimits | None = None, settings: LocalSettings | None = None, data: Path | None = None, **config: Any
) -> AsyncIterator[Place]:
    """A server with a TCP listener, over a queue in memory, or over a data directory."""
    broker = LocalBroker(settings) if data is None else open_sqlite(str(data), {}, settings)
    chosen: dict[str, Any] = {**OFF, "tcp": TcpListener(listen="127.0.0.1:0"), "server": limits or ServerLimits()}
    server = Server(ServerConfig(**{**chosen, **config}), broker)
    (line,) = await server.start()
    place = Place(server, broker, int(line.rsplit(":", 1)[1]))
    try:
        yield place
    finally:
        for peer in place.peers:
            peer.close()
        await server.close()
        broker.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something inside the server that tells nobody; fails after some seconds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  a server has no events for its tests
            await asyncio.sleep(0.01)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())
