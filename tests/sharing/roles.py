"""What the processes do that share a data directory. Imported by the zygote once, before it forks."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import stoker
import stoker.server.sharing  # else each process would load it for its first guest
from stoker.brokers.hosting import Host, Place
from stoker.brokers.local import LocalSettings, open_sqlite
from stoker.brokers.shared import EMBEDDED, SharedBroker, notice
from stoker.client.aio import AsyncClient
from stoker.journal.sqlite import JournalSettings
from stoker.model.options import Backoff, Options, Retention, Settings
from stoker.server.desk import Desk
from tests.conformance.pictures import taken
from tests.served.clock import ServedClock


class Owned:
    """A directory under a clock that the test moves, whose owner lets others in."""

    def __init__(self, path: str, settings: LocalSettings) -> None:
        self.host: Host | None = None
        self.clock = ServedClock(self._desks)
        self.broker = open_sqlite(path, {}, settings, self.clock, notice=notice(EMBEDDED, settings))
        self.host = Host(self.broker, Place(Path(path)))

    def _desks(self) -> list[Desk]:
        desk = None if self.host is None or self.host.sharing is None else self.host.sharing.desk
        return [] if desk is None else [desk]

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


# --- many at work -----------------------------------------------------------------------------------

LEASE_MS = 2_000
JOBS = Options(lease_ms=LEASE_MS, max_attempts=0, max_crashes=0, backoff=Backoff(kind="fixed", base_ms=1))
"""As often as it takes: each owner's death may cost a job a lease."""
QUEUE = "work"
SETTINGS = LocalSettings(
    engine=Settings(retention=Retention(completed_count=1_000_000)),
    shards=4,
    journal=JournalSettings(disk_reserve_bytes=4096),
)


class Teller:
    """Says what one process has done, from all of its threads."""

    def __init__(self, wire: "Connection[Any, Any]", broker: SharedBroker) -> None:
        self._wire = wire
        self._broker = broker
        self._lock = threading.Lock()
        self._owns = False

    def tell(self, kind: str, *what: object) -> None:
        with self._lock:
            if not self._owns and self._broker.owned is not None:
                self._owns = True
                self._wire.send(("owns", time.monotonic_ns()))
            self._wire.send((kind, *what))


def work_together(wire: "Connection[Any, Any]", path: str, name: str) -> None:
    """Push, pull and ack from a thread and from an event loop, until told to stop; any error is told, too."""
    queue = stoker.connect(f"sqlite:///{path}", settings=SETTINGS)
    assert isinstance(queue.broker, SharedBroker)
    teller = Teller(wire, queue.broker)
    teller.tell("open")
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(work_in_thread, queue, teller, stop, f"{name}.thread"),
            pool.submit(asyncio.run, work_in_loop(AsyncClient(queue.broker), teller, stop, f"{name}.loop")),
        ]
        while not wire.poll(0.02) and not any(each.done() for each in both):
            pass
        stop.set()
        for each in both:
            each.result()
    queue.close()
    teller.tell("closed")


def work_in_thread(queue: stoker.Client, teller: Teller, stop: threading.Event, name: str) -> None:
    for number in count():
        if stop.is_set():
            return
        key = f"{name}.{number}".encode()
        teller.tell("pushed", key, queue.push(QUEUE, key, JOBS).id)
        keys = [key + b".%d" % item for item in range(3)]
        teller.tell("pushed_batch", keys, list(queue.push_batch(QUEUE, keys, JOBS).ids))
        delivery = queue.pull(QUEUE, 6, wait_ms=20)
        if delivery:
            settled = queue.ack_batch(delivery.ids, delivery.token)
            teller.tell("acked", [job for job in delivery.ids if job not in settled.refused])


async def work_in_loop(queue: AsyncClient, teller: Teller, stop: threading.Event, name: str) -> None:
    for number in count():
        if stop.is_set():
            return
        key = f"{name}.{number}".encode()
        teller.tell("pushed", key, (await queue.push(QUEUE, key, JOBS)).id)
        delivery = await queue.pull(QUEUE, 4, wait_ms=20)
        if delivery:
            settled = await queue.ack_batch(delivery.ids, delivery.token)
            teller.tell("acked", [job for job in delivery.ids if job not in settled.refused])


# --- one who does as he is told ---------------------------------------------------------------------


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
            case "fork":
                wire.send(fork_idle())
            case "close":
                queue.close()
                wire.send("closed")
                return


def guests_wait(broker: SharedBroker) -> bool:
    host = broker.host
    return (
        host is not None
        and host.sharing is not None
        and host.sharing.desk is not None
        and (host.sharing.desk.is_waiting)
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
