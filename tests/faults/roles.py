"""What forked processes do in the tests of faults: work until something breaks, or look at what is left.

Each is a process of its own (`tests/crash/zygote.py`), so it may put faults over the classes of the journal, and it
forgets whatever it has not written.
"""

import asyncio
import fcntl
import functools
import os
import resource
import threading
import time
import traceback
from collections.abc import Callable
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.engine.audit import audit
from stoker.engine.state_dump import dump
from stoker.journal import upkeep
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.disk import Disk
from stoker.journal.sqlite import JournalSettings, SqliteJournal
from stoker.journal.upkeep import Upkeep
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError
from stoker.records.stored import StoredRun
from stoker.runtime.runtime import Runtime
from stoker.testing import FakeClock
from tests.faults.injecting import VFS, Fault, Injector, Quota
from tests.faults.script import QUEUES, SHARDS, START_MS, TENANT, Keep, Listen, Pass, Script, Step

Wire = Connection  # of whatever can be pickled

RESERVE_BYTES = 64 * 1024
MEMORY_BYTES = 400_000
"""So little that payloads are left in the journal."""
LONG_S = 3600
PATIENCE_S = 60
"""Longer than anything takes here: who waits so long waits for ever."""

BUSY = JournalSettings(
    wal_bytes_max=60_000,
    checkpoint_records=40,
    checkpoint_files=2,
    events_age_ms_max=400,
    rewrite_below=0.9,
    disk_reserve_bytes=RESERVE_BYTES,
    checkpoint_process=False,
    fsync_interval_ms=LONG_S * 1000,
    keys_in_memory=2,
)
"""Files are finished, checkpoints made and files rewritten within a hundred commands; flushed when somebody waits."""

QUIET = JournalSettings(
    disk_reserve_bytes=RESERVE_BYTES, checkpoint_process=False, fsync_interval_ms=LONG_S * 1000, wal_bytes_max=1 << 30
)
"""Nothing happens by itself."""


# --- what a broker holds, as one string --------------------------------------------------------------


in_order = msgspec.msgpack.Encoder(order="deterministic")
"""The same bytes for equal values, whatever order their dicts have."""


def state_of(runtime: Runtime) -> str:
    """Everything but the next id and token: a crash leaves some out."""
    shards = []
    for shard in runtime.shards:
        found = dump(shard)
        del found["sequence"], found["token"]
        for tenant in found["tenants"].values():
            for stages, _, _ in tenant["transactions"].values():
                for name, (parts, *rest) in stages.items():
                    stages[name] = (staged(runtime, shard.number, parts), *rest)
        shards.append(found)
    data = in_order.encode(shards)
    return data.hex() if "STOKER_FAULTS_FULL" in os.environ else sha256(data).hexdigest()


def staged(runtime: Runtime, shard: int, parts: list[Any]) -> list[Any]:
    """Parts of a stage, with the payloads that lie in the journal."""
    return [
        msgspec.structs.replace(part, payloads=runtime.journal.payloads(shard, part.payloads.sequence))
        if isinstance(part.payloads, StoredRun)
        else part
        for part in parts
    ]


# --- working -----------------------------------------------------------------------------------------


class StillClock(FakeClock):
    """Moves only when told to: whoever waits really waits."""

    def wait(self, signal: threading.Event, until_ms: int) -> None:
        if self.now_ms() < until_ms:
            signal.wait()


class Outcome(msgspec.Struct, frozen=True):
    """How one step went: the level of its reply, or the code of its refusal."""

    step: str
    ok: bool
    word: str
    message: str
    state: str | None
    """Afterwards; None when the broker has stopped."""


class Report(msgspec.Struct, frozen=True):
    """How the work went, as the process itself knows it."""

    calls: dict[str, int]
    """Of every place where a fault can be."""
    fired: int
    bad: list[str]
    """What must never happen."""
    made: int
    """Checkpoints."""
    stopped: str
    """Why the broker has stopped, if it has."""


