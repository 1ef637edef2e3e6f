"""A broker over the shards of several processes: it executes each command in the processes that hold its shards.

Most commands concern one shard, and go to its process unchanged. For the others there is a plan of parts
(`process_requests.py`): which process is asked for what, in which order, and how the replies become one. If a process
dies, its answers are lost: a request that cannot have happened gets `unavailable`, one that may have happened
`unknown`.

All of it runs on one event loop. Each process's own broker takes care of its disk.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

from stoker.engine import checks
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model import errors
from stoker.model.command_table import NUMBERED, READS, TAKES, at_home
from stoker.model.ids import KV_HOME, SYSTEM_TENANT, process_of, shard_for, shard_of
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.unreceived import release_of
from stoker.runtime import (
    multiprocess,
    multiprocess_transactions,
    multiprocess_workflows,
    process_requests,
    type_checks,
)
from stoker.runtime.peer_lost import PeerLost, lost
from stoker.runtime.process_messages import (
    Message,
    PeerAnswer,
    PeerAsk,
    PeerDrop,
    Peers,
    UnreadableMessage,
    from_bytes,
    to_bytes,
)

R = TypeVar("R")

ENTRIES, AT_A_SHARD = at_home("entries"), at_home("shard")

READING = process_requests.READING | READS
"""A process that dies while it carries one of these out has changed nothing."""

STOPPABLE = READING | TAKES | {process_requests.Take, process_requests.Await}
"""Stopped halfway, one of these has changed nothing: a pull that is given up keeps no job."""

NOT_QUICK = frozenset((process_requests.TakeLetters, process_requests.Inquire))
"""After the first something is to be done here, and the second is no matter of the shards."""

LETTERS_AGAIN_S = 0.2
"""A process that could not take its letters gets them again after this time."""

UNWANTED = "the caller no longer waits for it"
TENANTS_CHECKED_MAX = 10_000


class Local(Protocol):
    """The broker over the shards of this process."""

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R: ...

    async def execute_as_system_async(self, command: c.Command[R]) -> R: ...


Done = Callable[[Any], None]
"""Takes a reply, or a `StokerError` instead of one."""


class Waits(Protocol):
    """A caller that waits for the reply to a command."""

    def give_up(self) -> None:
        """Wait no longer: no reply comes, and jobs that were on their way go back."""
        ...


Submit = Callable[[str, Any, Done], Waits | None]
"""Has a command carried out for the shards of this process. Returns the caller if the command waits for something."""


class PeerQuestion:
    """A question that another process has not answered yet."""

    __slots__ = ("command", "done", "number", "process", "tenant")

    def __init__(self, number: int, process: int, tenant: str, command: Any, done: Done) -> None:
        self.number, self.process, self.tenant, self.command = number, process, tenant, command
        self.done: Done | None = done
        """Takes the reply, a `StokerError`, or a `PeerLost`. None once the question was dropped."""


class ProcessRouter:
    """One process's view of all of them. Every method belongs to its event loop."""

    def __init__(
        self,
        local: Local,
        peers: Peers,
        me: int,
        processes: int,
        shards: int,
        limits: Limits = DEFAULT_LIMITS,
        *,
        typed: bool = False,
        submit: Submit | None = None,
    ) -> None:
        """`typed` says that every command has the types it should have, because it was decoded into them.

        `submit` is a shorter way to `local`, for what other processes ask: no task waits for it.
        """
        self.local = local
        self._submit = submit
        self.me = me
        self.shards = shards
        self.processes = range(min(processes, shards))
        """Those that have shards."""
        self._peers = peers
        self._number = 0
        self._token = min(me, len(self.processes))
        """The last that was chosen here."""
        self._typed = typed
        self._tenants: set[str] = set()
        """Names that have been checked."""
        self._asked: dict[int, PeerQuestion] = {}
        self._serving: dict[tuple[int, int], asyncio.Task[None]] = {}
        """What others have asked of this process, by process and number."""
        self._waiting: dict[tuple[int, int], Waits] = {}
        """The same for what was submitted and waits for something to happen."""
        self._background: set[asyncio.Task[Any]] = set()
        self._returns: dict[int, asyncio.Event] = {}
        """What is set when a process is there again."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_delivering = False
        self._locks: dict[Any, tuple[asyncio.Lock, int]] = {}
        self.checker = Shard(0, limits=limits)
        """An empty shard: what is wrong with a command by itself is the same in every one."""
        self.awaited = {process for process in self.processes if process != me}
        """Those with shards that have not yet said what they had to say to this process from before."""
        self.is_ready = asyncio.Event()
        """Set once none is awaited any more: time may pass now."""
        if not self.awaited or me not in self.processes:
            self.is_ready.set()

    # --- commands --------------------------------------------------------------------------------

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        """Carry out a command in the processes where its shards live."""
        self._check(tenant, command)
        return await self._execute(tenant, command)

    async def execute_as_system_async(self, command: c.Command[R]) -> R:
        """For what the server keeps for itself, in a tenant that no caller can name."""
        return await self._execute(SYSTEM_TENANT, command)

    async def _execute(self, tenant: str, command: c.Command[R]) -> R:
        special = multiprocess.SPECIAL.get(type(command))
        if special is None and type(command) in NUMBERED and multiprocess_workflows.names_others(self, tenant, command):
            special = multiprocess_workflows.push
        try:
            if special is not None:
                return await special(self, tenant, command)  # type: ignore[no-any-return]
            return await self.ask(self.owner_of(tenant, command), tenant, command)  # type: ignore[no-any-return]
        except PeerLost as gone:
            raise lost(gone.process, gone.sent and type(command) not in READING) from None

    def _check(self, tenant: str, command: Any) -> None:
        """What is malformed does not leave this process."""
        if type(tenant) is not str or tenant not in self._tenants:
            checks.name(tenant, "tenant")
            if len(self._tenants) >= TENANTS_CHECKED_MAX:
                self._tenants.clear()
            self._tenants.add(tenant)
        if not self._typed:
            type_checks.check(command)

    def owner_of(self, tenant: str, command: Any) -> int:
        """The process that a command goes to which concerns one shard; one that can say so if it is malformed."""
        if type(command) in AT_A_SHARD:
            return self.at(command.shard)
        if type(command) in ENTRIES:
            return self.home(tenant, KV_HOME)
        queue = getattr(command, "queue", None)
        if type(queue) is str:
            return self.home(tenant, queue)
        return self.by_id(getattr(command, "id", None))

    def concerns_one(self, tenant: str, command: Any) -> int | None:
        """The one process that can carry a command out as it is; None if it has to be put together of parts."""
        special = multiprocess.SPECIAL.get(type(command))
        if special is None:
            if type(command) in NUMBERED and multiprocess_workflows.names_others(self, tenant, command):
                return None
            return self.owner_of(tenant, command)
        if type(command) is c.Pull and command.claim is None and checks.is_list(command.queues):
            homes = {self.home(tenant, name) for name in command.queues if type(name) is str}
            return homes.pop() if len(homes) == 1 else None
        if special is multiprocess.settle and checks.is_list(command.ids):
            homes = {self.by_id(job_id) for job_id in command.ids}
            return homes.pop() if len(homes) == 1 else None
        return None

    def home(self, tenant: str, name: str) -> int:
        return process_of(shard_for(str(tenant), name, self.shards), len(self.processes))

    def by_id(self, job_id: Any) -> int:
        return self.at(shard_of(job_id)) if type(job_id) is int else 0

    def at(self, shard: Any) -> int:
        return process_of(shard, len(self.processes)) if type(shard) is int and 0 <= shard < self.shards else 0

    def new_token(self, least: int) -> int:
        """A token for a delivery of several processes.

        Each process that has shards chooses numbers of its own. Those without shards share theirs: if two choose the
        same, each process with shards takes it from one of them only, and the other comes late.
        """
        step = len(self.processes) + 1
        self._token = max(self._token + step, least + (min(self.me, step - 1) - least) % step)
        return self._token

    # --- asking ----------------------------------------------------------------------------------

    async def ask(self, process: int, tenant: str, command: Any, whole: bool = False) -> Any:
        """Have a process carry something out for its own shards, or a whole command; this one included."""
        if process == self.me:
            return await self._here(tenant, command, whole)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(reply: Any) -> None:
            if future.done():  # cancelled, and not dropped yet
                self.give_back(process, tenant, command, reply)
            else:
                future.set_result(reply)

        asked = self._send(process, tenant, command, done, whole)
        try:
            reply = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(process, tenant, command, future.result())
            else:
                self.drop(asked)
            raise
        if isinstance(reply, errors.StokerError | PeerLost):
            raise reply
        return reply

    def pass_on(self, process: int, tenant: str, command: Any, done: Done) -> PeerQuestion:
        """Have another process carry out a command that concerns it alone; `done` is called when it has answered.

        Raises `StokerError` if the process is not there, or the command malformed. What is returned can be dropped.
        """
        self._check(tenant, command)

        def told(reply: Any) -> None:
            if isinstance(reply, PeerLost):
                reply = lost(process, reply.sent and type(command) not in READING)
            done(reply)

        try:
            return self._send(process, tenant, command, told)
        except PeerLost:
            raise lost(process, False) from None

    def _send(self, process: int, tenant: str, command: Any, done: Done, whole: bool = False) -> PeerQuestion:
        self._number += 1
        number = self._number
        if not self._peers.send(process, to_bytes(PeerAsk(number, tenant, command, whole))):
            raise PeerLost(process, sent=False)
        asked = self._asked[number] = PeerQuestion(number, process, tenant, command, done)
        return asked

    def drop(self, asked: PeerQuestion) -> None:
        """The caller does not wait any more. The other process answers all the same, and its jobs go back."""
        if asked.number in self._asked:
            asked.done = None
            self._peers.send(asked.process, to_bytes(PeerDrop(asked.number)))

    async def _here(self, tenant: str, command: Any, whole: bool) -> Any:
        if whole:
            return await self._execute(tenant, command)
        if tenant == SYSTEM_TENANT:
            return await self.local.execute_as_system_async(command)
        return await self.local.execute_async(tenant, command)

    async def ask_all(self, tenant: str, questions: Mapping[int, Any]) -> list[Any]:
        """Ask several processes at once: replies and errors, in the order asked. Raises none of them."""
        asking = [self.ask(process, tenant, command) for process, command in questions.items()]
        return await asyncio.gather(*asking, return_exceptions=True)

    def receive(self, process: int, data: bytes) -> None:
        """A message of another process has arrived."""
        try:
            message: Message = from_bytes(data)
        except UnreadableMessage as error:
            if error.is_ask:
                refusal = PeerAnswer(error.number, "", errors.InvalidRequest(str(error)))
                self._peers.send(process, to_bytes(refusal))
                return
            message = PeerAnswer(
                error.number, "", errors.Unknown(f"it happened, but the answer cannot be read: {error}")
            )
        if isinstance(message, PeerAsk):
            if self._is_quick(message):
                self._serve_quickly(process, message)
                return
            key = (process, message.number)
            task = asyncio.get_running_loop().create_task(self._serve(process, message))
            self._serving[key] = task
            task.add_done_callback(lambda _: self._serving.pop(key, None))
        elif isinstance(message, PeerDrop):
            serving = self._serving.get((process, message.number))
            if serving is not None:
                serving.cancel()
            else:
                self._give_up(process, message.number)
        else:
            self._answered(message.number, message.reply)

    def _answered(self, number: int, reply: Any) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if asked.done is None:
            self.give_back(asked.process, asked.tenant, asked.command, reply)
        else:
            asked.done(reply)

    def _is_quick(self, message: PeerAsk) -> bool:
        """Whether it can be handed in right away, without a task that waits for it."""
        return (
            self._submit is not None
            and not message.whole
            and message.tenant != SYSTEM_TENANT
            and type(message.command) not in NOT_QUICK
            and self.is_ready.is_set()
        )

    def _serve_quickly(self, process: int, message: PeerAsk) -> None:
        assert self._submit is not None
        key = (process, message.number)

        def done(reply: Any) -> None:
            self._waiting.pop(key, None)
            self._answer(process, message, reply)

        waits = self._submit(message.tenant, message.command, done)
        if waits is not None:
            self._waiting[key] = waits

    def _give_up(self, process: int, number: int) -> None:
        waits = self._waiting.pop((process, number), None)
        if waits is not None:
            waits.give_up()
            self._peers.send(process, to_bytes(PeerAnswer(number, "", errors.Unavailable(UNWANTED))))

    async def _serve(self, process: int, message: PeerAsk) -> None:
        try:
            reply: Any = await self._here(message.tenant, message.command, message.whole)
            if type(message.command) is process_requests.TakeLetters:
                self._greeted(process)
        except errors.StokerError as error:
            reply = error
        except asyncio.CancelledError:  # the other process gave it up, or this one ends
            reply = lost(self.me, type(message.command) not in STOPPABLE)
        except Exception as error:  # a bug: the other process must not wait for ever
            reply = errors.Unknown(f"it is not known whether this happened: {type(error).__name__}: {error}")
        self._answer(process, message, reply)

    def _answer(self, process: int, message: PeerAsk, reply: Any) -> None:
        answer = to_bytes(PeerAnswer(message.number, type(message.command).__name__, reply))
        if not self._peers.send(process, answer):
            self.give_back(self.me, message.tenant, message.command, reply)

    def give_back(self, process: int, tenant: str, command: Any, reply: Any) -> None:
        """The caller does not receive this reply of a process: its jobs go back there."""
        back = release_of(command, reply)
        if back is not None:
            self.run(self.ask(process, tenant, back))

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something in the background. It fails if a process dies, and is mended when the process is back."""

        async def quietly() -> None:
            with suppress(PeerLost, errors.StokerError):
                await work

        task = asyncio.get_running_loop().create_task(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- letters ---------------------------------------------------------------------------------

    def has_letters(self) -> None:
        """Something lies here for shards of other processes. May be called from any thread, again and again."""
        if self._loop is not None and not self._is_delivering and not self._loop.is_closed():
            self._is_delivering = True
            self._loop.call_soon_threadsafe(self._deliver_soon)

    def _deliver_soon(self) -> None:
        self._is_delivering = False  # what comes from now on needs another look
        self.run(self._deliver_all())

    async def _deliver_all(self) -> None:
        for process in self.processes:
            if process != self.me:
                try:
                    await multiprocess_transactions.deliver(self, process)
                except PeerLost:
                    continue  # it gets everything when it comes back
                except errors.StokerError:
                    if self._loop is not None:
                        self._loop.call_later(LETTERS_AGAIN_S, self.has_letters)

    # --- coming and going ------------------------------------------------------------------------

    def peer_up(self, process: int) -> None:
        """There is a way to a process, perhaps again: it gets what lies here for it."""
        self._loop = asyncio.get_running_loop()
        if process in self.processes:
            self.run(self._welcome(process))

    async def _welcome(self, process: int) -> None:
        """What lies here for a process comes first: before it has heard that, no time should pass for it."""
        try:
            if self.me in self.processes:
                await multiprocess_transactions.deliver(self, process, greet=True)
        finally:
            returned = self._returns.pop(process, None)
            if returned is not None:
                returned.set()

    def return_of(self, process: int) -> asyncio.Event:
        """Set when there is a way again to a process to which there is none."""
        return self._returns.setdefault(process, asyncio.Event())

    def peer_down(self, process: int) -> None:
        """A process has died: what it had been asked will not be answered, and what it asked for is not wanted."""
        for number, asked in list(self._asked.items()):
            if asked.process == process:
                self._answered(number, PeerLost(process, sent=True))
        for (asker, _), task in list(self._serving.items()):
            if asker == process:
                task.cancel()
        for asker, number in list(self._waiting):
            if asker == process:
                self._give_up(asker, number)

    def _greeted(self, process: int) -> None:
        self.awaited.discard(process)
        if not self.awaited:
            self.is_ready.set()

    async def close(self) -> None:
        """Stop what is under way; the local broker is its owner's to close."""
        tasks = [*self._serving.values(), *self._background]
        for task in tasks:
            task.cancel()
        for process, number in list(self._waiting):
            self._give_up(process, number)
        await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def one_at_a_time(self, *key: Any) -> AsyncIterator[None]:
        """What has several steps, and must not be mixed with another of its kind."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            users = self._locks[key][1] - 1
            if users:
                self._locks[key] = (lock, users)
            else:
                del self._locks[key]
