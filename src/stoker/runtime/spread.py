"""A broker over the shards of several processes: whatever arrives here is carried out wherever its shards live.

Most commands concern one shard, and go to its process as they are. For the others there is a plan of parts
(`parts.py`): who is asked for what, in which order, and how the replies become one. A process that dies takes its
answers along: what cannot have happened is `unavailable`, what may have happened `unknown`.

All of it runs on one event loop. What lies on disk is the matter of each process's own broker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

import msgspec

from stoker.engine import checks, finishing, pulling, transactions
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import process_of, shard_for, shard_of
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.runtime import parts, routing, shapes
from stoker.runtime.peers import Answer, Ask, Drop, Message, Peers, Unreadable, from_bytes, to_bytes

R = TypeVar("R")

HEADROOM = 1024
"""So many tokens may be given out elsewhere while a pull goes from process to process."""

READING = parts.READING | {
    c.GetJob,
    c.FindJob,
    c.GetLogs,
    c.GetPartials,
    c.WaitJob,
    c.Browse,
    c.Why,
    c.ListQueues,
    c.GetQueue,
    c.GetStats,
    c.GetStory,
    c.ReadEvents,
    c.ListDead,
    c.GetDeadStats,
}
"""Whoever dies while carrying one of these out has changed nothing."""

TENANTS_CHECKED_MAX = 10_000

NOBODY = "default"
"""The tenant of parts that concern all tenants."""


class Local(Protocol):
    """The broker over the shards of this process."""

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R: ...


class Gone(Exception):
    """A process ended, or was not there; `sent` says whether it had been asked."""

    def __init__(self, process: int, sent: bool) -> None:
        self.process, self.sent = process, sent


class Asked:
    """A question that another process has not answered yet."""

    __slots__ = ("command", "future", "process", "tenant")

    def __init__(self, process: int, tenant: str, command: Any, future: "asyncio.Future[Any]") -> None:
        self.process, self.tenant, self.command, self.future = process, tenant, command, future


class Spread:
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
    ) -> None:
        """`typed` says that every command has the types it should have, because whoever decoded it has seen to that."""
        self.local = local
        self.me = me
        self.shards = shards
        self.processes = range(min(processes, shards))
        """Those that have shards."""
        self._peers = peers
        self._number = 0
        self._typed = typed
        self._tenants: set[str] = set()
        """Names that have been checked."""
        self._asked: dict[int, Asked] = {}
        self._serving: dict[tuple[int, int], asyncio.Task[None]] = {}
        """What others have asked of this process, by process and number."""
        self._background: set[asyncio.Task[Any]] = set()
        self._locks: dict[Any, tuple[asyncio.Lock, int]] = {}
        self._checker = Shard(0, limits=limits)
        """An empty shard: what is wrong with a command by itself is the same in every one."""
        self._awaited = {process for process in self.processes if process != me}
        self.is_ready = asyncio.Event()
        """Set once every other process has said what it had to say to this one from before: time may pass now."""
        if not self._awaited or me not in self.processes:
            self.is_ready.set()

    # --- commands --------------------------------------------------------------------------------

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        """Carry out a command, wherever its shards live."""
        self._check(tenant, command)
        special = SPECIAL.get(type(command))
        try:
            if special is not None:
                return await special(self, tenant, command)  # type: ignore[no-any-return]
            return await self.ask(self.owner_of(tenant, command), tenant, command)  # type: ignore[no-any-return]
        except Gone as gone:
            raise lost(gone.process, gone.sent and type(command) not in READING) from None

    def _check(self, tenant: str, command: Any) -> None:
        """What is malformed does not leave this process."""
        if type(tenant) is not str or tenant not in self._tenants:
            checks.name(tenant, "tenant")
            if len(self._tenants) >= TENANTS_CHECKED_MAX:
                self._tenants.clear()
            self._tenants.add(tenant)
        if not self._typed:
            shapes.check(command)

    def owner_of(self, tenant: str, command: Any) -> int:
        """The process that a command goes to which concerns one shard; one that can say so if it is malformed."""
        if type(command) is c.ReadEvents:
            return self._at(command.shard)
        queue = getattr(command, "queue", None)
        if type(queue) is str:
            return self._home(tenant, queue)
        return self._by_id(getattr(command, "id", None))

    def concerns_one(self, tenant: str, command: Any) -> int | None:
        """The one process that can carry a command out as it is; None if it has to be put together of parts."""
        special = SPECIAL.get(type(command))
        if special is None:
            return self.owner_of(tenant, command)
        if type(command) is c.Pull and command.claim is None and checks.is_list(command.queues):
            homes = {self._home(tenant, name) for name in command.queues if type(name) is str}
            return homes.pop() if len(homes) == 1 else None
        if special is settle and checks.is_list(command.ids):
            homes = {self._by_id(job_id) for job_id in command.ids}
            return homes.pop() if len(homes) == 1 else None
        return None

    def _home(self, tenant: str, name: str) -> int:
        return process_of(shard_for(str(tenant), name, self.shards), len(self.processes))

    def _by_id(self, job_id: Any) -> int:
        return self._at(shard_of(job_id)) if type(job_id) is int else 0

    def _at(self, shard: Any) -> int:
        return process_of(shard, len(self.processes)) if type(shard) is int and 0 <= shard < self.shards else 0

    # --- asking ----------------------------------------------------------------------------------

    async def ask(self, process: int, tenant: str, command: Any, whole: bool = False) -> Any:
        """Have a process carry something out for its own shards, or a whole command; this one included."""
        if process == self.me:
            return await (self if whole else self.local).execute_async(tenant, command)
        self._number += 1
        number = self._number
        data = to_bytes(Ask(number, tenant, command, whole))
        asked = Asked(process, tenant, command, asyncio.get_running_loop().create_future())
        self._asked[number] = asked
        if not self._peers.send(process, data):
            del self._asked[number]
            raise Gone(process, sent=False)
        try:
            reply = await asked.future
        except asyncio.CancelledError:
            if not asked.future.done() or asked.future.cancelled():  # who is dropped still answers: see `receive`
                self._peers.send(process, to_bytes(Drop(number)))
            else:
                self._give_back(asked, asked.future.result() if asked.future.exception() is None else None)
            raise
        if isinstance(reply, errors.StokerError):
            raise reply
        return reply

    async def ask_all(self, tenant: str, questions: Mapping[int, Any]) -> list[Any]:
        """Ask several processes at once: replies and errors, in the order asked. Raises none of them."""
        asking = [self.ask(process, tenant, command) for process, command in questions.items()]
        return await asyncio.gather(*asking, return_exceptions=True)

    def receive(self, process: int, data: bytes) -> None:
        """A message of another process has arrived."""
        try:
            message: Message = from_bytes(data)
        except Unreadable as error:
            if error.is_ask:
                refusal = Answer(error.number, "", errors.InvalidRequest(str(error)))
                self._peers.send(process, to_bytes(refusal))
                return
            message = Answer(error.number, "", errors.Unknown(f"it happened, but the answer cannot be read: {error}"))
        if isinstance(message, Ask):
            key = (process, message.number)
            task = asyncio.get_running_loop().create_task(self._serve(process, message))
            self._serving[key] = task
            task.add_done_callback(lambda _: self._serving.pop(key, None))
        elif isinstance(message, Drop):
            serving = self._serving.get((process, message.number))
            if serving is not None:
                serving.cancel()
        else:
            asked = self._asked.pop(message.number, None)
            if asked is not None and not asked.future.done():
                asked.future.set_result(message.reply)
            elif asked is not None:
                self._give_back(asked, message.reply)

    async def _serve(self, process: int, message: Ask) -> None:
        try:
            broker = self if message.whole else self.local
            reply: Any = await broker.execute_async(message.tenant, message.command)
            if type(message.command) is parts.TakeLetters:
                self._greeted(process)
        except errors.StokerError as error:
            reply = error
        except asyncio.CancelledError:
            reply = errors.Unavailable("nobody waited for it any more")
        except Exception as error:  # a bug: the one who asked must not wait for ever
            reply = errors.Unknown(f"it is not known whether this happened: {type(error).__name__}: {error}")
        self._peers.send(process, to_bytes(Answer(message.number, type(message.command).__name__, reply)))

    def _give_back(self, asked: Asked, reply: Any) -> None:
        """Nobody waits for what was delivered: it goes back as if never pulled, unless it can be asked for again."""
        pull = getattr(asked.command, "pull", asked.command)
        if isinstance(reply, r.Delivery) and reply.runs and pull.claim is None:
            self.run(self.ask(asked.process, asked.tenant, c.Release(list(reply.ids), reply.token)))

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Something that nobody waits for; that it fails is somebody's death, and mended by others."""

        async def quietly() -> None:
            with suppress(Gone, errors.StokerError):
                await work

        task = asyncio.get_running_loop().create_task(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- coming and going ------------------------------------------------------------------------

    def peer_up(self, process: int) -> None:
        """There is a way to a process, perhaps again: it gets what lies here for it."""
        if process in self.processes and self.me in self.processes:
            self.run(deliver(self, process, greet=True))

    def peer_down(self, process: int) -> None:
        """A process has died: what it had been asked will not be answered, and what it asked for is not wanted."""
        for number, asked in list(self._asked.items()):
            if asked.process == process:
                del self._asked[number]
                if not asked.future.done():
                    asked.future.set_exception(Gone(process, sent=True))
        for (asker, _), task in list(self._serving.items()):
            if asker == process:
                task.cancel()

    def _greeted(self, process: int) -> None:
        self._awaited.discard(process)
        if not self._awaited:
            self.is_ready.set()

    async def close(self) -> None:
        """Stop what is under way; the local broker is its owner's to close."""
        tasks = [*self._serving.values(), *self._background]
        for task in tasks:
            task.cancel()
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


def lost(process: int, maybe: bool) -> errors.StokerError:
    if maybe:
        return errors.Unknown(
            f"it is not known whether this happened: process {process} ended before it answered; it comes back by"
            " itself"
        )
    return errors.Unavailable(f"process {process} is not there at the moment: it comes back by itself, try again")


def check_all(replies: Sequence[Any], changes: bool) -> None:
    """One of several has failed: if others have not, part of it may have happened."""
    failed = [reply for reply in replies if isinstance(reply, BaseException)]
    if not failed:
        return
    happened = changes and (len(failed) < len(replies) or any(isinstance(one, Gone) and one.sent for one in failed))
    error = failed[0]
    raise lost(error.process, happened) if isinstance(error, Gone) else error


# --- looking, and settling ---------------------------------------------------------------------------


async def look(spread: Spread, tenant: str, command: Any) -> Any:
    if getattr(command, "queue", None) is not None:
        return await spread.ask(spread.owner_of(tenant, command), tenant, command)
    replies = await spread.ask_all(tenant, dict.fromkeys(spread.processes, command))
    check_all(replies, changes=False)
    return routing.ALL_OF[type(command)](command, replies)


async def find_job(spread: Spread, tenant: str, command: c.FindJob) -> Any:
    if command.queue is not None:
        return await spread.ask(spread.owner_of(tenant, command), tenant, command)
    replies = await spread.ask_all(tenant, dict.fromkeys(spread.processes, command))
    found = [reply for reply in replies if isinstance(reply, r.JobView)]
    check_all([reply for reply in replies if not isinstance(reply, errors.NotFound)], changes=False)
    if not found:
        raise replies[0]
    return routing.first_job(found)


async def settle(spread: Spread, tenant: str, command: Any) -> Any:
    """Ids of processes that are not there are refused one by one: the others are settled."""
    one = spread.concerns_one(tenant, command)
    if one is not None:
        return await spread.ask(one, tenant, command)
    finishing.check(spread._checker, command)
    own = routing.split(command, spread._by_id)
    replies = await spread.ask_all(tenant, own)
    if all(isinstance(reply, BaseException) for reply in replies):
        check_all(replies, changes=True)
    refused: dict[int, str] = {}
    for part, reply in zip(own.values(), replies, strict=True):
        if isinstance(reply, BaseException):
            error = lost(reply.process, reply.sent) if isinstance(reply, Gone) else reply
            if not isinstance(error, errors.StokerError):
                raise error
            refused |= dict.fromkeys(part.ids, error.code)
    whole = routing.settled(command, [reply for reply in replies if not isinstance(reply, BaseException)])
    return msgspec.structs.replace(whole, refused={**whole.refused, **refused}) if refused else whole


async def claim(spread: Spread, tenant: str, command: Any) -> Any:
    """Ack, release or extend a claim wherever it holds jobs. May be repeated when it was broken off."""
    replies = await spread.ask_all(tenant, dict.fromkeys(spread.processes, command))
    there = [reply for reply in replies if not isinstance(reply, errors.NotFound)]
    check_all(there, changes=True)
    if not there:
        raise replies[0]
    return routing.merge(there)


# --- pulling -----------------------------------------------------------------------------------------


async def pull(spread: Spread, tenant: str, command: c.Pull) -> r.Delivery:
    one = spread.concerns_one(tenant, command)
    if one is not None:
        return await spread.ask(one, tenant, command)  # type: ignore[no-any-return]
    pulling.check_pull(spread._checker, command)
    for name in command.queues:
        checks.name(name)
    if command.claim is None:
        delivery, next_at = await take(spread, tenant, command)
        if delivery is None and command.wait_ms:
            return await wait(spread, tenant, command)
        return delivery or r.Delivery(next_at=next_at)
    home = spread._home(tenant, command.claim)
    if home != spread.me:  # all who want a claim meet in one place
        return await spread.ask(home, tenant, command, whole=True)  # type: ignore[no-any-return]
    return await pull_claim(spread, tenant, command)


async def pull_claim(spread: Spread, tenant: str, command: c.Pull) -> r.Delivery:
    async with spread.one_at_a_time("claim", tenant, command.claim):
        delivery, next_at = await take(spread, tenant, command)
    if delivery is None and command.wait_ms:
        delivery = await wait(spread, tenant, command)
        if delivery.runs:
            async with spread.one_at_a_time("claim", tenant, command.claim):
                return await one_claim(spread, tenant, str(command.claim), delivery)
    return delivery or r.Delivery(next_at=next_at)


def by_home(spread: Spread, tenant: str, command: c.Pull) -> dict[int, list[str]]:
    """The queues of each process; a claim concerns all processes."""
    homes: dict[int, list[str]] = {} if command.claim is None else {process: [] for process in spread.processes}
    for name in command.queues:
        homes.setdefault(spread._home(tenant, name), []).append(name)
    return homes


async def take(spread: Spread, tenant: str, command: c.Pull) -> tuple[r.Delivery | None, int | None]:
    """What there is now, in the order of the queues and under one token, and else the next chance.

    Processes that are not there have nothing to give; what one gives that dies on the way comes back with its leases.
    """
    homes = by_home(spread, tenant, command)
    looks = {process: parts.Look(names, command.claim) for process, names in homes.items()}
    looked: list[Any] = await spread.ask_all(tenant, looks)
    there: list[parts.Looked] = [one for one in looked if isinstance(one, parts.Looked)]
    if not there or command.claim is not None:  # a claim may be held by the one that is not there
        check_all(looked, changes=False)
    claimed = [one.claimed for one in there if one.claimed is not None]
    if claimed:
        return joined(claimed), None
    token = max(one.token for one in there) + HEADROOM
    ready = {name for one in there for name in one.ready}
    runs: list[r.Run] = []
    left = command.count
    asked: set[int] = set()
    for process, names in in_turn(spread, tenant, [name for name in command.queues if name in ready]):
        own = msgspec.structs.replace(command, queues=names, count=left, wait_ms=0)
        with suppress(Gone, errors.Unavailable, errors.Unknown):
            delivery: r.Delivery = await spread.ask(process, tenant, parts.Take(own, token, process in asked))
            runs += delivery.runs
            left -= len(delivery)
        asked.add(process)
        if not left:
            break
    if runs:
        return r.Delivery(token, runs), None
    return None, min((one.next_at for one in there if one.next_at is not None), default=None)


def in_turn(spread: Spread, tenant: str, names: Sequence[str]) -> Iterable[tuple[int, list[str]]]:
    """Neighbouring queues of one process together."""
    turns: list[tuple[int, list[str]]] = []
    for name in names:
        process = spread._home(tenant, name)
        if not turns or turns[-1][0] != process:
            turns.append((process, []))
        turns[-1][1].append(name)
    return turns


def joined(claimed: Sequence[r.Delivery]) -> r.Delivery:
    """What a claim holds in several processes; where it was let go it holds nothing."""
    return routing.joined([one for one in claimed if one.runs] or claimed[:1])


async def wait(spread: Spread, tenant: str, command: c.Pull) -> r.Delivery:
    """Wait in every process; the first that has something wins, and what others give meanwhile goes back uncounted."""
    waiting = {
        asyncio.ensure_future(spread.ask(process, tenant, parts.Await(command, names))): process
        for process, names in by_home(spread, tenant, command).items()
    }
    pending = set(waiting)
    won: r.Delivery | None = None
    try:
        while pending and won is None:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: waiting[task]):
                if task.exception() is None and task.result().runs:
                    if won is None:
                        won = task.result()
                    else:
                        release(spread, waiting[task], tenant, command, task.result())
    finally:
        for task in pending:
            task.cancel()
        ended = await asyncio.shield(asyncio.gather(*pending, return_exceptions=True)) if pending else []
    for task, reply in zip(pending, ended, strict=True):
        if isinstance(reply, r.Delivery):
            release(spread, waiting[task], tenant, command, reply)
    if won is not None:
        return won
    replies = [task.exception() or task.result() for task in waiting]
    empty = [reply for reply in replies if isinstance(reply, r.Delivery)]
    if not empty:
        check_all(replies, changes=True)
    return r.Delivery(next_at=min((one.next_at for one in empty if one.next_at is not None), default=None))