class Worker:
    """Carries a script out, and tells the tests of every step."""

    def __init__(self, wire: "Connection[Any, Any]", path: str, fault: Fault, room: int = 0) -> None:
        self._wire = wire
        self._room = room
        self._wire_lock = threading.Lock()
        self._path = path
        self.bad: list[str] = []
        self.injector = Injector(fault)
        self._rounds = self._wanted = 0
        self._round_over = threading.Condition()
        self._listeners: list[threading.Thread] = []
        self._state_at, self._state = -1, ""
        self.clock = StillClock(START_MS)

    def open(self, settings: JournalSettings, memory_bytes: int = MEMORY_BYTES) -> LocalBroker | None:
        threading.excepthook = self._thread_died
        self._watch_rounds()
        self._is_paced = self.injector.fault.error not in ("ENOSPC", "FULL", "CANTOPEN")
        """A round of upkeep when one is asked for here, and never else. What passes is tried again."""
        if self._is_paced:
            upkeep.IDLE_S = LONG_S
        upkeep.DEFERRED_S = LONG_S
        upkeep.KEYS_EVERY_MS = 100
        self.injector.install()
        if self._room:
            Quota(self._path, self._room).install()
        if self.injector.fault.needs_vfs or self._room:
            settings = msgspec.structs.replace(settings, vfs=VFS)
        shards = None if os.path.exists(os.path.join(self._path, "manifest.json")) else SHARDS
        try:
            local = LocalSettings(shards=shards, journal=settings, memory_bytes_max=memory_bytes)
            broker = open_sqlite(self._path, {}, local, self.clock)
        except StokerError as error:
            self.send(("refused", error.code, str(error)))
            return None
        assert isinstance(broker.store, DirectoryStore)
        self._upkeep = broker.store.upkeep
        self.broker = broker
        self._tell_of_the_last_state()
        self.injector.arm()
        return broker

    def send(self, message: object) -> None:
        with self._wire_lock:
            self._wire.send(message)

    def carry_out(self, script: Script) -> None:
        refused = 0
        self.send(Outcome("Open", True, "commit", "", self.state()))
        for step in script:
            outcome = self._carry_out(script, step)
            self.send(outcome)
            refused += outcome.word == "unavailable"
            if refused > 3:
                return

    def _carry_out(self, script: Script, step: Step) -> Outcome:
        reply: Any = None
        name = type(step).__name__
        try:
            match step:
                case Keep():
                    self.keep()
                case Pass():
                    self.clock.advance(step.ms)
                    self.broker.advance()
                case Listen():
                    self._listen(step.command)
                case _:
                    reply = self.broker.execute(TENANT, step)
                    script.learn(reply)
        except StokerError as error:
            return Outcome(name, False, error.code, str(error), self.state())
        except Exception as error:
            self.bad.append(f"{name} raised {''.join(traceback.format_exception(error))}")
            return Outcome(name, False, "bad", repr(error), self.state())
        return Outcome(name, True, getattr(reply, "level", ""), "", self.state())

    def state(self) -> str | None:
        with self.injector.aside(), self.broker._lock:
            if self.broker._closed:
                return None
            written = sum(self.broker.runtime.journal.last(shard) for shard in range(SHARDS))
            if written != self._state_at:  # otherwise nothing has happened
                self._state_at, self._state = written, state_of(self.broker.runtime)
            return self._state

    def keep(self) -> None:
        """Two rounds of upkeep: the second one has begun after we asked."""
        assert self._upkeep is not None
        thread = self._upkeep._threads[1]
        for _ in range(2):
            with self._round_over:
                before = self._rounds
                self._wanted += 1
                self._round_over.notify_all()
                self._upkeep._journal.upkeep_asked.set()
                while self._rounds == before and thread.is_alive():
                    self._round_over.wait(0.05)

    def _watch_rounds(self) -> None:
        original = Upkeep._keep

        @functools.wraps(original)
        def watched(upkeep: Upkeep) -> None:
            with self._round_over:
                while self._is_paced and not self._wanted and not upkeep._ended.is_set():
                    self._round_over.wait(0.02)
                self._wanted = max(0, self._wanted - 1)
            try:
                original(upkeep)
            finally:
                with self._round_over:
                    self._rounds += 1
                    self._round_over.notify_all()

        setattr(Upkeep, "_keep", watched)  # noqa: B010  # a method, not a field

    def _thread_died(self, how: threading.ExceptHookArgs) -> None:
        self.bad.append(f"a thread died of {''.join(traceback.format_exception(how.exc_value))}")

    def _tell_of_the_last_state(self) -> None:
        """When the broker stops, half a turn may have been written: this is what it had come to."""
        runtime, close = self.broker.runtime, self.broker.runtime.close

        def closing() -> None:
            with self.injector.aside():
                try:
                    self.send(("last", state_of(runtime)))
                except Exception:  # half a turn
                    self.send(("last", ""))
            close()

        runtime.close = closing  # type: ignore[method-assign]

    def _listen(self, command: c.Command[Any]) -> None:
        waiting = len(self.broker._waiters)

        def listen() -> None:
            try:
                self.broker.execute(TENANT, command)
            except StokerError:
                pass

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        self._listeners.append(thread)
        until(lambda: len(self.broker._waiters) > waiting or bool(self.broker._closed) or not thread.is_alive())

    def finish(self, closing: bool) -> None:
        stopped = self.broker._closed
        made = self._upkeep.retention.made if self._upkeep is not None else 0
        if closing:
            self._close()
        if closing or stopped:
            for thread in self._listeners:
                thread.join(PATIENCE_S)
                if thread.is_alive():
                    self.bad.append("somebody waits for ever")
        self.send(Report(dict(self.injector.calls), self.injector.fired, self.bad, made, stopped))

    def _close(self) -> None:
        try:
            self.broker.close()
        except StokerError:
            pass
        except Exception as error:
            self.bad.append(f"close raised {''.join(traceback.format_exception(error))}")
        if is_locked(self._path):
            self.bad.append("it was closed and is still locked")


