"""The engine inside this process, for any number of threads and event loops.

One lock guards the runtime; a call is one turn. A call that has to wait sleeps outside the lock until it is
answered. One of the sleepers is the timekeeper: it wakes at the next deadline of any shard and works it off for all; a
second one looks a little later, in case the first one's event loop is busy.
So a broker needs no thread of its own, and where nobody waits nothing has to happen before the next call.

The lock is not reentrant: a signal handler that runs in the middle of a call must not call the broker itself. Let it
set a flag, or hand the call to another thread.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from stoker.engine.parking import Parked
from stoker.journal.memory import MemoryJournal
from stoker.model import commands as c
from stoker.model.errors import Closed, InvalidRequest, StokerError
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from stoker.model.replies import Delivery
from stoker.runtime.clock import Clock, SystemClock
from stoker.runtime.runtime import Runtime

R = TypeVar("R")

NO_REPLY: Any = object()
CLOSED = "this broker is closed: connect again"
KEEPERS = 2
GRACE_MS = 50
"""How much later than the timekeeper its deputy looks."""


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an embedded broker is set up."""

    engine: Settings = Settings()
    limits: Limits = DEFAULT_LIMITS
    shards: int = 1
    """In one process more shards bring no speed; one of them lets any jobs depend on each other."""
    events_bytes_max: int = 64 * 1024 * 1024
    """How much of the latest history is kept for readers of events."""


class Slot:
    """Where a waiting call finds its reply."""

    __slots__ = ("parked", "reply", "wake")

    def __init__(self, parked: Parked, wake: Callable[[], object]) -> None:
        self.parked = parked
        self.wake = wake
        self.reply: Any = NO_REPLY