def release(spread: Spread, process: int, tenant: str, command: c.Pull, delivery: r.Delivery) -> None:
    if delivery.runs and command.claim is None:
        spread.run(spread.ask(process, tenant, c.Release(list(delivery.ids), delivery.token)))


async def one_claim(spread: Spread, tenant: str, name: str, delivery: r.Delivery) -> r.Delivery:
    """A claim was made while somebody waited, perhaps in two processes at once: the first keeps it for all."""
    questions = dict.fromkeys(spread.processes, parts.Look([], name))
    looked: list[Any] = await spread.ask_all(tenant, questions)
    held = {
        process: one.claimed
        for process, one in zip(questions, looked, strict=True)
        if isinstance(one, parts.Looked) and one.claimed is not None and one.claimed.runs
    }
    if not held:
        return delivery
    token = next(iter(held.values())).token
    for process, other in held.items():
        if other.token != token:
            with suppress(Gone, errors.StokerError):
                await spread.ask(process, tenant, c.Release(list(other.ids), other.token))
    return joined([one for one in held.values() if one.token == token])


# --- transactions ------------------------------------------------------------------------------------


def decided_here(
    steps: Callable[[Spread, str, Any], Coroutine[Any, Any, Any]],
) -> Callable[[Spread, str, Any], Coroutine[Any, Any, Any]]:
    """All steps of a transaction are taken by the process that decides about it, one after the other."""

    async def decided(spread: Spread, tenant: str, command: Any) -> Any:
        checks.key(command.transaction, "transaction", spread._checker.limits)
        home = spread._home(tenant, command.transaction)
        if home != spread.me:
            return await spread.ask(home, tenant, command, whole=True)
        async with spread.one_at_a_time("transaction", tenant, command.transaction):
            return await steps(spread, tenant, command)

    return decided