def until(come: Callable[[], bool]) -> None:
    """There is nothing to be told by: look again and again."""
    pause = threading.Event()
    for _ in range(100_000):
        if come():
            return
        pause.wait(0.0005)
    raise AssertionError("it never came")


def is_locked(path: str) -> bool:
    lock = os.open(os.path.join(path, "lock"), os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def work(
    wire: "Connection[Any, Any]",
    path: str,
    fault: Fault,
    seed: int,
    steps: int,
    closing: bool,
    settings: JournalSettings,
    room: int,
) -> None:
    """The whole script, then the report; then wait to be killed."""
    worker = Worker(wire, path, fault, room)
    if worker.open(settings) is not None:
        worker.carry_out(Script(seed, steps))
        worker.finish(closing)
    else:
        worker.send(Report(dict(worker.injector.calls), worker.injector.fired, worker.bad, 0, ""))
    wire.recv()


# --- looking -----------------------------------------------------------------------------------------


class Found(msgspec.Struct, frozen=True):
    """A directory that could be opened."""

    state: str
    jobs: list[tuple[int, str, str, bytes]]
    """Every job: id, queue, state and the beginning of its payload."""
    records: int
    keys: list[str]
    """In the file of old keys."""


class Unopened(msgspec.Struct, frozen=True):
    """One that could not."""

    code: str
    message: str
    at_open: bool = True
    """Otherwise it was found when everything was read."""


def look(wire: "Connection[Any, Any]", path: str, now_ms: int = START_MS) -> None:
    """Open it as anybody would, hold it against its own rules, and read everything."""
    settings = LocalSettings(journal=QUIET)
    try:
        broker = open_sqlite(path, {}, settings, FakeClock(now_ms))
    except StokerError as error:
        wire.send(Unopened(error.code, str(error)))
        return
    try:
        found = looked_at(broker)
    except StokerError as error:
        wire.send(Unopened(error.code, str(error), at_open=False))
    else:
        wire.send(found)
    broker.close()


def looked_at(broker: LocalBroker) -> Found:
    with broker._lock:
        for shard in broker.runtime.shards:
            audit(shard)
        state = state_of(broker.runtime)
    records = 0
    for number in range(len(broker.runtime.shards)):
        journal = broker.runtime.journal
        after = journal.lowest(number) - 1
        while page := journal.read(number, after, 500):
            assert [sequence for sequence, _ in page] == list(range(after + 1, after + 1 + len(page)))
            records += len(page)
            after = page[-1][0]
        assert after == journal.last(number)
    return Found(state, all_jobs(broker), records, all_keys(broker))


def all_keys(broker: LocalBroker) -> list[str]:
    """Every key in the file of old keys, as a shard would find it."""
    assert isinstance(broker.store, DirectoryStore)
    store = broker.store.keys.store
    if store is None:
        return []
    try:
        places: list[Any] = list(store._file.execute("SELECT tenant, queue, kind, key FROM keys"))
    except (UnicodeDecodeError, apsw.CorruptError):  # whoever asks for that one is told
        return []
    return sorted(repr(store.find(tenant, queue, kind, key, START_MS)) for tenant, queue, kind, key in places)


def all_jobs(broker: LocalBroker) -> list[tuple[int, str, str, bytes]]:
    jobs: list[tuple[int, str, str, bytes]] = []
    after = None
    while True:
        page: r.Page = broker.execute(TENANT, c.Browse(limit=500, after=after, ascending=True))
        jobs += [(job.id, job.queue, str(job.state), job.payload[:64]) for job in page.jobs]
        after = page.next_after
        if after is None:
            return jobs


def sizes(path: str) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in Path(path).iterdir()}


