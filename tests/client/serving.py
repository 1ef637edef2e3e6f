"""A real server on an event loop in a thread, and strangers that only look like one."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener
from stoker.server.server import Server

TIMEOUT_S = 60
TCP_ONLY = ServerConfig(
    tcp=TcpListener(listen="127.0.0.1:0"), http=HttpListener(listen="off"), grpc=GrpcListener(listen="off")
)


def on_port(port: int) -> ServerConfig:
    return msgspec.structs.replace(TCP_ONLY, tcp=TcpListener(listen=f"127.0.0.1:{port}"))


class ServerThread:
    """Serves until the block ends."""

    def __init__(self, config: ServerConfig = TCP_ONLY) -> None:
        self._config = config
        self.broker = LocalBroker(config.local)
        self.port = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> "ServerThread":
        self._thread.start()
        assert self._started.wait(TIMEOUT_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(TIMEOUT_S)
        self.broker.close()

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self.server = Server(self._config, self.broker)
        (line,) = await self.server.start()
        self.port = int(line.rsplit(":", 1)[1])
        self._started.set()
        await self._stopped.wait()
        await self.server.close()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


Behaviour = Callable[[socket.socket], None]
"""What a stranger does with a connection."""


class Stranger:
    """Something that listens and is no server: each connection is handled by a thread of its own, one after another."""

    def __init__(self, behave: Behaviour) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        self._behave = behave
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> "Stranger":
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(TIMEOUT_S)
        self._listener.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            thread = threading.Thread(target=self._handle, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _handle(self, connection: socket.socket) -> None:
        try:
            self._behave(connection)
        except OSError:
            pass  # the client left


def read_all(connection: socket.socket) -> None:
    """Until the client leaves."""
    while connection.recv(65_536):
        pass


def settings(**changes: Any) -> Any:
    from stoker.brokers.remote.settings import RemoteSettings

    return RemoteSettings(**{"timeout_s": 5.0, "connect_timeout_s": 5.0, "retry_s": 0.0, **changes})