async def found_in_all(spread: Spread, tenant: str, question: parts.FindTransaction) -> list[parts.Staged]:
    replies: list[Any] = await spread.ask_all(tenant, dict.fromkeys(spread.processes, question))
    check_all(replies, changes=False)
    return sorted((one for reply in replies for one in reply), key=lambda one: one.shard)


def ended(spread: Spread, tenant: str, transaction: str, found: Sequence[parts.Staged]) -> r.Transaction | None:
    """How it was decided, if it was."""
    decider = shard_for(tenant, transaction, spread.shards)
    return next((one.outcome for one in found if one.shard == decider), None)


@decided_here
async def stage(spread: Spread, tenant: str, command: c.Stage) -> r.Staged:
    """Each queue's part lies in its own shard; numbers of parts and jobs count over all of them."""
    checks.name(command.queue)
    question = parts.FindTransaction(command.transaction, command.stage, command.part)
    found = await found_in_all(spread, tenant, question)
    over = ended(spread, tenant, command.transaction, found)
    if over is not None:
        raise transactions.over(command.transaction, over)
    home = shard_for(tenant, command.queue, spread.shards)
    others = [one for one in found if one.shard != home]
    jobs = sum(one.stages.get(command.stage, 0) for one in others)
    if command.part is not None and any(one.has_part for one in others):
        here = sum(one.stages.get(command.stage, 0) for one in found if one.shard == home)
        return r.Staged(jobs + here, found[0].level)
    reply: r.Staged = await spread.ask(spread._home(tenant, command.queue), tenant, command)
    return msgspec.structs.replace(reply, jobs=reply.jobs + jobs)


