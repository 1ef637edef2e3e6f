"""A server with nothing but its gRPC listener, on an event loop in a thread of its own, and callers for it.

The loop is in reach, so that a test can look behind the counter; what passes between them passes over a real socket.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import msgspec

from stoker.brokers.local import LocalSettings, open_memory
from stoker.proto import stoker_pb2_grpc
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener
from stoker.server.run import new_loop
from stoker.server.server import Server

T = TypeVar("T")

PATIENCE_S = 60.0
"""No test should ever wait so long."""

GRPC_ONLY = ServerConfig(
    tcp=TcpListener(listen="off"), http=HttpListener(listen="off"), grpc=GrpcListener(listen="127.0.0.1:0")
)


class LoopThread:
    """An event loop that outlives tests: gRPC does not like to change loops."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


class Served:
    """One server, and channels to it."""

    def __init__(self, loop: LoopThread, config: ServerConfig = GRPC_ONLY) -> None:
        self._loop = loop
        self._channels: list[grpc.Channel] = []
        self.broker = open_memory("", {}, LocalSettings(limits=config.limits))
        self.server: Server = loop.run(self._start(config))

    async def _start(self, config: ServerConfig) -> Server:
        server = Server(config, self.broker)
        (self.line,) = await server.start()
        return server

    @property
    def address(self) -> str:
        return self.line.split()[1]

    @property
    def url(self) -> str:
        return f"grpc://{self.address}"

    def channel(self) -> grpc.Channel:
        # Options of its own give a channel a connection of its own.
        options = (("test.number", len(self._channels)), ("grpc.use_local_subchannel_pool", 1))
        self._channels.append(grpc.insecure_channel(self.address, options))
        return self._channels[-1]

    def queue(self, channel: grpc.Channel | None = None) -> Any:
        """A caller of stoker.v1.Queue."""
        return stoker_pb2_grpc.QueueStub(channel or self.channel())

    def on_loop(self, act: Callable[[Server], Awaitable[T]]) -> T:
        """Do this where the server lives."""

        async def acted() -> T:
            return await act(self.server)

        return self._loop.run(acted())  # type: ignore[no-any-return]

    def until(self, holds: Callable[[Server], bool]) -> None:
        """Let the server work until this is true."""

        async def seen() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not holds(self.server):  # noqa: ASYNC110  what a test looks at tells nobody that it changes
                    await asyncio.sleep(0)

        self._loop.run(seen())

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._loop.run(self.server.close())
        self.broker.close()


def with_changes(**changes: Any) -> ServerConfig:
    return msgspec.structs.replace(GRPC_ONLY, **changes)


def failure(call: Callable[[], Any]) -> Any:
    """The error that a call ends with."""
    try:
        reply = call()
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"it should have failed, and answered {reply!r}")


def code_of(error: Any) -> str:
    """Our code of an error."""
    return str(dict(error.trailing_metadata()).get("stoker-code"))
