"""What the processes of a history do: clients that work at random until they are told to stop."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import stoker.server.sharing  # noqa: F401  else each process would load it for its first guest
from stoker.brokers.connect import open_broker
from stoker.brokers.contract import Broker
from stoker.brokers.local import LocalSettings
from stoker.brokers.shared_directory import SharedBroker
from stoker.model import commands as c
from stoker.model.errors import StokerError, Unavailable, Unknown
from tests.histories.checker import can_be_repeated
from tests.histories.recorder import Recorder, now_ms
from tests.histories.workload import Manner, Memory, Work

PAUSE_S = 0.02


def work(
    wire: "Connection[Any, Any]", url: str, settings: LocalSettings | None, name: str, folder: str, manner: Manner
) -> None:
    """Two clients share a broker, one in a thread and one in an event loop. An unexpected error is told, too.

    A process tells when it has come to own a shared directory.
    """
    broker = open_broker(url, settings)
    stop = threading.Event()
    wire.send("open")
    with ThreadPoolExecutor(2) as pool:
        clients = [Client(broker, Path(folder), f"{name}.{kind}", manner, stop) for kind in ("thread", "loop")]
        both = [pool.submit(clients[0].work), pool.submit(asyncio.run, clients[1].work_async())]
        owns = False
        while not wire.poll(0.02) and not any(each.done() for each in both):
            if not owns and isinstance(broker, SharedBroker) and broker.owned is not None:
                owns = True
                wire.send(("owns", time.monotonic_ns()))
        stop.set()
        for each in both:
            each.result()
    broker.close()
    wire.send("closed")


class Client:
    """Chooses by its name what to ask, and writes everything down."""

    def __init__(self, broker: Broker, folder: Path, name: str, manner: Manner, stop: threading.Event) -> None:
        self._broker, self._stop = broker, stop
        self._recorder = Recorder(folder, name)
        self._work = Work(name, Memory(now_ms()), manner)

    def work(self) -> None:
        while not self._stop.is_set():
            command = self._work.next()
            if self._learn(command, self._recorder.ask(self._broker, command)):
                time.sleep(PAUSE_S)

    async def work_async(self) -> None:
        while not self._stop.is_set():
            command = self._work.next()
            if self._learn(command, await self._recorder.ask_async(self._broker, command)):
                await asyncio.sleep(PAUSE_S)

    def _learn(self, command: c.Command[Any], outcome: Any) -> bool:
        """Whether to wait a moment: the broker is not there, or has no room."""
        if not isinstance(outcome, StokerError):
            self._work.learn(command, outcome)
        elif isinstance(outcome, Unknown) and can_be_repeated(command):
            self._work.repeat(command)
        return isinstance(outcome, (Unavailable, Unknown))
