"""Where the commands of all transports come together: executed as they arrive, journaled once a turn of the event
loop, answered only then. The more requests come in at once, the fewer commits each of them costs.

The desk knows no sockets and no encodings. Whoever submits a command gets its reply, or an error, through a callback
on the same event loop; replies of one turn come in the order in which the commands came.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from stoker.brokers.local import NO_REPLY, LocalBroker, Slot
from stoker.engine.parking import Parked
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import ShuttingDown, StokerError, Unknown
from stoker.server.meter import Meter

R = TypeVar("R")
Done = Callable[[Any], None]
"""Takes a reply, or a `StokerError` instead of one."""

STOPPING = "the server is shutting down and gives out no more jobs: connect again in a moment"

log = logging.getLogger("stoker.server")


class Held:
    """A command that waits for its reply; whoever submitted it may give it up."""

    __slots__ = ("done", "slot", "tenant")

    def __init__(self, tenant: str, done: Done) -> None:
        self.tenant = tenant
        self.done = done
        self.slot: Slot | None = None


class Desk:
    """The commands of one event loop for one broker."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.meter = Meter()
        self._opened_at = 0.0
        """When the turn's first command came."""
        self._begin = broker.begin
        self._loop = asyncio.get_running_loop()
        self._turn: list[tuple[Done, Any]] = []
        """Who is answered when the turn ends, and with what."""
        self._is_open = False
        self._held: set[Held] = set()
        self._after: list[Callable[[], None]] = []
        self._flushing: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._keeper = self._loop.create_task(broker.keep_time())

    def submit(self, tenant: str, command: c.Command[Any], done: Done) -> Held | None:
        """Carry the command out; `done` is called later. A `Held` if it waits for something to happen."""
        self.meter.commands[type(command)] += 1
        if self._stopping and type(command) is c.Pull:
            self._answer(done, ShuttingDown(STOPPING))
            return None
        try:
            reply = self._begin(tenant, command)
        except StokerError as error:
            self.meter.refused[type(command), error.code] += 1
            reply = error
        except Exception as error:
            log.exception("%s failed in a way that nobody expected", type(command).__name__)
            reply = Unknown(f"it is not known whether this happened: an unexpected {type(error).__name__}; see the log")
        if type(reply) is Parked:
            return self._hold(tenant, reply, done)
        self._answer(done, reply)
        return None

    async def call(self, tenant: str, command: c.Command[R]) -> R:
        """The same for a coroutine. Cancelling it gives the command up."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(reply: Any) -> None:
            if not future.done():
                future.set_result(reply)
            else:
                self.return_unsent(tenant, command, reply)

        held = self.submit(tenant, command, done)
        try:
            reply = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # the reply is there, and nobody takes it any more
                self.return_unsent(tenant, command, future.result())
            elif held is not None:
                self.give_up(held)
            raise
        if isinstance(reply, StokerError):
            raise reply
        return reply  # type: ignore[no-any-return]

    def look(self, tenant: str, command: c.Command[R]) -> R:
        """The reply of a command that only looks, at once: nothing of it has to be journaled."""
        return self._begin(tenant, command)  # type: ignore[no-any-return]

    def give_up(self, held: Held) -> None:
        """Nobody waits for this reply any more."""
        if held in self._held and held.slot is not None:
            self._held.discard(held)
            self.broker.abandon(held.slot)

    def return_unsent(self, tenant: str, command: c.Command[Any], reply: Any) -> None:
        """A delivery that could not be sent goes back as if never pulled, unless it can be asked for again."""
        if type(command) is c.Pull and command.claim is None and isinstance(reply, r.Delivery) and reply.runs:
            self.submit(tenant, c.Release(reply.ids, reply.token), lambda _: None)

    def after_turn(self, act: Callable[[], None]) -> None:
        """Call this once the replies of the turn have been handed out: connections write what has gathered."""
        self._after.append(act)
        self._open()

    @property
    def is_waiting(self) -> bool:
        """Whether any command waits for something to happen."""
        return bool(self._held)

    @property
    def is_stopping(self) -> bool:
        """Whether it gives out no more jobs."""
        return self._stopping

    async def stop_dispatching(self) -> None:
        """Give out no more jobs: pulls that wait are told so, everything else goes on."""
        self._stopping = True
        for held in list(self._held):
            if held.slot is not None and type(held.slot.parked.command) is c.Pull:
                self.give_up(held)
                self._answer(held.done, ShuttingDown(STOPPING))
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Answer everybody and let go of the clock. The broker is its owner's to close."""
        self._stopping = True
        for held in list(self._held):
            self.give_up(held)
            self._answer(held.done, ShuttingDown(STOPPING))
        self._end_turn()
        self._keeper.cancel()
        await asyncio.gather(self._keeper, *self._flushing, return_exceptions=True)

    # --- turns -----------------------------------------------------------------------------------

    def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._opened_at = time.perf_counter()
            self._loop.call_soon(self._end_turn)

    def _answer(self, done: Done, reply: Any) -> None:
        self._turn.append((done, reply))
        if not self._is_open:
            self._is_open = True
            self._opened_at = time.perf_counter()
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Journal what was executed, then let the replies out."""
        self._is_open = False
        opened_at = self._opened_at
        turn, self._turn = self._turn, []
        try:
            level, ticket = self.broker.end()
        except StokerError as error:
            turn = [(done, error) for done, _ in turn]
            ticket, level = 0, "memory"
        if ticket and not self.broker.runtime.journal.reached(ticket):
            task = self._loop.create_task(self._let_out_flushed(turn, level, ticket))
            self._flushing.add(task)
            task.add_done_callback(self._flushing.discard)
        else:
            self._let_out(turn, level)
        if turn:
            self.meter.turn(len(turn), time.perf_counter() - opened_at)

    def _let_out(self, turn: list[tuple[Done, Any]], level: r.Level) -> None:
        for done, reply in turn:
            if getattr(reply, "level", level) != level:
                reply = msgspec.structs.replace(reply, level=level)
            done(reply)
        after, self._after = self._after, []
        for act in after:
            act()

    async def _let_out_flushed(self, turn: list[tuple[Done, Any]], level: r.Level, ticket: int) -> None:
        """The same once the disk has it all."""
        await self.broker.line(self._loop).wait(ticket)
        try:
            self.broker.check_flushed(ticket)
        except StokerError as error:
            turn = [(done, error) for done, _ in turn]
        self._let_out(turn, level)

    # --- commands that wait ----------------------------------------------------------------------

    def _hold(self, tenant: str, parked: Parked, done: Done) -> Held:
        held = Held(tenant, done)
        self._held.add(held)
        held.slot = self.broker.hold(parked, partial(self._loop.call_soon_threadsafe, self._woken, held))
        return held

    def _woken(self, held: Held) -> None:
        """A waiting command has its reply. Its records are journaled; perhaps the disk has not got them yet."""
        if held not in self._held or held.slot is None:
            return
        if held.slot.reply is NO_REPLY:
            return  # asked to help with keeping time, which the desk's own keeper does
        self._held.discard(held)
        reply, ticket = self.broker.take(held.slot), held.slot.ticket
        if ticket and not self.broker.runtime.journal.reached(ticket):
            task = self._loop.create_task(self._let_out_flushed([(held.done, reply)], "fsync", ticket))
            self._flushing.add(task)
            task.add_done_callback(self._flushing.discard)
        else:
            self._answer(held.done, reply)
