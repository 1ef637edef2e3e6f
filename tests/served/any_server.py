"""A server with every transport over whatever broker a test brings, on an event loop in a thread of its own."""

import asyncio
import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener, UnixListener
from stoker.server.served_broker import ServedBroker
from stoker.server.server import Server
from tests.grpc.support import PATIENCE_S, LoopThread

TRANSPORTS = ("tcp", "unix", "http", "grpc")
ANYWHERE = "127.0.0.1:0"


class AnyServer:
    """One server; `urls` has one for each transport."""

    def __init__(self, loop: LoopThread, folder: Path, make: Callable[[], ServedBroker], **config: Any) -> None:
        self._loop = loop
        self.server: Server = loop.run(self._start(folder, make, config))

    async def _start(self, folder: Path, make: Callable[[], ServedBroker], config: dict[str, Any]) -> Server:
        listeners = {
            "tcp": TcpListener(listen=ANYWHERE),
            "unix": UnixListener(listen=str(folder / "any.sock")),
            "http": HttpListener(listen=ANYWHERE),
            "grpc": GrpcListener(listen=ANYWHERE),
        }
        server = Server(ServerConfig(**{**listeners, **config}), make())
        lines = dict(line.split() for line in await server.start())
        self.urls = {name: f"{name}://{where.removeprefix('http://')}" for name, where in lines.items()}
        return server

    def run(self, coroutine: Any) -> Any:
        """Where the server lives."""
        return self._loop.run(coroutine)

    def until(self, holds: Callable[[], bool]) -> None:
        """Let the server work until this is true."""

        async def seen() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():  # noqa: ASYNC110  what a test looks at tells nobody that it changes
                    await asyncio.sleep(0.001)

        self.run(seen())

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status of HTTP, and the answer: JSON, or text."""
        connection = http.client.HTTPConnection(self.urls["http"].removeprefix("http://"), timeout=PATIENCE_S)
        try:
            sent = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, sent, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            text = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, msgspec.json.decode(text) if is_json else text.decode()
        finally:
            connection.close()

    def close(self) -> None:
        self.run(self.server.close())
        self.server.broker.close()