# --- serving -----------------------------------------------------------------------------------------


def serve(wire: "Connection[Any, Any]", path: str, settings: JournalSettings, room: int) -> None:
    """Do what is asked for, one thing after another."""
    worker = Worker(wire, path, Fault(error="ENOSPC"), room)
    broker = worker.open(settings, memory_bytes=0)
    assert broker is not None, "it could not be opened"
    server = Server(worker, broker)
    wire.send("open")
    while True:
        match wire.recv():
            case ("push until refused",):
                wire.send(server.push_until_refused())
            case ("push",):
                wire.send(server.push() or "ok")
            case ("work off", turns):
                wire.send(server.work_off(turns))
            case ("execute", command):
                wire.send(server.execute(command))
            case ("repeat", command, times):
                wire.send(server.repeat(command, times))
            case ("turn", commands):
                wire.send(server.turn(commands))
            case ("keep",):
                worker.keep()
                wire.send("kept")
            case ("state",):
                wire.send(worker.state())
            case ("close",):
                broker.close()
                assert not is_locked(path)
                wire.send("closed")
                return


SETTLING: list[Callable[[list[int], int], c.Command[Any]]] = [c.Ack, c.Fail, c.Release]


class Server:
    """A broker that is asked for simple things."""

    def __init__(self, worker: Worker, broker: LocalBroker) -> None:
        self._worker, self._broker = worker, broker
        self._pushed: list[int] = []
        self._numbers = 0

    def push(self) -> str:
        """Why not; empty if it was taken."""
        self._numbers += 1
        payloads = [bytes(500) for _ in range(self._numbers % 3 + 1)]
        queue = QUEUES[self._numbers % len(QUEUES)]
        try:
            reply = self._broker.execute(TENANT, c.PushBatch(queue, payloads))
        except StokerError as error:
            return error.code
        self._pushed += reply.ids
        return ""

    def push_until_refused(self) -> tuple[list[int], str]:
        for _ in range(100_000):
            code = self.push()
            if code:
                return self._pushed, code
        return self._pushed, "never"

    def execute(self, command: c.Command[Any]) -> Any:
        """The reply, or the code of the refusal."""
        try:
            return self._broker.execute(TENANT, command)
        except StokerError as error:
            return error.code

    def repeat(self, command: c.Command[Any], times: int) -> set[str]:
        """What became of it each time: the codes, or `ok`."""
        replies = [self.execute(command) for _ in range(times)]
        return {reply if isinstance(reply, str) else "ok" for reply in replies}

    def turn(self, commands: list[c.Command[Any]]) -> list[str]:
        """The same for commands of one turn, as a server carries them out."""
        codes = []
        for command in commands:
            try:
                self._broker.begin(TENANT, command, lambda _: None)
                codes.append("ok")
            except StokerError as error:
                codes.append(error.code)
        self._broker.end()
        return codes

    def work_off(self, turns: int) -> dict[str, int]:
        """How often each of these was done; the first refusal ends it."""
        done: dict[str, int] = {}
        execute = self._broker.execute
        for turn in range(turns):
            delivery = execute(TENANT, c.Pull(QUEUES, 3, worker="w"))
            if not delivery.ids:
                break
            one, *others = delivery.ids
            other = others[0] if others else one
            commands: list[c.Command[Any]] = [
                SETTLING[turn % 3]([one], delivery.token),
                c.Extend([other], delivery.token) if turn % 2 else c.Cancel(other),
                c.Ack(delivery.ids, delivery.token),
            ]
            for command in commands:
                execute(TENANT, command)
            for name in ["Pull", *(type(command).__name__ for command in commands)]:
                done[name] = done.get(name, 0) + 1
        return done


