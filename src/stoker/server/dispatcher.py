"""The entrance for the commands of all transports: it executes them as they arrive, journals once per turn of the event
loop, and answers only then. The more requests come in at once, the fewer commits each of them costs.

A broker without turns (`served_broker.py`) gets each command as a task of its own, and commits it by itself.

The dispatcher knows no sockets and no encodings. A caller submits a command and gets its reply, or an error, through a
callback on the same event loop; replies of one turn come in the order of their commands. Only pushes that are gathered
(`push_batching.py`) are answered queue by queue.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from stoker.brokers.contract import End, Waiter, check_command
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import TAKES
from stoker.model.errors import ShuttingDown, StokerError, Unavailable, Unknown, Unsupported
from stoker.model.unreceived import release_of
from stoker.runtime import process_requests
from stoker.runtime.usage import Used
from stoker.server.meter import Meter
from stoker.server.push_batching import PendingBatch, is_batchable, replies_of
from stoker.server.reader import SharedReads
from stoker.server.served_broker import Counters, NoTurns, ServedBroker, ServedLogs, Turns

if TYPE_CHECKING:
    from stoker.runtime.process_router import ProcessRouter
    from stoker.server.processes.team import Team

R = TypeVar("R")
Done = Callable[[Any], None]
"""Takes a reply, or a `StokerError` instead of one."""
Submit = Callable[[str, Any, Done], Waiter | None]
Execute = Callable[[str, c.Command[Any]], Awaitable[Any]]
"""Carries out a command of a tenant."""
Wait = Callable[["asyncio.Future[Any]"], Awaitable[Any]]
"""Waits for the reply in a future."""

STOPPING = "the server is shutting down and gives out no more jobs: connect again in a moment"

LAST_WORDS_S = 1.0
"""For commands that a broker without turns is still about when the server closes."""
LOOK_S = 1.0
"""Between two looks whether the log can be flushed at all, when the server closes."""

GIVING = TAKES | {process_requests.Take, process_requests.Await}
"""Commands that give out jobs."""

log = logging.getLogger("stoker.server")


class Dispatcher:
    """The commands of one event loop for one broker."""

    def __init__(self, broker: ServedBroker) -> None:
        self.broker = broker
        self._turns: Turns = broker.turns or NoTurns(broker)
        self._has_turns = broker.turns is not None
        self.team: Team | None = None
        """The processes that share the shards, if this one has not got all of them."""
        self.meter = Meter()
        self.reads = SharedReads(self)
        self._opened_at = 0.0
        """When the turn's first command came."""
        self._begin, self._on_wake = self._turns.begin, self._wake
        self._loop = asyncio.get_running_loop()
        self._turn: list[tuple[Done, Any]] = []
        """Callers that are answered when the turn ends, with their replies."""
        self._gathered: dict[tuple[str, str], PendingBatch] = {}
        """Pushes of this turn that are carried out together, by tenant and queue."""
        self._is_open = False
        self._thread = threading.get_ident()
        self._is_ending = False
        self._awake: list[Waiter] = []
        """Commands that the end of this turn has answered."""
        self._is_busy = False
        """Whether the last turn had more than one command."""
        self._is_letting_out = False
        """Replies are being handed out: `after_turn` needs no new turn."""
        self._waiting: dict[Waiter, Callable[[Waiter], object]] = {}
        """Commands that wait for something to happen, each with what stops it where it is carried out."""
        self._after: list[Callable[[], None]] = []
        self._flushing: set[asyncio.Task[None]] = set()
        self._away: set[asyncio.Task[None]] = set()
        """Commands that other processes, or a broker without turns, carry out."""
        self._stopping = False
        self._keeper = self._loop.create_task(self._keep_time())

    def submit(
        self, tenant: str, command: c.Command[Any], done: Done, execute: "Execute | None" = None
    ) -> Waiter | None:
        """Carry the command out; `done` is called later. Returns the waiter if it waits for something to happen.

        A broker without turns may be reached through another `execute` than its own.
        """
        self.meter.commands[type(command)] += 1
        if self._stopping and type(command) is c.Pull:
            self._answer(done, ShuttingDown(STOPPING))
            return None
        if self.team is not None:
            process = self.team.router.concerns_one(tenant, command)
            if process != self.team.router.me:
                return self._send_away(self.team.router, process, tenant, command, done)
        elif not self._has_turns:
            return self._hand_over(execute or self._execute_async, tenant, command, done)
        if type(command) is c.Push and is_batchable(command):
            self._gather(tenant, command, done)
            return None
        return self._carry_out(tenant, command, done)

    async def _execute_async(self, tenant: str, command: c.Command[R]) -> R:
        """For a broker without turns."""
        check_command(self.broker, command)
        return await self.broker.execute_async(tenant, command)

    def submit_here(self, tenant: str, command: c.Command[Any], done: Done) -> Waiter | None:
        """What another process asks of this one's own shards: in one turn with all the rest, and counted there."""
        if self._stopping and type(command) in GIVING:
            self._answer(done, ShuttingDown(STOPPING))
            return None
        if type(command) is c.Push and is_batchable(command):
            self._gather(tenant, command, done)
            return None
        return self._carry_out(tenant, command, done)

    def _carry_out(self, tenant: str, command: c.Command[Any], done: Done) -> Waiter | None:
        if self._gathered:
            self._push_gathered()
        reply = self._reply_to(tenant, command)
        if isinstance(reply, Waiter):
            return self._wait(reply, done)
        self._answer(done, reply)
        return None

    def _reply_to(self, tenant: str, command: c.Command[Any]) -> Any:
        """A reply, an error instead of one, or a `Waiter`."""
        try:
            return self._begin(tenant, command, self._on_wake)
        except StokerError as error:
            self.meter.refused[type(command), error.code] += 1
            return error
        except Exception as error:
            return unexpected(command, error)

    def _gather(self, tenant: str, command: c.Push, done: Done) -> None:
        """Put a push with the others to its queue. What it does not fit in with is carried out before it."""
        key = (tenant, command.queue)
        batch = self._gathered.get(key)
        if batch is not None and batch.take(command, done):
            return
        if batch is not None:
            self._push_batch(batch)
        self._gathered[key] = PendingBatch(tenant, command, done)
        if not self._is_open:
            self._open()

    def _push_gathered(self) -> None:
        """Carry out what was gathered: before anything that came after it."""
        gathered, self._gathered = self._gathered, {}
        for batch in gathered.values():
            self._push_batch(batch)

    def _push_batch(self, batch: PendingBatch) -> None:
        """Carry out a batch as one command, or each push alone if one of them is refused or was answered before."""
        replies: list[Any] | None = None
        if len(batch.pushes) > 1:
            try:
                reply = self._begin(batch.tenant, batch.command, self._on_wake)
                replies = None if reply is None else replies_of(reply)
            except StokerError:
                pass  # nothing has happened
            except Exception as error:
                replies = [unexpected(batch.command, error)] * len(batch.pushes)
        if replies is None:
            replies = [self._reply_to(batch.tenant, push) for push in batch.pushes]
        self._turn += zip(batch.dones, replies, strict=True)
        if not self._is_open:
            self._open()

    async def call(self, tenant: str, command: c.Command[R]) -> R:
        """The same for a coroutine. Cancelling it gives the command up."""
        return await self.called(self.submit, tenant, command)  # type: ignore[no-any-return]

    async def call_here(self, tenant: str, command: c.Command[R]) -> R:
        """`submit_here` for a coroutine."""
        return await self.called(self.submit_here, tenant, command)  # type: ignore[no-any-return]

    async def called(self, submit: Submit, tenant: str, command: Any, wait: "Wait | None" = None) -> Any:
        """Hand a command in with `submit`, and wait for its reply. Cancelling it gives the command up.

        A caller that watches something else while the command waits brings a `wait` of its own.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(reply: Any) -> None:
            if not future.done():
                future.set_result(reply)
            else:
                self.return_unsent(tenant, command, reply)

        waiter = submit(tenant, command, done)
        try:
            reply = await (future if waiter is None or wait is None else wait(future))
        except BaseException:
            if future.done() and not future.cancelled():  # the reply is there, and the caller has left
                self.return_unsent(tenant, command, future.result())
            else:
                future.cancel()
                if waiter is not None:
                    waiter.give_up()
            raise
        if isinstance(reply, StokerError):
            raise reply
        return reply

    def look(self, tenant: str, command: c.Command[R]) -> R:
        """The reply of a command that only looks, at once: nothing of it has to be journaled.

        It concerns the shards of this process alone. Raises `Unavailable` if the journal would have to read for it.
        """
        if self._gathered:
            self._push_gathered()
        reply = self._begin(tenant, command, self._on_wake)
        if isinstance(reply, Waiter):
            reply.give_up()
            raise Unavailable("this has to be read from the journal first: try again")
        return reply  # type: ignore[no-any-return]

    def added_by(self, tenant: str, command: c.Command[Any]) -> Used:
        """What a command would add to what the tenant uses, as far as this process can tell."""
        if self._gathered:
            self._push_gathered()
        return self.counters.added_by(tenant, command)

    async def look_everywhere(self, tenant: str, command: c.Command[R]) -> R:
        """The same over all processes. What the server asks for itself is not counted."""
        if self.team is not None:
            return await self.team.router.execute_async(tenant, command)
        return self.look(tenant, command) if self._has_turns else await self.broker.execute_async(tenant, command)

    async def call_as_system(self, command: c.Command[R]) -> R:
        """For what the server keeps for itself, in a tenant that no caller can name."""
        if self.team is not None:
            return await self.team.router.execute_as_system_async(command)
        return await self._turns.execute_as_system_async(command)

    @property
    def logs(self) -> ServedLogs:
        """Raises `Unsupported` if the broker keeps none."""
        if self.broker.logs is None:
            raise Unsupported.by(self.broker.name, "reading events")
        return self.broker.logs

    @property
    def counters(self) -> Counters:
        """Raises `Unsupported` if the broker does not count in this process."""
        if self.broker.counters is None:
            raise Unsupported.by(self.broker.name, "measuring what a tenant uses")
        return self.broker.counters

    @property
    def shards(self) -> int:
        """How many shards there are in all processes. 0 if the broker keeps no logs."""
        return self.broker.logs.shards if self.broker.logs is not None else 0

    def own_ends(self, tenant: str) -> dict[int, End]:
        """How far a tenant's logs reach, those that this process knows without asking."""
        logs = self.logs
        known = ((number, logs.known_end(tenant, number)) for number in range(logs.shards) if self.has(number))
        return {number: end for number, end in known if end is not None}

    def has(self, shard: int) -> bool:
        """Whether a shard lives in this process."""
        return self.team is None or self.team.has(shard)

    async def ends(self, tenant: str) -> Mapping[int, End]:
        """How far all logs reach that a tenant's events are in."""
        return await self.logs.ends(tenant) if self.team is None else await self.team.ends(tenant)

    def give_up(self, waiter: Waiter) -> None:
        """What `give_up` of a waiter does here: a reply that is on its way goes back."""
        waiter.done = partial(self.return_unsent, waiter.tenant, waiter.command)
        stop = self._waiting.pop(waiter, None)
        if stop is not None:
            stop(waiter)

    def return_unsent(
        self, tenant: str, command: c.Command[Any], reply: Any, *, received: int = 0, claimed: bool = False
    ) -> None:
        """The jobs of a reply that does not reach its client go back: `release_of` says which."""
        back = release_of(command, reply, received=received, claimed=claimed)
        if back is not None:
            self.submit(tenant, back, lambda _: None)

    def after_turn(self, act: Callable[[], None]) -> None:
        """Call this once the replies of the turn have been handed out: connections write what has gathered."""
        self._after.append(act)
        if not self._is_letting_out:
            self._open()

    @property
    def is_waiting(self) -> bool:
        """Whether any command waits for something to happen in this process."""
        return any(type(waiter) is not Waiter for waiter in self._waiting)

    @property
    def is_stopping(self) -> bool:
        """Whether it gives out no more jobs."""
        return self._stopping

    async def stop_dispatching(self) -> None:
        """Give out no more jobs: waiting pulls are refused, everything else goes on."""
        self._stopping = True
        self._refuse([waiter for waiter in self._waiting if type(waiter.command) in GIVING])
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Answer all callers, and stop the clock. The owner of the broker closes it."""
        self._stopping = True
        self._refuse(list(self._waiting))
        if self._away and not self._has_turns:  # commands on their way to the broker, among them jobs that go back
            await asyncio.wait(self._away, timeout=LAST_WORDS_S)
        for task in self._away:
            task.cancel()
        await asyncio.gather(*self._away, return_exceptions=True)
        self._end_turn()
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        await self._last_flushes()

    async def _last_flushes(self) -> None:
        """Wait for what the disk has not got yet, but not for a PostgreSQL that is away: the callers of these commands
        hear nothing, and their clients ask elsewhere.
        """
        while self._flushing:
            await asyncio.wait(self._flushing, timeout=LOOK_S)
            if self.broker.trouble:
                break
        for task in self._flushing:
            task.cancel()
        await asyncio.gather(*self._flushing, return_exceptions=True)

    def _refuse(self, waiting: list[Waiter]) -> None:
        """Tell commands that wait that the server stops."""
        for waiter in waiting:
            done = waiter.done
            waiter.give_up()
            self._answer(done, ShuttingDown(STOPPING))

    async def _keep_time(self) -> None:
        if self.team is not None:
            await self.team.router.is_ready.wait()
        await self._turns.keep_time()

    # --- turns -----------------------------------------------------------------------------------

    def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._opened_at = time.perf_counter()
            self._loop.call_soon(self._look_once_more if self._is_busy else self._end_turn)

    def _look_once_more(self) -> None:
        """Where several came at once, more have come while they were read: they cost no commit of their own."""
        self._loop.call_soon(self._end_turn)

    def _answer(self, done: Done, reply: Any) -> None:
        self._turn.append((done, reply))
        if not self._is_open:
            self._open()

    def _end_turn(self) -> None:
        """Journal what was executed, then let the replies out."""
        if self._gathered:
            self._push_gathered()
        self._is_open = False
        opened_at = self._opened_at
        turn, self._turn = self._turn, []
        self._is_ending = True
        try:
            level, ticket = self._turns.end()
        except StokerError as error:  # a refusal stays one, even if the turn is lost
            turn = [(done, reply if isinstance(reply, StokerError) else error) for done, reply in turn]
            ticket, level = 0, "memory"
        finally:
            self._is_ending = False
        if self._awake:
            woken, self._awake = self._awake, []
            # Last: where processes share a core, a worker that is woken first runs before the pusher has its answer.
            turn = [*turn, *self._replies_of(woken)]
        flushing = self._turns.flushing(ticket) if ticket else None
        if flushing is None:
            self._let_out(turn, level)
        else:
            self._let_out_later(flushing, turn, level)
        self._is_busy = len(turn) > 1
        if turn:
            self.meter.turn(len(turn), time.perf_counter() - opened_at)

    def _let_out(self, turn: list[tuple[Done, Any]], level: r.Level) -> None:
        self._is_letting_out = True
        try:
            for done, reply in turn:
                if getattr(reply, "level", level) != level:
                    reply = msgspec.structs.replace(reply, level=level)
                done(reply)
        finally:
            self._is_letting_out = False
        after, self._after = self._after, []
        for act in after:
            act()

    def _let_out_later(self, flushing: Awaitable[None], turn: list[tuple[Done, Any]], level: r.Level) -> None:
        """The same once the disk has it all."""
        task = self._loop.create_task(self._let_out_flushed(flushing, turn, level))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def _let_out_flushed(self, flushing: Awaitable[None], turn: list[tuple[Done, Any]], level: r.Level) -> None:
        try:
            await flushing
        except StokerError as error:
            turn = [(done, reply if isinstance(reply, StokerError) else error) for done, reply in turn]
        self._let_out(turn, level)

    # --- commands that wait ----------------------------------------------------------------------

    def _wait(self, waiter: Waiter, done: Done) -> Waiter:
        """Keep a command that waits, until it is answered or given up."""
        self._waiting[waiter] = waiter.stop
        waiter.done, waiter.stop = done, self.give_up
        return waiter

    def _wake(self, waiter: Waiter) -> None:
        """Called by the broker, from any thread. What the end of a turn brings about goes out with that turn."""
        if self._is_ending and threading.get_ident() == self._thread:
            self._awake.append(waiter)
        else:
            self._loop.call_soon_threadsafe(self._woken, waiter)

    def _woken(self, waiter: Waiter) -> None:
        for done, reply in self._replies_of([waiter]):
            self._answer(done, reply)

    def _replies_of(self, woken: list[Waiter]) -> Iterator[tuple[Done, Any]]:
        """Replies of waiting commands. Their records are journaled; a task waits for what the disk has not got yet."""
        for waiter in woken:
            taken = self._turns.take(waiter) if waiter in self._waiting else None
            if taken is None:
                continue
            del self._waiting[waiter]
            reply, ticket = taken
            flushing = self._turns.flushing(ticket) if ticket else None
            if flushing is None:
                yield waiter, reply
            else:
                self._let_out_later(flushing, [(waiter, reply)], "fsync")

    # --- commands that are carried out elsewhere: by other processes, or by a broker without turns -----

    def _send_away(
        self, router: "ProcessRouter", process: int | None, tenant: str, command: c.Command[Any], done: Done
    ) -> Waiter | None:
        """Have it carried out in the processes where its shards live."""
        if process is None:
            return self._hand_over(router.execute_async, tenant, command, done)
        waiter = self._wait_elsewhere(tenant, command, done)
        came_back = partial(self._came_back, command, done, waiter)
        try:
            asked = router.pass_on(process, tenant, command, came_back)
        except StokerError as error:
            self._loop.call_soon(came_back, error)
        else:
            if waiter is not None:
                self._waiting[waiter] = lambda _: router.drop(asked)
        return waiter

    def _hand_over(self, execute: Execute, tenant: str, command: c.Command[Any], done: Done) -> Waiter | None:
        """Have it carried out as a task."""
        waiter = self._wait_elsewhere(tenant, command, done)
        came_back = partial(self._came_back, command, done, waiter)
        task = self._loop.create_task(self._carried_out(execute, tenant, command, came_back))
        self._away.add(task)
        task.add_done_callback(self._away.discard)
        if waiter is not None:
            self._waiting[waiter] = lambda _: task.cancel()
        return waiter

    def _wait_elsewhere(self, tenant: str, command: c.Command[Any], done: Done) -> Waiter | None:
        """Only a command that may wait for something to happen can be given up."""
        if not getattr(command, "wait_ms", 0):
            return None
        return self._wait(Waiter(tenant, command, lambda _: None), done)

    async def _carried_out(self, execute: Execute, tenant: str, command: c.Command[Any], came_back: Done) -> None:
        try:
            reply: Any = await execute(tenant, command)
        except StokerError as error:
            reply = error
        except asyncio.CancelledError:  # given up, or the server closes
            came_back(Unknown("it is not known whether this happened: the server is shutting down"))
            raise
        except Exception as error:
            reply = unexpected(command, error)
        came_back(reply)

    def _came_back(self, command: c.Command[Any], done: Done, waiter: Waiter | None, reply: Any) -> None:
        """The reply is journaled where it comes from: it belongs to no turn here."""
        if waiter is not None and self._waiting.pop(waiter, None) is None:
            waiter(reply)  # given up while the reply was on its way
            return
        if isinstance(reply, StokerError):
            self.meter.refused[type(command), reply.code] += 1
        done(reply)


def unexpected(command: c.Command[Any], error: Exception) -> StokerError:
    """A bug: the caller hears that the outcome is unknown."""
    log.error("%s failed unexpectedly", type(command).__name__, exc_info=error)
    return Unknown(f"it is not known whether this happened: an unexpected {type(error).__name__}; see the log")
