"""The brokers that callers wait at, under the true clock: each with a client that waits and one that acts.

Servers run in a process of their own, and so does the other one of two that share a directory.
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import stoker
from stoker.brokers.contract import LACKS_NOTHING
from stoker.brokers.local import LocalSettings, open_part, open_sqlite
from stoker.brokers.shared_directory import SharedBroker
from stoker.client.sync import Client
from stoker.journal.resharding import open_root
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.server.processes.links import ProcessSeat
from stoker.server.run import new_loop
from stoker.server.server import Server
from tests.crash.zygote import Child, the_zygote
from tests.processes.serving import serving
from tests.served.process import config_for
from tests.sharing.roles import join
from tests.waking.ways import SHARDS

R = TypeVar("R")

SETTINGS = LocalSettings(shards=SHARDS, journal=JournalSettings(disk_reserve_bytes=4096))


class Place(NamedTuple):
    """Where something is waited for."""

    waiting: Client
    acting: Client
    on_loop: bool = False
    """Whether callers wait on an event loop, and not in threads."""


Opened = Callable[[ExitStack], Place]


def embedded(url: str, *, on_loop: bool = False) -> Opened:
    def opened(stack: ExitStack) -> Place:
        client = stack.enter_context(stoker.connect(url))
        return Place(client, client, on_loop)

    return opened


def on_disk(*, on_loop: bool = False) -> Opened:
    def opened(stack: ExitStack) -> Place:
        path = stack.enter_context(fresh_directory())
        client = stack.enter_context(stoker.connect(f"sqlite:///{path}", settings=SETTINGS))
        return Place(client, client, on_loop)

    return opened


def as_guest(stack: ExitStack) -> Place:
    """Another process owns the directory, and does nothing with it."""
    path = stack.enter_context(fresh_directory())
    child(stack, join, str(path), SETTINGS)
    client = stack.enter_context(stoker.connect(f"sqlite:///{path}"))
    assert not owns(client)
    return Place(client, client)


def as_owner(stack: ExitStack) -> Place:
    """Callers wait in the process that owns the directory, and another one acts."""
    path = stack.enter_context(fresh_directory())
    client = stack.enter_context(stoker.connect(f"sqlite:///{path}", settings=SETTINGS))
    assert owns(client)
    return Place(client, Client(Elsewhere(child(stack, join, str(path)))))


def owns(client: Client) -> bool:
    assert isinstance(client.broker, SharedBroker)
    return client.broker.owned is not None


def served(transport: str) -> Opened:
    def opened(stack: ExitStack) -> Place:
        path = stack.enter_context(fresh_directory())
        where = child(stack, serve, transport, str(path)).receive()
        client = stack.enter_context(stoker.connect(f"{transport}://{where}"))
        return Place(client, client)

    return opened


def served_by_two(stack: ExitStack) -> Place:
    path = stack.enter_context(fresh_directory())
    server = stack.enter_context(serving(path, "--set", "stop.drain_s=0"))  # jobs are left running
    client = stack.enter_context(stoker.connect(server.url))
    return Place(client, client)


def served_by_two_parts(stack: ExitStack) -> Place:
    """The same two in one child, so that a bug can be planted into them."""
    path = stack.enter_context(fresh_directory())
    where = child(stack, serve_parts, str(path)).receive()
    client = stack.enter_context(stoker.connect(f"tcp://{where}"))
    return Place(client, client)


PLACES: dict[str, Opened] = {
    "memory": embedded("memory://"),
    "memory-16-shards": embedded(f"memory://?shards={SHARDS}", on_loop=True),
    "sqlite": on_disk(),
    "sqlite-on-a-loop": on_disk(on_loop=True),
    "sqlite-guest": as_guest,
    "sqlite-owner": as_owner,
    "tcp": served("tcp"),
    "http": served("http"),
    "grpc": served("grpc"),
    "tcp-2-processes": served_by_two,
}


@contextmanager
def fresh_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="stoker-waking-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


# --- other processes -----------------------------------------------------------------------------


def child(stack: ExitStack, role: Callable[..., None], *arguments: object) -> Child:
    made = stack.enter_context(the_zygote().fork(role, *arguments))
    assert made.receive() == "open"
    return made


class Elsewhere:
    """A broker whose commands another process carries out, one at a time."""

    name, lacks = "local", LACKS_NOTHING

    def __init__(self, child: Child) -> None:
        self._child = child
        self._lock = threading.Lock()

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        with self._lock:
            self._child.send(("execute", command))
            return self._child.receive()  # type: ignore[no-any-return]

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        raise NotImplementedError("nobody waits here")

    def close(self) -> None:
        pass


def serve(wire: "Connection[Any, Any]", transport: str, path: str) -> None:
    """A server over a data directory, until nobody wants it any more."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(wire, transport, path))


async def _serve(wire: "Connection[Any, Any]", transport: str, path: str) -> None:
    broker = open_sqlite(f"{path}/data", {}, SETTINGS)
    server = Server(config_for(transport, Path(path), SETTINGS.limits), broker)
    await _started(wire, [server])


def serve_parts(wire: "Connection[Any, Any]", path: str) -> None:
    """Two servers, each over half of the shards of a data directory; clients talk to the second."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve_parts(wire, path))


async def _serve_parts(wire: "Connection[Any, Any]", path: str) -> None:
    data = Path(path) / "data"
    servers: list[Server] = []
    for number, part in enumerate(open_root(data, 2, SHARDS).parts):
        config = config_for("tcp" if number else "", Path(path), SETTINGS.limits)
        seat = ProcessSeat(number=number, seats=2, directory=str(data), secret=b"known to both")
        servers.append(Server(config, open_part(str(part), SETTINGS), seat))
    await _started(wire, servers)


async def _started(wire: "Connection[Any, Any]", servers: Sequence[Server]) -> None:
    """Say where clients find them, and serve until this process is killed."""
    *_, (line,) = await asyncio.gather(*(server.start() for server in servers))
    wire.send("open")
    wire.send(line.split()[1].rpartition("://")[2])
    await asyncio.get_running_loop().run_in_executor(None, wire.poll, None)