class LocalBroker:
    """A broker without a network in between."""

    def __init__(self, settings: LocalSettings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings = settings or LocalSettings()
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._slots: dict[int, Slot] = {}
        self._closed = ""
        """Why, once it is closed."""
        self._orphans: list[Slot] = []
        self._keepers: list[Slot] = []
        """The timekeeper and its deputy."""
        self._keeper_until = 0
        self._users = 1
        self.runtime = Runtime(
            MemoryJournal(settings.shards, settings.events_bytes_max),
            self._answer,
            settings.shards,
            settings.engine,
            settings.limits,
        )
        self._execute, self._now = self.runtime.execute, self._clock.now_ms

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        with self._lock:
            reply = self._turn(tenant, command)
            if type(reply) is not Parked:
                return reply  # type: ignore[no-any-return]
            signal = threading.Event()
            slot = self._slots[id(reply)] = Slot(reply, signal.set)
        try:
            while slot.reply is NO_REPLY:
                self._clock.wait(signal, self._next_look(slot))
                signal.clear()
                self.advance()
        except BaseException:
            self._abandon(slot)
            raise
        return self._reply(slot)  # type: ignore[no-any-return]

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        with self._lock:
            reply = self._turn(tenant, command)
            if type(reply) is not Parked:
                return reply  # type: ignore[no-any-return]
            signal, loop = asyncio.Event(), asyncio.get_running_loop()
            slot = self._slots[id(reply)] = Slot(reply, lambda: loop.call_soon_threadsafe(signal.set))
        try:
            while slot.reply is NO_REPLY:
                await self._clock.wait_async(signal, self._next_look(slot))
                signal.clear()
                self.advance()
        except BaseException:
            self._abandon(slot)
            raise
        return self._reply(slot)  # type: ignore[no-any-return]

    def advance(self) -> None:
        """Let happen what is due by now."""
        with self._lock:
            if self._closed:
                return
            try:
                self.runtime.advance(self._now())
            except BaseException as error:
                self._stop_if_torn(error)
                raise
            finally:
                self._wake_sleepers()

    def open_again(self) -> bool:
        """One more user of a shared broker, who will close it too; false if it is closed already."""
        with self._lock:
            if self._closed:
                return False
            self._users += 1
            return True

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users <= 0 and not self._closed:
                self._close(CLOSED)

    # --- within the lock -------------------------------------------------------------------------

    def _close(self, why: str) -> None:
        self._closed = why
        for slot in self._slots.values():
            if slot.reply is NO_REPLY:
                slot.reply = Closed(why)
            self._wake(slot)
        self.runtime.close()

    def _turn(self, tenant: str, command: c.Command[Any]) -> Any:
        if self._closed:
            raise Closed(self._closed)
        try:
            return self._execute(tenant, command, self._now())
        except StokerError:
            raise
        except BaseException as error:
            self._stop_if_torn(error)
            raise
        finally:
            if self._slots:  # a refused command may have let time pass, too
                self._wake_sleepers()

    def _stop_if_torn(self, error: BaseException) -> None:
        """After an interrupt or a bug in the middle of a change: half a turn must not be built upon."""
        if self.runtime.is_torn:
            self._close(f"the broker stopped because a turn was broken off by {type(error).__name__}")

    def _answer(self, parked: Parked, reply: Any) -> None:
        slot = self._slots.get(id(parked))
        if slot is not None:
            slot.reply = reply
            self._wake(slot)

    def _wake(self, slot: Slot) -> bool:
        try:
            slot.wake()
        except RuntimeError:  # its event loop was closed under it: nobody will ever come for the reply
            self._orphans.append(slot)
            return False
        return True

    def _wake_sleepers(self) -> None:
        """A deadline may have come up that is earlier than the timekeeper knows of: let it look again."""
        if self._keepers:
            next_at = self.runtime.next_at
            if next_at is not None and next_at < self._keeper_until:
                self._keeper_until = next_at
                for keeper in list(self._keepers):
                    self._wake(keeper)
        while self._orphans:
            self._give_back(self._orphans.pop())

    def _leave(self, slot: Slot) -> None:
        """A call stops waiting; if it kept the time, the deputy does, and another one becomes deputy."""
        self._slots.pop(id(slot.parked), None)
        if slot in self._keepers:
            self._keepers.remove(slot)
            for keeper in list(self._keepers):
                self._wake(keeper)
        if len(self._keepers) < KEEPERS:
            for other in list(self._slots.values()):
                if other.reply is NO_REPLY and other not in self._keepers and self._wake(other):
                    break

    def _give_back(self, slot: Slot) -> None:
        """Nobody waits for this reply any more: what it would have brought goes back, as if never pulled.

        Not what is under a claim: that can be asked for again, and perhaps already was.
        """
        slot.parked.give_up()
        self._leave(slot)
        claimed = type(slot.parked.command) is c.Pull and slot.parked.command.claim is not None
        if isinstance(slot.reply, Delivery) and slot.reply.runs and not claimed and not self._closed:
            self._turn(slot.parked.tenant, c.Release(slot.reply.ids, slot.reply.token))

    # --- waiting ---------------------------------------------------------------------------------

    def _next_look(self, slot: Slot) -> int:
        """How long this sleeper may sleep: the timekeeper until the next deadline, its deputy a little longer."""
        with self._lock:
            until = slot.parked.expires_at
            if self._closed:
                return until
            if len(self._keepers) < KEEPERS and slot not in self._keepers:
                self._keepers.append(slot)
            next_at = self.runtime.next_at
            if slot in self._keepers and next_at is not None:
                until = min(until, next_at + self._keepers.index(slot) * GRACE_MS)
            if self._keepers[0] is slot:
                self._keeper_until = until
            return until

    def _reply(self, slot: Slot) -> Any:
        with self._lock:
            self._leave(slot)
        if isinstance(slot.reply, Closed):
            raise slot.reply
        return slot.reply

    def _abandon(self, slot: Slot) -> None:
        """The caller was interrupted."""
        with self._lock:
            self._give_back(slot)


_shared: dict[str, LocalBroker] = {}
_shared_lock = threading.Lock()


def open_memory(name: str, parameters: dict[str, str], settings: LocalSettings | None) -> LocalBroker:
    """A new broker, or for a name the one that this process shares under it."""
    if parameters.keys() - {"shards"}:
        raise InvalidRequest(f"unknown parameters {sorted(parameters)}: memory:// knows only shards")
    asked = settings is not None or bool(parameters)
    settings = settings or LocalSettings()
    if "shards" in parameters:
        if not parameters["shards"].isdecimal():
            raise InvalidRequest(f"shards={parameters['shards']!r}: expected a number")
        settings = msgspec.structs.replace(settings, shards=int(parameters["shards"]))
    if not name:
        return LocalBroker(settings)
    with _shared_lock:
        broker = _shared.get(name)
        if broker is None or not broker.open_again():
            broker = _shared[name] = LocalBroker(settings)
        elif asked and settings != broker.settings:
            broker.close()
            raise InvalidRequest(f"memory://{name} is open with other settings: use another name, or the same settings")
        return broker