# --- flushing ----------------------------------------------------------------------------------------


class Pushed(msgspec.Struct, frozen=True):
    """One push: what came of it, and at which level."""

    id: int
    level: str
    code: str = ""
    message: str = ""


class Flushed(msgspec.Struct, frozen=True):
    """A file has been flushed, when it was so long."""

    name: str
    size: int


def push_and_flush(
    wire: "Connection[Any, Any]", path: str, fault: Fault, pushes: int, settings: JournalSettings
) -> None:
    """Push at all levels, and tell what was flushed how far; rounds of upkeep in between."""
    worker = Worker(wire, path, fault)
    tell_flushes(worker)
    if worker.open(settings) is None:
        worker.send(Report(dict(worker.injector.calls), worker.injector.fired, worker.bad, 0, ""))
        wire.recv()
    levels: tuple[r.Level, ...] = ("memory", "commit", "fsync")
    for number in range(pushes):
        push_one(worker, number, levels[number % 3])
        if number % 5 == 4:
            worker.keep()
    for number in (pushes, pushes + 1):  # the first of them may be the one that fails
        push_one(worker, number, "commit")
    worker.finish(closing=False)
    wire.recv()


def push_one(worker: Worker, number: int, level: r.Level) -> None:
    push = c.Push(QUEUES[number % len(QUEUES)], b"%d;" % number + bytes(3_000), durability=level)
    try:
        reply = worker.broker.execute(TENANT, push)
        worker.send(Pushed(reply.id, reply.level))
    except StokerError as error:
        worker.send(Pushed(0, "", error.code, str(error)))
    except Exception as error:
        worker.bad.append(f"a push raised {error!r}")


def wait_together(wire: "Connection[Any, Any]", path: str, fault: Fault) -> None:
    """Three threads and an event loop wait for the same flush, and it fails."""
    worker = Worker(wire, path, fault)
    broker = worker.open(QUIET)
    assert broker is not None
    journal, let_go, fsync = broker.runtime.journal, threading.Event(), Disk.fsync
    assert isinstance(journal, SqliteJournal)

    def held_back(disk: Disk, descriptor: int, path: Path) -> None:
        let_go.wait(PATIENCE_S)
        fsync(disk, descriptor, path)

    setattr(Disk, "fsync", held_back)  # noqa: B010  # a method, not a field
    threads = [threading.Thread(target=push_one, args=(worker, number, "fsync")) for number in range(3)]
    for thread in threads:
        thread.start()

    async def push_too() -> None:
        try:
            reply = await broker.execute_async(TENANT, c.Push("q", b"", durability="fsync"))
            worker.send(Pushed(reply.id, reply.level))
        except StokerError as error:
            worker.send(Pushed(0, "", error.code, str(error)))

    async def push_then_let_go() -> None:
        pushing = asyncio.create_task(push_too())
        await asyncio.sleep(0)
        await asyncio.to_thread(until, lambda: len(journal._tickets._waiting) == 4)
        let_go.set()
        await pushing

    asyncio.run(push_then_let_go())
    for thread in threads:
        thread.join(PATIENCE_S)
    push_one(worker, 9, "fsync")
    worker.finish(closing=True)
    wire.recv()


def tell_flushes(worker: Worker) -> None:
    """Beneath the faults: what has been flushed is flushed."""
    fsync = Disk.fsync

    def telling(disk: Disk, descriptor: int, path: Path) -> None:
        size = os.fstat(descriptor).st_size
        fsync(disk, descriptor, path)
        worker.send(Flushed(path.name, size))

    setattr(Disk, "fsync", telling)  # noqa: B010  # a method, not a field


# --- publishing --------------------------------------------------------------------------------------


