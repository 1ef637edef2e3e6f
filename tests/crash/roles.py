"""What forked processes do. Everything they need is imported here, before the zygote forks.

Each role gets its end of the connection first; what else it gets is small and picklable.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.journal import recovery, upkeep
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.disk import Disk
from stoker.journal.sqlite import SqliteJournal
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.ids import sequence_of
from stoker.model.replies import Level
from stoker.testing import FakeClock
from tests.conformance.pictures import taken
from tests.crash.pictures import state_of, take_pictures
from tests.crash.watching import LyingDisk, Trace, WatchedDisk, WatchedVFS, Witness
from tests.histories.history import Intent, Recovered, Refused, Reply
from tests.histories.workload import QUEUES, TENANT, Memory, Work

STEPS = 400
"""More than a process ever does before it is killed."""

LONG_MS = 3_600_000
"""Longer than any lease, delay and backoff of the workload."""

WATCHED = "watched"
"""The name of the VFS in processes that are watched."""

STEPS_WATCHED = 24
STEPS_TRACED = 60
UPKEEP_EVERY = 8

IDLE_ROUNDS = 3
"""So often nothing was delivered, an hour apart, and nothing ever will be."""


def open_at(path: str, settings: LocalSettings, now_ms: int) -> tuple[LocalBroker, FakeClock]:
    clock = FakeClock(now_ms)
    return open_sqlite(path, {}, settings, clock), clock


def journaled(broker: LocalBroker) -> int:
    """A number that grows with every record."""
    runtime = broker.runtime
    return sum(runtime.journal.last(shard.number) for shard in runtime.shards)


# --- a broker at the other end of a socket ------------------------------------------------------------


def serve_brokers(wire: "Connection[Any, Any]") -> None:
    """Serve whatever directory is named, one after another."""
    while True:
        serve_broker(wire, *wire.recv())


def serve_broker(wire: "Connection[Any, Any]", path: str, settings: LocalSettings, now_ms: int, gap: int) -> None:
    """Carry out what is asked, until told to close. Answers say what time it is and whether anything was written."""
    recovery.GAP = gap
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
        case "picture":
            return taken(broker, *arguments)
        case "close_broker":
            broker.close()
        case _:
            raise AssertionError(verb)
    return None


# --- work until the end -------------------------------------------------------------------------------


def work(wire: "Connection[Any, Any]", path: str, settings: LocalSettings, seed: str, memory: Memory) -> None:
    """Recover, tell what is there, and work as fast as possible, telling every intent and every reply.

    After `STEPS` commands it waits to be killed, or to be asked to close.
    """
    broker, clock = open_at(path, settings, memory.now)
    tell_what_is_there(wire, broker)
    workload = Work(seed, memory)
    for _ in range(STEPS):
        command = workload.next()
        clock.advance(workload.now - clock.now_ms())
        reply = ask(wire, broker, command)
        if reply is not None:
            workload.learn(command, reply)
        if workload.chance.random() < 0.1:
            wake_upkeep(broker)
        if wire.poll():
            break
    wire.recv()
    broker.close()
    wire.send("closed")


def wake_upkeep(broker: LocalBroker) -> None:
    """Let it look now what there is to do: a process that lives for milliseconds would never see it at work."""
    journal = broker.runtime.journal
    assert isinstance(journal, SqliteJournal)
    journal.upkeep_asked.set()


MakeWitness = Callable[[], Witness]


def work_watched(
    wire: "Connection[Any, Any]",
    path: str,
    settings: LocalSettings,
    seed: str,
    memory: Memory,
    make_witness: MakeWitness,
) -> None:
    """A short piece of work with everything that a journal does, under somebody's eyes; then close, and say so."""
    witness = make_witness()
    with watching(path, settings, memory.now, witness) as (broker, clock):
        tell_what_is_there(wire, broker)
        workload = Work(seed, memory)
        for number in range(STEPS_WATCHED):
            command = workload.next()
            clock.advance(workload.now - clock.now_ms())
            reply = ask(wire, broker, command)
            if reply is not None:
                workload.learn(command, reply)
            if number % UPKEEP_EVERY == UPKEEP_EVERY - 1:
                work_upkeep(broker)
        broker.close()
    wire.send("closed")


def work_traced(
    wire: "Connection[Any, Any]",
    path: str,
    settings: LocalSettings,
    seed: str,
    memory: Memory,
    closes: bool,
    lies: bool = False,
) -> None:
    """Work while time stands still, and tell at the end every change that was made to any file.

    Some pushes ask to be on disk before they are answered. Every reply comes with the number of changes before it.
    """
    trace = Trace()
    with watching(path, settings, memory.now, trace, LyingDisk if lies else WatchedDisk) as (broker, _):
        tell_what_is_there(wire, broker)
        workload = Work(seed, memory)
        for number in range(STEPS_TRACED):
            command = workload.next()
            if isinstance(command, (c.Push, c.PushBatch, c.Publish)) and workload.chance.random() < 0.2:
                command = msgspec.structs.replace(command, durability="fsync")
            reply = ask(wire, broker, command)
            wire.send(len(trace.calls))
            if reply is not None:
                workload.learn(command, reply)
            if number % UPKEEP_EVERY == UPKEEP_EVERY - 1:
                work_upkeep(broker)
            elif workload.chance.random() < 0.1:
                assert isinstance(broker.store, DirectoryStore)
                broker.store.journal.flush()
        if closes:
            broker.close()
        wire.send(trace.freeze())
        wire.recv()


