"""A server in a process of its own, under a clock that the test moves.

The process is told over a pipe which world to open; a world is a broker with a real `Server` on free ports. One
process serves many tests, one after another, so that a test costs a few milliseconds and not an interpreter's start.
"""

import asyncio
import multiprocessing
import os
import shutil
import threading
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.server.config import ServerConfig
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener, UnixListener
from stoker.server.run import new_loop
from stoker.server.server import Server
from stoker.testing import FakeClock
from tests.crash.restarted import fresh_directory

PATIENCE_S = 0.03
"""How long a waiting command waits for real before it moves the clock: others may be on their way to end its wait."""


class ServedClock(FakeClock):
    """Stands still while nobody waits at the desk; then whoever waits moves it."""

    server: Server | None = None

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        while not signal.is_set():
            try:
                await asyncio.wait_for(signal.wait(), PATIENCE_S)
            except TimeoutError:
                if self.server is not None and self.server.desk.is_waiting:
                    self._now_ms = max(self._now_ms, until_ms)
                    return


class World:
    """One broker and its server, in the process that serves."""

    def __init__(self, transport: str, settings: Settings, limits: Limits, shards: int, on_disk: bool) -> None:
        self.directory = fresh_directory()
        self.clock = ServedClock()
        local = LocalSettings(engine=settings, limits=limits, shards=shards)
        if on_disk:
            self.broker = open_sqlite(str(self.directory / "data"), {}, local, self.clock)
        else:
            self.broker = LocalBroker(local, self.clock)
        self.server = Server(config_for(transport, self.directory, limits), self.broker)
        self.clock.server = self.server

    async def start(self) -> str:
        (line,) = await self.server.start()
        return line.split()[1].rpartition("://")[2]

    async def close(self) -> None:
        await self.server.close()
        self.broker.close()
        shutil.rmtree(self.directory)


def config_for(transport: str, directory: Path, limits: Limits) -> ServerConfig:
    """Nothing but the one listener."""
    free = "127.0.0.1:0"
    return ServerConfig(
        tcp=TcpListener(listen=free if transport == "tcp" else "off"),
        http=HttpListener(listen=free if transport == "http" else "off"),
        grpc=GrpcListener(listen=free if transport == "grpc" else "off"),
        unix=UnixListener(listen=str(directory / "socket") if transport == "unix" else "off"),
        limits=limits,
    )


async def serve(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    worlds: list[World] = []
    while True:
        verb, arguments = await loop.run_in_executor(None, pipe.recv)
        try:
            if verb == "open":
                worlds.append(World(*arguments))
                answer: Any = len(worlds) - 1, await worlds[-1].start()
            else:
                answer = await act(worlds[arguments[0]], verb, arguments[1:])
            pipe.send((True, answer))
        except Exception:
            pipe.send((False, traceback.format_exc()))


async def act(world: World, verb: str, arguments: tuple[Any, ...]) -> Any:
    if verb == "now":
        return world.clock.now_ms()
    if verb == "advance":
        world.clock.advance(*arguments)
        world.broker.advance()
        return None
    assert verb == "close", verb
    return await world.close()


def main(pipe: Connection) -> None:
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(serve(pipe))
    except (EOFError, KeyboardInterrupt):
        pass  # the test's process has ended


class ServerProcess:
    """Seen from the tests."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._lock = threading.Lock()
        self._process = context.Process(target=main, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.owner = os.getpid()

    def call(self, verb: str, *arguments: Any) -> Any:
        with self._lock:
            self._pipe.send((verb, arguments))
            if not self._pipe.poll(60):
                raise RuntimeError(f"the server's process does not answer {verb!r}")
            ok, answer = self._pipe.recv()
        if not ok:
            raise RuntimeError(f"in the server's process:\n{answer}")
        return answer


_process: ServerProcess | None = None


def the_process() -> ServerProcess:
    global _process
    if _process is None or _process.owner != os.getpid():
        _process = ServerProcess()
    return _process
