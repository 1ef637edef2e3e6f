"""What forked processes do. Everything they need is imported here, before the zygote forks.

Each role gets its end of the connection first; what else it gets is small and picklable.
"""

import asyncio
import copyreg
import os
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

import apsw

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.model.errors import StokerError
from stoker.testing import FakeClock


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


copyreg.pickle(MappingProxyType, lambda proxy: (_read_only, (dict(proxy),)))  # replies have them


def open_at(path: str, settings: LocalSettings, now_ms: int) -> tuple[LocalBroker, FakeClock]:
    clock = FakeClock(now_ms)
    return open_sqlite(path, {}, settings, clock), clock


def journaled(broker: LocalBroker) -> int:
    """A number that grows with every record."""
    runtime = broker.runtime
    return sum(runtime.journal.last(shard.number) for shard in runtime.shards)


# --- a broker at the other end of a socket ------------------------------------------------------------


def serve_broker(wire: "Connection[Any, Any]", path: str, settings: LocalSettings, now_ms: int) -> None:
    """Carry out what is asked, until told to close. Answers say what time it is and whether anything was written."""
    broker, clock = open_at(path, settings, now_ms)
    before = journaled(broker)
    wire.send("open")
    while True:
        verb, *arguments = wire.recv()
        if verb == "close":
            broker.close()
            wire.send("closed")
            return
        try:
            answer: object = _carry_out(broker, clock, verb, arguments)
        except StokerError as error:
            answer = error
        wire.send((answer, clock.now_ms(), journaled(broker) != before))


def _carry_out(broker: LocalBroker, clock: FakeClock, verb: str, arguments: list[Any]) -> object:
    match verb:
        case "execute":
            return broker.execute(*arguments)
        case "execute_async":
            return asyncio.run(broker.execute_async(*arguments))
        case "advance":
            clock.advance(*arguments)
            broker.advance()
        case "close_broker":
            broker.close()
        case _:
            raise AssertionError(verb)
    return None


# --- for the tests of the zygote ----------------------------------------------------------------------


def echo(wire: "Connection[Any, Any]", greeting: str) -> None:
    wire.send((greeting, os.getpid()))
    while (message := wire.recv()) is not None:
        wire.send(message)


def stumble(wire: "Connection[Any, Any]") -> None:
    raise ValueError("over a stone")


def count_connections(wire: "Connection[Any, Any]") -> None:
    wire.send(len(apsw.connections()))