@decided_here
async def publish(spread: Spread, tenant: str, command: c.Publish) -> r.Transaction:
    """Decided by one shard, in one record with the messages to the others, which follow as soon as they are there."""
    question = parts.FindTransaction(command.transaction, publish=tuple(command.stages))
    found = await found_in_all(spread, tenant, question)
    over = ended(spread, tenant, command.transaction, found)
    if over is not None and over.outcome == "aborted":
        raise transactions.over(command.transaction, over)
    if over is not None:
        return await outcome(spread, tenant, command.transaction)
    for name in command.stages:
        checks.key(name, "stage", spread._checker.limits)
        if not any(name in one.stages for one in found):
            raise transactions.unknown_stage(name, command.transaction)
    staged = {one.shard: list(one.stages) for one in found if one.stages}
    done = await decide(spread, tenant, command.transaction, list(command.stages), staged, command.durability)
    return msgspec.structs.replace(await outcome(spread, tenant, command.transaction), level=done.level)


@decided_here
async def abort(spread: Spread, tenant: str, command: c.Abort) -> r.Transaction:
    found = await found_in_all(spread, tenant, parts.FindTransaction(command.transaction))
    if ended(spread, tenant, command.transaction, found) is None:
        staged = {one.shard: list(one.stages) for one in found if one.stages}
        await decide(spread, tenant, command.transaction, None, staged, None)
    return await outcome(spread, tenant, command.transaction)