def publish_for_ever(wire: "Connection[Any, Any]", path: str, life: int) -> None:
    """A transaction over all queues, and the next one, until somebody ends it; rotating and sealing all the while."""
    shards = None if os.path.exists(os.path.join(path, "manifest.json")) else SHARDS
    settings = msgspec.structs.replace(BUSY, events_age_ms_max=1 << 40)
    broker = open_sqlite(path, {}, LocalSettings(shards=shards, journal=settings), FakeClock(START_MS + life))
    for number in range(1_000_000):
        name = f"t{life}.{number}"
        for place, queue in enumerate(QUEUES):
            broker.execute(TENANT, c.Stage(name, f"s{place}", queue, [f"{name}/{place}".encode()], part=0))
        wire.send(("staged", name))
        level: r.Level = "fsync" if number % 3 == 0 else "commit"
        broker.execute(TENANT, c.Publish(name, [f"s{place}" for place in range(len(QUEUES))], level))
        wire.send(("published", name))


# --- without descriptors -----------------------------------------------------------------------------


class Starved(msgspec.Struct, frozen=True):
    """How a process has fared in which no descriptors were left for a while."""

    pushed: int
    refused: list[str]
    read: list[str]
    """What was found in finished files meanwhile."""
    files_before: int
    files_meanwhile: int
    files: int
    """How many were made: before, meanwhile, and in the end."""
    stopped: str


DESCRIPTORS = 100
STARVING = JournalSettings(
    wal_bytes_max=60_000, checkpoint_records=40, disk_reserve_bytes=RESERVE_BYTES, fsync_interval_ms=20
)


class Glutton:
    """Takes every descriptor that there is; a greedy one also every one that becomes free."""

    def __init__(self, greedy: bool) -> None:
        self._taken: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._take_for_ever, daemon=True)
        self.take()
        if greedy:
            self._thread.start()

    def take(self) -> None:
        try:
            while True:
                self._taken.append(os.dup(0))
        except OSError:
            pass

    def _take_for_ever(self) -> None:
        while not self._ended.is_set():
            self.take()

    def end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for descriptor in self._taken:
            os.close(descriptor)


def starve(wire: "Connection[Any, Any]", path: str, greedy: bool) -> None:
    """Push while others have all descriptors, and for a while after they have let go of them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    starving = Starving(open_sqlite(path, {}, LocalSettings(shards=1, journal=STARVING)))
    starving.push_until(lambda: starving.files > 3)
    before, read = starving.files, list[str]()
    glutton = Glutton(greedy)
    if greedy:
        starving.push_until(lambda: starving.pushed > 60 and starving.waits)
    else:
        starving.push_until(lambda: starving.files > before + 3)
        events = starving.broker.execute(TENANT, c.ReadEvents(0, 0, limit=1))
        read = [event.kind.value for event in events.events]
    meanwhile = starving.files
    glutton.end()
    made = starving.retention.made
    starving.push_until(lambda: starving.files > meanwhile + 3 and starving.retention.made > made)
    stopped = starving.broker._closed
    wire.send(Starved(starving.pushed, starving.refused, read, before, meanwhile, starving.files, stopped))
    wire.recv()


class Starving:
    """A broker that is pushed to."""

    def __init__(self, broker: LocalBroker) -> None:
        assert isinstance(broker.store, DirectoryStore)
        assert broker.store.upkeep is not None
        self.broker = broker
        self._store, self.retention = broker.store, broker.store.upkeep.retention
        self._upkeep = broker.store.upkeep
        self.pushed = 0
        self.refused: list[str] = []

    @property
    def files(self) -> int:
        """How many were made so far."""
        return self._store.directory.manifest.number

    @property
    def waits(self) -> bool:
        """Whether a round of upkeep was put off."""
        return self._upkeep._tell_at > 0

    def push_until(self, come: Callable[[], bool]) -> None:
        pause, until = threading.Event(), time.monotonic() + PATIENCE_S / 2
        while not come() and not self.refused and time.monotonic() < until:
            try:
                self.broker.execute(TENANT, c.Push(QUEUES[0], bytes(10_000)))
                self.pushed += 1
            except Exception as error:
                self.refused.append(repr(error))
            pause.wait(0.01)
