"""What the processes do that share a data directory. Imported by the zygote once, before it forks."""

import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import stoker
import stoker.server.sharing  # else each process would load it for its first guest
from stoker.brokers.directory_socket import DirectoryHost, SocketPath
from stoker.brokers.local import LocalSettings, open_sqlite
from stoker.brokers.shared_directory import EMBEDDED, SharedBroker, notice
from stoker.server.dispatcher import Dispatcher
from stoker.worker.worker import Worker
from tests.conformance.pictures import taken
from tests.served.clock import ServedClock
from tests.worker.running import handler


class Owned:
    """A directory under a clock that the test moves, whose owner lets others in."""

    def __init__(self, path: str, settings: LocalSettings) -> None:
        self.host: DirectoryHost | None = None
        self.clock = ServedClock(self._dispatchers)
        self.broker = open_sqlite(path, {}, settings, self.clock, notice=notice(EMBEDDED, settings))
        self.host = DirectoryHost(self.broker, SocketPath(Path(path)))

    def _dispatchers(self) -> list[Dispatcher]:
        dispatcher = None if self.host is None or self.host.sharing is None else self.host.sharing.dispatcher
        return [] if dispatcher is None else [dispatcher]

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.broker.advance()

    def close(self) -> None:
        assert self.host is not None
        self.host.stop()
        self.broker.close()


def own(wire: "Connection[Any, Any]") -> None:
    """Own directories as they are named, for as long as they are wanted: a process for each would cost more than it."""
    owned: dict[str, Owned] = {}
    while True:
        verb, path, *arguments = wire.recv()
        answer: object = None
        match verb:
            case "open":
                owned[path] = Owned(path, *arguments)
            case "now":
                answer = owned[path].clock.now_ms()
            case "advance":
                owned[path].advance(*arguments)
            case "picture":
                answer = taken(owned[path].broker, *arguments)
            case "close":
                owned.pop(path).close()
        wire.send(answer)


def join(wire: "Connection[Any, Any]", path: str, settings: LocalSettings | None = None) -> None:
    """Open the directory as any program does, and carry out what is asked, until told to close."""
    queue = stoker.connect(f"sqlite:///{path}", settings=settings)
    broker = queue.broker
    assert isinstance(broker, SharedBroker)
    wire.send("open")
    while True:
        match wire.recv():
            case "execute", command:
                wire.send(queue.execute(command))
            case "owns":
                wire.send(broker.owned is not None)
            case "somebody waits":
                wait_until(lambda: guests_wait(broker))
                wire.send(True)
            case "break", size:
                wire.send([refused_with(queue, size) for _ in range(2)])
            case "work", size:
                wire.send(work_until_it_ends(queue, size))
            case "fork":
                wire.send(fork_idle())
            case "close":
                queue.close()
                wire.send("closed")
                return


def refused_with(queue: stoker.Client, size: int) -> str:
    """Push until that is refused: the code."""
    try:
        while True:
            queue.push("q", bytes(size))
    except stoker.StokerError as error:
        return error.code


def work_until_it_ends(queue: stoker.Client, size: int) -> int:
    """Run a worker while others push: what it ends with."""
    threading.Thread(target=refused_with, args=(queue, size), daemon=True).start()
    return Worker(queue, [handler(print, name="work")]).run()


def guests_wait(broker: SharedBroker) -> bool:
    host = broker.host
    return (
        host is not None
        and host.sharing is not None
        and host.sharing.dispatcher is not None
        and (host.sharing.dispatcher.is_waiting)
    )


def wait_until(true: Callable[[], bool], within_s: float = 60) -> None:
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until, "it never comes"
        time.sleep(0.002)


def fork_idle() -> int:
    """A child that outlives its parent, does nothing, and ends on its own if nobody ends it."""
    child = os.fork()
    if not child:
        signal.alarm(60)
        while True:
            signal.pause()
    return child