async def decide(
    spread: Spread,
    tenant: str,
    transaction: str,
    stages: list[str] | None,
    staged: Mapping[int, list[str]],
    durability: r.Level | None,
) -> r.Done:
    """On disk before anybody else hears of it: who has taken a message must never meet a sender who forgot it."""
    if any(spread._at(shard) != spread.me for shard in staged):
        durability = "fsync"
    async with spread.one_at_a_time("outbox"):
        return await spread.local.execute_async(tenant, parts.Decide(transaction, stages, staged, durability))


async def outcome(spread: Spread, tenant: str, transaction: str) -> r.Transaction:
    """How a transaction ended, over all shards that took part, once they know it."""
    try:
        for process in spread.processes:
            if process != spread.me:
                await deliver(spread, process)
        found = await found_in_all(spread, tenant, parts.FindTransaction(transaction))
    except (Gone, errors.StokerError) as error:
        raise errors.Unknown(
            f"transaction {transaction!r} is decided, but not all processes have heard of it ({error}): they will, by"
            " themselves; send it again to hear the outcome"
        ) from error
    reply: r.Transaction = routing.merge([one.outcome for one in found if one.outcome is not None])
    return reply


async def deliver(spread: Spread, process: int, greet: bool = False) -> None:
    """What lies here for the shards of a process is taken there, then forgotten here."""
    shards = [shard for shard in range(spread.shards) if spread._at(shard) == process]
    async with spread.one_at_a_time("letters", process):
        async with spread.one_at_a_time("outbox"):  # nothing is sent that is not on disk here
            letters = await spread.local.execute_async(NOBODY, parts.Letters(shards))
        if letters or greet:
            await spread.ask(process, NOBODY, parts.TakeLetters(letters))
        if letters:
            await spread.local.execute_async(NOBODY, parts.Arrived(letters))


SPECIAL: dict[type[Any], Callable[[Spread, str, Any], Coroutine[Any, Any, Any]]] = {
    c.Pull: pull,
    c.Ack: settle,
    c.Fail: settle,
    c.Release: settle,
    c.Extend: settle,
    c.AckClaim: claim,
    c.ReleaseClaim: claim,
    c.ExtendClaim: claim,
    c.Stage: stage,
    c.Publish: publish,
    c.Abort: abort,
    c.FindJob: find_job,
    c.ListQueues: look,
    c.GetStats: look,
    c.Browse: look,
}
"""Commands that may concern several processes."""
