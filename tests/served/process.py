"""A server in a process of its own, under a clock that the test moves.

The process is told over a pipe which world to open; a world is a broker with a real `Server` on free ports. One
process serves many tests, one after another, so that a test costs a few milliseconds and not an interpreter's start.
"""

import asyncio
import multiprocessing
import os
import shutil
import socket
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stoker.brokers.local import LocalBroker, LocalSettings, open_part, open_seat, open_sqlite
from stoker.brokers.redis.served import ServedRedis
from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.journal.resharding import Root, open_root
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.server.config import ServerConfig, Tls
from stoker.server.config.tree import GrpcListener, HttpListener, TcpListener, UnixListener
from stoker.server.processes.links import ProcessSeat
from stoker.server.processes.ways import TcpWays
from stoker.server.run import new_loop
from stoker.server.server import Server
from tests.conformance.pictures import taken, taken_async
from tests.crash.restarted import fresh_directory
from tests.served.clock import ServedClock
from tests.served.no_turns import WithoutTurns

NODES = 3


class World:
    """One broker and its server, in the process that serves."""

    def __init__(
        self, transport: str, settings: Settings, limits: Limits, shards: int, on_disk: bool, has_turns: bool = True
    ) -> None:
        self.directory = fresh_directory()
        self.clock = ServedClock(lambda: [self.server.dispatcher])
        local = small(settings, limits, shards)
        if on_disk:
            self.broker = open_sqlite(str(self.directory / "data"), {}, local, self.clock)
        else:
            self.broker = LocalBroker(local, self.clock)
        served = self.broker if has_turns else WithoutTurns(self.broker)
        self.server = Server(config_for(transport, self.directory, limits), served)

    async def picture(self, tenant: str) -> Any:
        return taken(self.broker, tenant)

    async def start(self) -> str:
        (line,) = await self.server.start()
        return line.split()[1].rpartition("://")[2]

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.broker.advance()

    async def close(self) -> None:
        await self.server.close()
        self.broker.close()
        shutil.rmtree(self.directory)


def small(settings: Settings, limits: Limits, shards: int) -> LocalSettings:
    """A directory that lives for one test needs no room for bad times."""
    return LocalSettings(
        engine=settings, limits=limits, shards=shards, journal=JournalSettings(disk_reserve_bytes=4096)
    )


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


class World2:
    """Two servers over one dealt directory, with real sockets between them; the client talks to the second.

    A single shard lives in the first one: then the second has nothing but its way to the first.
    """

    def __init__(self, transport: str, settings: Settings, limits: Limits, shards: int, on_disk: bool) -> None:
        self.directory = fresh_directory()
        self.clock = ServedClock(lambda: [server.dispatcher for server in self.servers])
        self.servers: list[Server] = []
        data = self.directory / "data"
        local = small(settings, limits, shards)
        self.root: Root | None = None
        if shards > 1:
            self.root = open_root(data, 2, shards)
            self.brokers = [open_part(str(part), local, self.clock) for part in self.root.parts]
        else:
            self.brokers = [open_sqlite(str(data), {}, local, self.clock), LocalBroker(local, self.clock)]
        config = config_for(transport, self.directory, limits)
        for number, broker in enumerate(self.brokers):
            seat = ProcessSeat(number=number, seats=2, directory=str(data), secret=b"known to both")
            self.servers.append(Server(config if number else config_for("", self.directory, limits), broker, seat))

    async def picture(self, tenant: str) -> Any:
        team = self.servers[0].team
        assert team is not None
        return await taken_async(team.router, tenant)

    async def start(self) -> str:
        _, (line,) = await asyncio.gather(*(server.start() for server in self.servers))
        return line.split()[1].rpartition("://")[2]

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for broker in self.brokers:
            broker.advance()

    async def close(self) -> None:
        for server in reversed(self.servers):
            await server.close()
        for broker in self.brokers:
            broker.close()
        if self.root is not None:
            self.root.close()
        shutil.rmtree(self.directory)


class RedisWorld:
    """Two servers in front of one Redis; neither knows of the other."""

    def __init__(self, transport: str, settings: Settings, limits: Limits, socket: str, prefix: str) -> None:
        self.directory = fresh_directory()
        self.clock = ServedClock(lambda: [server.dispatcher for server in self.servers])
        own = RedisSettings(engine=settings, limits=limits, prefix=prefix, retry_s=0.0, resend=False)
        self.brokers = [ServedRedis(Target(socket, 0), own, self.clock) for _ in range(2)]
        self.servers = [Server(config_for(transport, self.directory, limits), broker) for broker in self.brokers]

    async def picture(self, tenant: str) -> Any:
        return await taken_async(self.brokers[0], tenant)

    async def start(self) -> str:
        """The addresses of both."""
        started = await asyncio.gather(*(server.start() for server in self.servers))
        return " ".join(line.split()[1].rpartition("://")[2] for (line,) in started)

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        for tenant in {tenant for broker in self.brokers for tenant in broker.tenants}:
            await self.brokers[0].execute_async(tenant, c.ListQueues())  # as a worker that pulls keeps the time

    async def close(self) -> None:
        for server in self.servers:
            await server.close()
            server.broker.close()
        shutil.rmtree(self.directory)


class World3(World2):
    """Three nodes of a cluster in PostgreSQL, with TCP between them. A single shard leaves two without a seat."""

    def __init__(self, transport: str, settings: Settings, limits: Limits, shards: int, url: str) -> None:
        self.directory = fresh_directory()
        self.clock = ServedClock(lambda: [server.dispatcher for server in self.servers])
        self.servers: list[Server] = []
        self.root = None
        seats = min(NODES, shards)
        local = small(settings, limits, shards)
        listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(seats)]
        places = {seat: f"127.0.0.1:{bound.getsockname()[1]}" for seat, bound in enumerate(listening)}
        self.brokers = [open_seat(url, seat, f"node{seat}", places[seat], local, self.clock) for seat in places]
        self.brokers += [LocalBroker(local, self.clock) for _ in range(NODES - seats)]
        for number, broker in enumerate(self.brokers):
            ways = TcpWays(listening[number] if number < seats else None, Tls())
            ways.addresses = places
            seat = ProcessSeat(number=number, seats=seats, secret=b"known to all")
            self.servers.append(Server(config_for(transport, self.directory, limits), broker, seat, None, ways))

    async def start(self) -> str:
        lines = await asyncio.gather(*(server.start() for server in self.servers))
        return ",".join(line.split()[1].rpartition("://")[2] for (line,) in lines)


WORLDS: dict[str, Callable[..., "World | World2 | RedisWorld"]] = {
    "open": World,
    "open2": World2,
    "open3": World3,
    "open_redis": RedisWorld,
}


async def serve(pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    worlds: list[World | World2 | RedisWorld] = []
    while True:
        verb, arguments = await loop.run_in_executor(None, pipe.recv)
        try:
            if verb in WORLDS:
                worlds.append(WORLDS[verb](*arguments))
                answer: Any = len(worlds) - 1, await worlds[-1].start()
            else:
                answer = await act(worlds[arguments[0]], verb, arguments[1:])
            pipe.send((True, answer))
        except Exception:
            pipe.send((False, traceback.format_exc()))


async def act(world: World | World2 | RedisWorld, verb: str, arguments: tuple[Any, ...]) -> Any:
    if verb == "now":
        return world.clock.now_ms()
    if verb == "advance":
        await world.advance(*arguments)
    if verb in ("advance", "settle"):
        return await world.clock.settle()
    if verb == "picture":
        return await world.picture(*arguments)
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