def recover_watched(
    wire: "Connection[Any, Any]", path: str, settings: LocalSettings, now: int, make_witness: MakeWitness
) -> None:
    """Open and close under somebody's eyes."""
    with watching(path, settings, now, make_witness()) as (broker, _):
        broker.advance()
        broker.close()
    wire.send("closed")


@contextmanager
def watching(
    path: str, settings: LocalSettings, now: int, witness: Witness, disk: type[WatchedDisk] = WatchedDisk
) -> Iterator[tuple[LocalBroker, FakeClock]]:
    """A broker that changes no file unseen."""
    upkeep.KEYS_EVERY_MS = 1  # old keys move at every round
    vfs = WatchedVFS(WATCHED, witness)
    clock = FakeClock(now)
    yield open_sqlite(path, {}, settings, clock, disk(witness, Path(path))), clock
    vfs.unregister()


def recover(wire: "Connection[Any, Any]", path: str, settings: LocalSettings, now: int) -> None:
    """Open, tell what is there, and close."""
    broker, _ = open_at(path, settings, now)
    tell_what_is_there(wire, broker)
    broker.close()


def recover_and_repeat(wire: "Connection[Any, Any]", path: str, settings: LocalSettings, gap: int) -> None:
    """Open at the time of the last record, tell what is there, and carry out what is asked then."""
    recovery.GAP = gap
    broker, _ = open_at(path, settings, 0)
    tell_what_is_there(wire, broker)
    for command in wire.recv():
        wire.send(broker.execute(TENANT, command))
    broker.close()
    wire.send("closed")


def work_upkeep(broker: LocalBroker) -> None:
    """A round of it, here and now: the file is finished, and everything that is due is done."""
    assert isinstance(broker.store, DirectoryStore)
    assert broker.store.upkeep is not None
    with broker.store.upkeep.work_lock:
        broker.store.upkeep.work()


def push_once(
    wire: "Connection[Any, Any]",
    path: str,
    settings: LocalSettings,
    level: Level | None = None,
    boot: str | None = None,
    broken: bool = False,
) -> None:
    """Open the directory, push one job, tell its number, and wait for the end."""
    if boot is not None:
        setattr(Disk, "boot_id", lambda disk: boot)  # noqa: B010  # a method, not a field
    broker = open_sqlite(path, {}, settings)
    pushed = broker.execute("t", c.Push("q", b"", durability=level))
    if broken:
        assert isinstance(broker.runtime.journal, SqliteJournal)
        broker.runtime.journal.fail(OSError("the disk is broken"))
    wire.send(sequence_of(pushed.id))
    if wire.recv() == "close":
        broker.close()
        wire.send("closed")


def finish(wire: "Connection[Any, Any]", path: str, settings: LocalSettings, now: int) -> None:
    """Recover and work everything off: whatever can still be delivered is delivered and done."""
    broker, clock = open_at(path, settings, now)
    tell_what_is_there(wire, broker)
    idle = 0
    while idle < IDLE_ROUNDS:
        clock.advance(LONG_MS)
        delivery = ask(wire, broker, c.Pull(QUEUES, 1_000))
        idle = 0 if delivery else idle + 1
        if delivery:
            ids = list(delivery.ids)
            ask(wire, broker, c.Ack(ids, [delivery.token] * len(ids)))
    _, jobs = take_pictures(broker)
    wire.send((jobs, broker.execute(TENANT, c.GetStats()).totals.pushed))
    broker.close()


def tell_what_is_there(wire: "Connection[Any, Any]", broker: LocalBroker) -> None:
    """And go on when told to."""
    broker.advance()
    pictures, jobs = take_pictures(broker)
    wire.send(Recovered(broker.now(), jobs, pictures))  # its time may be ahead of the clock: what it had written counts
    if wire.recv() == "what exactly?":
        with broker.guard:
            wire.send([state_of(shard) for shard in broker.runtime.shards])


def ask(wire: "Connection[Any, Any]", broker: LocalBroker, command: c.Command[Any]) -> Any:
    wire.send(Intent(broker.now(), command))
    try:
        reply = broker.execute(TENANT, command)
    except StokerError as error:
        wire.send(Refused(error.code, error.message))
        return None
    wire.send(Reply(reply))
    return reply


# --- for the tests of the zygote ----------------------------------------------------------------------


def echo(wire: "Connection[Any, Any]", greeting: str) -> None:
    wire.send((greeting, os.getpid()))
    while (message := wire.recv()) is not None:
        wire.send(message)


def stumble(wire: "Connection[Any, Any]") -> None:
    raise ValueError("over a stone")


def count_connections(wire: "Connection[Any, Any]") -> None:
    wire.send(len(apsw.connections()))
