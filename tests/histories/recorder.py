"""Writes down what a client asks and hears, so that it can be read whatever becomes of the process.

Each client has a file of its own. An entry is one write to it, so a process that is killed leaves whole entries; the
clocks of one machine put the entries of all clients in order.
"""

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.brokers.contract import Broker
from stoker.model import commands as c
from stoker.model.errors import StokerError, Unknown
from tests.histories.history import Entry, Intent, Refused, Reply, Unsure

TENANT = "default"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wall_offset_ms() -> int:
    """How far the clock on the wall is ahead of the one that nothing sets. It changes when the wall's clock is set."""
    return (time.time_ns() - time.monotonic_ns()) // 1_000_000


class Recorder:
    """One client's pen."""

    def __init__(self, folder: Path, client: str) -> None:
        self.client = client
        self._descriptor = os.open(folder / f"{client}.history", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def ask(self, broker: Broker, command: c.Command[Any]) -> Any:
        """The reply, or the error."""
        self._intend(command)
        try:
            reply = broker.execute(TENANT, command)
        except StokerError as error:
            return self._failed(error)
        return self._answered(reply)

    async def ask_async(self, broker: Broker, command: c.Command[Any]) -> Any:
        self._intend(command)
        try:
            reply = await broker.execute_async(TENANT, command)
        except StokerError as error:
            return self._failed(error)
        return self._answered(reply)

    def close(self) -> None:
        os.close(self._descriptor)

    def _intend(self, command: c.Command[Any]) -> None:
        self.write(Intent(now_ms(), command, self.client))

    def _answered(self, reply: Any) -> Any:
        self.write(Reply(reply, self.client, now_ms()))
        return reply

    def _failed(self, error: StokerError) -> StokerError:
        """Only one error means that the command may have happened."""
        kind = Unsure if isinstance(error, Unknown) else Refused
        self.write(kind(error.code, error.message, self.client, now_ms()))
        return error

    def write(self, entry: Entry) -> None:
        os.write(self._descriptor, pickle.dumps((time.time_ns(), entry)))


def recorded(folder: Path) -> list[Entry]:
    """The entries of all clients, in the order of time."""
    found = [pair for file in sorted(folder.glob("*.history")) for pair in _entries(file)]
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]


def _entries(file: Path) -> Iterator[tuple[int, Entry]]:
    with file.open("rb") as stream:
        while True:
            try:
                yield pickle.load(stream)
            except (EOFError, pickle.UnpicklingError):  # the last one may have been cut by a kill
                return
