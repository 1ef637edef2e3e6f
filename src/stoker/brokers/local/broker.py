"""The engine inside this process, for any number of threads and event loops.

One lock guards the runtime; a call is one turn. A call that has to wait sleeps outside the lock until it is
answered. One of the sleepers is the timekeeper: it wakes at the next deadline of any shard and works it off for all; a
second one looks a little later, in case the first one's event loop is busy.
So the engine needs no thread of its own: while no call waits, nothing has to happen before the next call. A journal
on disk has two, for flushing and for upkeep (`journal/upkeep.py`). What a journal behind a network has to read for a
reply, and any journal for a search of a server, is read by threads of the broker, outside of the lock.

The lock is not reentrant: a signal handler that runs in the middle of a call must not call the broker itself. Let it
set a flag, or hand the call to another thread.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from stoker.brokers.contract import LACKS_NOTHING, End
from stoker.brokers.local.settings import LocalSettings
from stoker.brokers.local.waiting import NO_REPLY, FlushLine, LocalWaiter, Wake
from stoker.engine.parking import Parked
from stoker.engine.shard import Shard
from stoker.journal.contract import DataDirectory, Journal, JournalFailed, NotWritten, Store
from stoker.journal.history_file import NAME as HISTORY_FILE
from stoker.journal.memory import MemoryJournal
from stoker.journal.patience import patiently
from stoker.model import commands as c
from stoker.model.errors import Closed, InvalidRequest, Refused, StokerError, Unavailable, Unknown
from stoker.model.history import MINUTE_MS
from stoker.model.ids import SHARDS_MAX, SYSTEM_TENANT
from stoker.model.limits import INT_MAX, Limits
from stoker.model.replies import Level, Stats
from stoker.model.unreceived import release_of
from stoker.runtime.clock import Clock, SystemClock, wall_ms
from stoker.runtime.loading import Load
from stoker.runtime.runtime import Runtime
from stoker.runtime.usage import Used, added_by, used

R = TypeVar("R")

CLOSED = "this broker is closed: connect again"
WALL_EVERY_MS = 60_000
"""How often a server with schedules looks at the clock on the wall: it may be set, and a machine may have slept."""
KEEPERS = 2
GRACE_MS = 50
"""How much later than the timekeeper its deputy looks."""
LOADERS = 4
"""Threads that read for replies: a long story does not hold up a delivery."""

log = logging.getLogger("stoker.server")


class LocalBroker:
    """A broker without a network in between. It has all that a server can use: `server/served_broker.py`."""

    name = "local"
    lacks = LACKS_NOTHING

    def __init__(
        self,
        settings: LocalSettings | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
        journal: MemoryJournal | None = None,
    ) -> None:
        """`journal` is another one than usual for a queue in memory."""
        self.settings = settings = settings or LocalSettings()
        self._clock = clock or SystemClock()
        self.store = store
        """What keeps its jobs. None in memory, and when it is closed."""
        self._lock = threading.Lock()
        self._waiters: dict[int, LocalWaiter] = {}
        """Callers that wait, by the identity of their `Parked`."""
        self._closed = ""
        """Why, once it is closed."""
        self.failure = ""
        """Why, once it has stopped by itself."""
        self.has_failed = False
        """Whether its journal has failed: this process must not write to the directory any more."""
        self._when_stopped: list[Callable[[], object]] = []
        self._orphans: list[LocalWaiter] = []
        """Callers that gave up, and whose jobs go back next."""
        self._keepers: list[LocalWaiter] = []
        """The timekeeper and its deputy."""
        self._keeper_until = 0
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, FlushLine] = WeakKeyDictionary()
        """The calls that wait for the disk, by event loop."""
        self._loaders: ThreadPoolExecutor | None = None
        self._reading: set[Parked] = set()
        """Commands that wait for a read."""
        self._users = 1
        shards: Sequence[Shard] = new_shards(settings) if store is None else store.shards
        chosen: Journal
        if store is None:
            chosen = journal or MemoryJournal(len(shards), settings.events_bytes_max)
        else:
            chosen = store.journal
        total = len(shards) if store is None else store.total
        place = store.data_directory if store is not None else None
        self.runtime = Runtime(
            chosen,
            self._answer,
            shards,
            settings.durability,
            settings.memory_bytes_max,
            total,
            place.path / HISTORY_FILE if place is not None else None,
        )
        self.runtime.read_elsewhere = self._read_elsewhere
        self._execute, self._now = self.runtime.execute, self._clock.now_ms
        if store is not None:
            self.runtime.memory.is_stored = True
            self.runtime.open(self._now())
            store.start(self)

    def execute(self, tenant: str, command: c.Command[R], *, system: bool = False) -> R:
        try:
            with self._lock:
                reply = self._turn(tenant, command, self.runtime.execute_as_system if system else self._execute)
                ticket = self.runtime.ticket
                waiter = signal = None
                if type(reply) is Parked:
                    signal = threading.Event()
                    waiter = self._wait(reply, lambda _: signal.set())
            if waiter is not None and signal is not None:
                reply, ticket = self._waited(waiter, signal)
        except Refused:
            if refused := self._refusal_ticket:
                self._wait_flushed(refused)
            raise
        if ticket:
            self._wait_flushed(ticket)
        return reply  # type: ignore[no-any-return]

    def _waited(self, waiter: LocalWaiter, signal: threading.Event) -> tuple[Any, int]:
        """Its reply, and what that waits for."""
        try:
            while waiter.reply is NO_REPLY:
                if waiter.parked in self._reading:  # it waits for a thread, and not for the time
                    signal.wait()
                else:
                    self._clock.wait(signal, self._next_look(waiter))
                signal.clear()
                self.advance()
        except BaseException:
            waiter.give_up()
            raise
        return self._reply(waiter), waiter.ticket

    async def execute_async(self, tenant: str, command: c.Command[R], *, system: bool = False) -> R:
        try:
            return await self._executed_async(tenant, command, system)
        except Refused:
            if (ticket := self._refusal_ticket) and (flushing := self.flushing(ticket)) is not None:
                await flushing
            raise

    async def _executed_async(self, tenant: str, command: c.Command[R], system: bool) -> R:
        with self._lock:
            reply = self._turn(tenant, command, self.runtime.execute_as_system if system else self._execute)
            ticket = self.runtime.ticket
            waiter = signal = None
            if type(reply) is Parked:
                signal, loop = asyncio.Event(), asyncio.get_running_loop()
                waiter = self._wait(reply, lambda _: loop.call_soon_threadsafe(signal.set))
        if waiter is not None and signal is not None:
            try:
                while waiter.reply is NO_REPLY:
                    if waiter.parked in self._reading:
                        await signal.wait()
                    else:
                        await self._clock.wait_async(signal, self._next_look(waiter))
                    signal.clear()
                    self.advance()
            except BaseException:
                waiter.give_up()
                raise
            reply, ticket = self._reply(waiter), waiter.ticket
        if ticket and (flushing := self.flushing(ticket)) is not None:
            await flushing
        return reply  # type: ignore[no-any-return]

    def execute_as_system(self, command: c.Command[R]) -> R:
        """For what the process keeps for itself, in a tenant that no caller can name."""
        return self.execute(SYSTEM_TENANT, command, system=True)

    async def execute_as_system_async(self, command: c.Command[R]) -> R:
        return await self.execute_async(SYSTEM_TENANT, command, system=True)

    # --- for a server: many commands in one turn, on one event loop ------------------------------

    def begin(self, tenant: str, command: c.Command[Any], wake: Wake) -> Any:
        """One command of a turn: its reply, which must not leave before `end`, or a `LocalWaiter`.

        `wake` is called, from any thread, when the waiter has its reply. The timekeeper hears at once of every deadline
        that a waiting command has set: its own, and the next token of a rate limit. No reply leaves now, so `end` may
        come much later.
        """
        with self._lock:
            if self._closed:
                raise self._refusal()
            try:
                reply = self.runtime.begin(tenant, command, self._now())
                if type(reply) is Parked:
                    self._wake_keepers(reply.expires_at)
                    self._wake_keepers(self.runtime.turn_next_at())
                    return self._wait(reply, wake)
                return reply
            except StokerError:
                raise
            except JournalFailed as error:
                raise self._failed(error) from error
            except BaseException as error:
                self._stop_if_torn(error)
                raise

    def end(self) -> tuple[Level, int]:
        """Journal the turn: the level that its replies reach, and the ticket that they wait for (0 = nothing).

        Raises `Unavailable` if it cannot have happened, `Unknown` if it may have happened.
        """
        with self._lock:
            try:
                if not self._closed:
                    return self.runtime.end(), self.runtime.ticket
                if self.has_failed and self.runtime.is_begun:
                    raise self._refusal()
            except JournalFailed as error:
                raise self._failed(error) from error
            finally:
                self._wake_keepers(self.runtime.turn_next_at())
                self.runtime.forget_turn()
                self._give_back_orphans()
            raise Unknown(f"it is not known whether this happened: {self._closed}")

    def take(self, waiter: LocalWaiter) -> tuple[Any, int] | None:
        """The reply of a waiter, or an error, and the ticket that it waits for. None if there is no reply yet."""
        if waiter.reply is NO_REPLY:
            return None  # it was woken to keep the time, which the server's own timekeeper does
        with self._lock:
            self._leave(waiter)
        return waiter.reply, waiter.ticket

    def flushing(self, ticket: int) -> Coroutine[Any, Any, None] | None:
        """Waits for the disk; None if it has what the ticket stands for. Raises `Unknown` if it never will."""
        return None if self.runtime.journal.reached(ticket) else self._flushed(ticket)

    async def _flushed(self, ticket: int) -> None:
        journal, line = self.runtime.journal, self.line(asyncio.get_running_loop())
        while not (journal.reached(ticket) or journal.has_failed):
            await line.wait(ticket)
        self.check_flushed(ticket)

    def _wait_flushed(self, ticket: int) -> None:
        """The same for a thread."""
        journal, flushed = self.runtime.journal, threading.Event()
        while journal.when_flushed(ticket, flushed.set):
            flushed.wait()
            if journal.has_failed:
                self.check_flushed(ticket)
                return
            flushed.clear()

    @property
    def _refusal_ticket(self) -> int:
        """What a refusal waits for: it tells of a state, which must not be one that never was."""
        journal = self.runtime.journal
        return journal.ticket() if journal.reads_wait else 0

    def line(self, loop: asyncio.AbstractEventLoop) -> FlushLine:
        """Where those of an event loop wait for the disk."""
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = FlushLine(self.runtime.journal, loop)
        return line

    async def keep_time(self) -> None:
        """Work off deadlines when they come, until cancelled: the timekeeper of a server."""
        signal, loop = asyncio.Event(), asyncio.get_running_loop()
        for_ever = Parked("", c.ListQueues(), INT_MAX)
        with self._lock:
            waiter = self._wait(for_ever, lambda _: loop.call_soon_threadsafe(signal.set))
        try:
            while waiter.reply is NO_REPLY:
                await self._clock.wait_async(signal, self._next_look_at_wall(waiter))
                signal.clear()
                self.advance()
        finally:
            waiter.give_up()

    @property
    def turns(self) -> Self:
        return self

    @property
    def logs(self) -> Self:
        return self

    @property
    def counters(self) -> Self:
        return self

    @property
    def remote(self) -> None:
        """All that it counts, it counts here."""
        return None

    @property
    def limits(self) -> Limits:
        """As they are now: `set_limits` changes them."""
        return self.runtime.limits

    @property
    def trouble(self) -> str:
        """Why no commands can be carried out at the moment; empty while they can."""
        journal = self.runtime.journal
        return str(journal.absent) or (self.failure or "the journal has failed" if journal.has_failed else "")

    @property
    def is_full(self) -> bool:
        """Whether no new jobs are taken for want of disk."""
        return bool(self.runtime.journal.is_full)

    @property
    def shards(self) -> int:
        """How many there are, those of other processes included."""
        return self.runtime.shards.total

    def known_end(self, tenant: str, shard: int) -> End:
        """How far the log of a shard of this process reaches: it has the events of all tenants."""
        journal = self.runtime.journal
        return End(journal.safe(shard), journal.lowest(shard))

    async def ends(self, tenant: str) -> Mapping[int, End]:
        return {shard.number: self.known_end(tenant, shard.number) for shard in self.runtime.shards}

    def tenants(self) -> Collection[str]:
        return {name for shard in self.runtime.shards for name in shard.tenants if name != SYSTEM_TENANT}

    def used(self, tenant: str) -> Used:
        """May be asked within a turn, so it takes no lock."""
        return used(self.runtime.shards, tenant)

    def added_by(self, tenant: str, command: c.Command[Any]) -> Used:
        return added_by(self.runtime.shards, tenant, command)

    def refuse_schedules_when(self, is_over: Callable[[str, int], bool]) -> None:
        """A schedule pushes nothing while `is_over(tenant, bytes)`."""
        self.runtime.refuse_schedules_when(is_over)

    def shard_stats(self) -> list[Stats]:
        """The counters of each shard over all tenants: for operators, never for a tenant."""
        with self._lock:
            return self.runtime.shard_stats(self._now())

    def sample_history(self) -> Callable[[], None]:
        """Note what has happened in the queues since the last time. The answer stores it, and may run in any thread."""
        with self._lock:
            if self._closed:
                return lambda: None
            history, wall = self.runtime.history, self._now() - self.runtime.shards[0].ahead_ms
            samples = history.sample()
        return lambda: history.file.add(samples, (wall - 1_000) // MINUTE_MS)  # those of a minute that has just ended

    def set_limits(self, limits: Limits) -> None:
        """Use other limits for commands from now on."""
        with self._lock:
            self.runtime.set_limits(limits)

    def hand_back_all(self) -> int:
        """Return every running job to its queue as if it had never been pulled; how many there were."""
        with self._lock:
            if self._closed:
                return 0
            return self.runtime.hand_back_all(self._now())

    def check_flushed(self, ticket: int) -> None:
        """Raise `Unknown` if the disk has not got what the ticket stands for."""
        if not self.runtime.journal.reached(ticket):
            raise Unknown(f"it is not known whether this happened: {self._closed or 'the journal failed'}")

    def advance(self) -> None:
        """Let happen what is due by now."""
        with self._lock:
            if self._closed:
                return
            try:
                self.runtime.advance(self._now())
            except JournalFailed as error:
                self._failed(error)
            except BaseException as error:
                self._stop_if_torn(error)
                raise
            finally:
                self._wake_sleepers()

    def open_again(self) -> bool:
        """Count one more user of a shared broker, which will close it too; false if it is closed already."""
        with self._lock:
            if self._closed:
                return False
            self._users += 1
            return True

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            if not self._closed:
                self._hand_back_unread()
            if not self._closed:
                self._close(CLOSED)
            store, self.store = self.store, None
        if self._loaders is not None:
            self._loaders.shutdown(cancel_futures=True)  # no file is closed while it is read
        if store is not None:
            store.close()

    @property
    def data_directory(self) -> DataDirectory | None:
        """The directory that keeps its jobs. None if it has none, or is closed."""
        return self.store.data_directory if self.store is not None else None

    @property
    def guard(self) -> threading.Lock:
        """For the upkeep of the journal."""
        return self._lock

    def commit(self) -> None:
        self.runtime.commit()

    def now(self) -> int:
        return self._now()

    def leave_to_parent(self) -> None:
        """In a process forked off the owner's: the directory stays the parent's, and this copy does nothing more."""
        self._lock = threading.Lock()  # the thread that held the old one does not exist here
        self._closed = "this broker was opened before the process forked: connect again in the child"
        store, self.store = self.store, None
        if store is not None:
            store.leave_to_parent()

    def stop(self, error: Exception) -> None:
        """The journal can promise nothing any more: stop, and fail all calls."""
        with self._lock:
            if not self._closed:
                self._failed(error)

    def when_stopped(self, tell: Callable[[], object]) -> None:
        """Call `tell`, from any thread, should the broker stop by itself. It must not wait for anything."""
        with self._lock:
            self._when_stopped.append(tell)
            if self.failure:
                tell()

    # --- within the lock -------------------------------------------------------------------------

    def _close(self, why: str) -> None:
        self._closed = why
        for waiter in self._waiters.values():
            if waiter.reply is NO_REPLY:
                waiter.reply = self._refusal()
            self._wake(waiter)
        self.runtime.close()

    def _failed(self, error: Exception) -> StokerError:
        """The journal has failed: stop. What to say of a command that was under way."""
        self.has_failed = True
        why = f"the broker stopped because its journal failed: {error}; open it again to recover from disk"
        self._stop_by_itself(why)
        if isinstance(error, NotWritten):
            return self._refusal()
        return Unknown(f"it is not known whether this happened: {error}")

    def _stop_by_itself(self, why: str) -> None:
        if self._closed:
            return
        self.failure = why
        self._close(why)
        for tell in self._when_stopped:
            tell()

    def _refusal(self) -> StokerError:
        """Nothing happens here any more, and nothing of what is refused with this has happened."""
        return Unavailable(self._closed) if self.has_failed else Closed(self._closed)

    def _turn(self, tenant: str, command: c.Command[Any], execute: Callable[[str, Any, int], Any]) -> Any:
        if self._closed:
            raise self._refusal()
        try:
            return execute(tenant, command, self._now())
        except StokerError:
            raise
        except JournalFailed as error:
            raise self._failed(error) from error
        except BaseException as error:
            self._stop_if_torn(error)
            raise
        finally:
            if self._waiters:  # a refused command may have let time pass, too
                self._wake_sleepers()

    def _stop_if_torn(self, error: BaseException) -> None:
        """After an interrupt or a bug in the middle of a change: half a turn must not be built upon."""
        if self.runtime.is_torn:
            self._stop_by_itself(f"the broker stopped because a turn was broken off by {type(error).__name__}")

    def _answer(self, parked: Parked, reply: Any) -> None:
        waiter = self._waiters.get(id(parked))
        if waiter is not None:
            waiter.reply = reply
            waiter.ticket = self.runtime.ticket
            self._wake(waiter)

    def _wait(self, parked: Parked, wake: Wake) -> LocalWaiter:
        """A caller begins to wait. From now on any thread's call may answer it."""
        waiter = self._waiters[id(parked)] = LocalWaiter(parked, wake, self._give_up)
        if self._closed:
            waiter.reply = self._refusal()
        return waiter

    def _wake(self, waiter: LocalWaiter) -> bool:
        try:
            waiter.wake(waiter)
        except RuntimeError:  # its event loop was closed under it: the caller never comes for the reply
            self._orphans.append(waiter)
            return False
        return True

    def _wake_sleepers(self) -> None:
        """A deadline may have come up that is earlier than the timekeeper knows of: let it look again."""
        if self._keepers:
            self._wake_keepers(self.runtime.next_at)
        self._give_back_orphans()

    def _wake_keepers(self, next_at: int | None) -> None:
        if self._keepers and next_at is not None and next_at < self._keeper_until:
            self._keeper_until = next_at
            for keeper in list(self._keepers):
                self._wake(keeper)

    def _give_back_orphans(self) -> None:
        while self._orphans:
            self._give_back(self._orphans.pop())

    def _leave(self, waiter: LocalWaiter) -> None:
        """A caller stops waiting. If it kept the time, the deputy does, and another one becomes deputy."""
        self._waiters.pop(id(waiter.parked), None)
        if waiter in self._keepers:
            self._keepers.remove(waiter)
            for keeper in list(self._keepers):
                self._wake(keeper)
        if len(self._keepers) < KEEPERS:
            for other in list(self._waiters.values()):
                if other.reply is NO_REPLY and other not in self._keepers and self._wake(other):
                    break

    def _give_back(self, waiter: LocalWaiter) -> None:
        """The caller has given up: its jobs go back, as if never pulled."""
        if waiter.parked.done and waiter.reply is NO_REPLY:
            # Served in a turn that has not ended: the delivery comes with its end, and goes back then.
            waiter.wake = self._orphans.append
            return
        waiter.parked.give_up()
        self._leave(waiter)
        back = release_of(waiter.command, waiter.reply)
        if back is not None and not self._closed:
            execute = self.runtime.execute_as_system if waiter.tenant == SYSTEM_TENANT else self._execute
            self._turn(waiter.tenant, back, execute)

    def _hand_back_unread(self) -> None:
        try:
            self.runtime.hand_back_unread()
        except JournalFailed as error:
            self._failed(error)

    # --- what the journal has to read first ------------------------------------------------------

    def _read_elsewhere(self, load: Load) -> None:
        self._reading.add(load.parked)
        self._start_reading(load)

    def _start_reading(self, load: Load) -> None:
        if self._loaders is None:
            self._loaders = ThreadPoolExecutor(LOADERS, "stoker-loads")
        self._loaders.submit(self._read, load)

    def _read(self, load: Load) -> None:
        """On a thread of its own: read, and answer in a turn."""
        found = self._found(load)
        with self._lock:
            self._reading.discard(load.parked)
            if self._closed:
                return
            try:
                self.runtime.loaded(load, found, self._now())
            except JournalFailed as error:
                self._failed(error)
            except BaseException as error:
                self._stop_if_torn(error)
                self._answer(load.parked, self._not_read(load, error))
            finally:
                waiter = self._waiters.get(id(load.parked))
                if waiter is not None and waiter.reply is NO_REPLY:
                    self._wake(waiter)  # it may wait for the time now
                self._wake_sleepers()

    def _found(self, load: Load) -> Any:
        """What was read, or the error instead."""
        if self._closed:
            return self._refusal()
        try:
            with patiently():
                return load.read()
        except StokerError as error:
            return error
        except Exception as error:
            return self._not_read(load, error)

    def _not_read(self, load: Load, error: BaseException) -> StokerError:
        """A bug: it left no record, so nothing has happened."""
        name = type(load.parked.command).__name__
        log.error("reading for %s failed unexpectedly", name, exc_info=error)
        return Unavailable(f"the reply could not be read: an unexpected {type(error).__name__}; see the log")

    # --- waiting ---------------------------------------------------------------------------------

    def _next_look(self, waiter: LocalWaiter) -> int:
        """How long this sleeper may sleep: the timekeeper until the next deadline, its deputy a little longer."""
        with self._lock:
            until = waiter.parked.expires_at
            if self._closed:
                return until
            if len(self._keepers) < KEEPERS and waiter not in self._keepers:
                self._keepers.append(waiter)
            next_at = self.runtime.next_at
            if waiter in self._keepers and next_at is not None:
                until = min(until, next_at + self._keepers.index(waiter) * GRACE_MS)
            if self._keepers[0] is waiter:
                self._keeper_until = until
            return until

    def _next_look_at_wall(self, waiter: LocalWaiter) -> int:
        """The same for a server's timekeeper: with schedules it looks at the clock on the wall now and then."""
        until = self._next_look(waiter)
        wall = wall_ms(self._clock)
        with self._lock:
            if wall is None or self._closed or not self.runtime.has_schedules:
                return until
            now = self._now()
            self.runtime.follow_wall(now, wall)
            return min(until, self.runtime.next_at or until, now + WALL_EVERY_MS)

    def _reply(self, waiter: LocalWaiter) -> Any:
        with self._lock:
            self._leave(waiter)
        if isinstance(waiter.reply, Exception):
            raise waiter.reply
        return waiter.reply

    def _give_up(self, waiter: LocalWaiter) -> None:
        """`give_up` of a waiter."""
        with self._lock:
            self._give_back(waiter)


def new_shards(settings: LocalSettings) -> list[Shard]:
    number = 1 if settings.shards is None else settings.shards
    if number not in (1 << bits for bits in range(7)):
        raise InvalidRequest(f"{number} shards: expected a power of two from 1 to {SHARDS_MAX}")
    return [Shard(place, settings.engine, settings.limits) for place in range(number)]
