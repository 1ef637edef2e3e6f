"""Single pushes that come in the same turn of an event loop, sent as one batch.

With many callers most of what a push costs is its message, and a batch is one message for all. Each caller gets the
answer to its own push, as if it had been sent alone. A caller that is alone does not wait for others.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE, Forbidden, Refused, StokerError, Unauthenticated, Unknown
from stoker.model.options import Options

BATCH_JOBS_MAX = 1_000
PAYLOAD_BYTES_MAX = 64 * 1024
"""Larger payloads cost their bytes and not their message: they go alone."""
BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Payload bytes in one batch: far below the limit for a frame."""

Send = Callable[[str, c.Command[Any]], Coroutine[Any, Any, Any]]
"""Sends a push or a batch for a tenant, and returns the reply."""


PushKind = tuple[str, str, r.Level | None]
"""Tenant, queue and level: pushes that have them in common can go together."""
WaitingPush = tuple[c.Push, "asyncio.Future[r.Pushed]"]
"""A push, and the future on which its caller waits. A caller that leaves cancels the future."""


class TurnBatch:
    """Pushes of one kind, until the turn of the event loop ends."""

    __slots__ = ("kind", "pushes", "size")

    def __init__(self, kind: PushKind) -> None:
        self.kind = kind
        self.pushes: list[WaitingPush] = []
        self.size = 0
        """Bytes of their payloads."""


class LoopPushes:
    """The single pushes of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._loop = loop
        self._send = send
        self._open: dict[PushKind, TurnBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.count = 0
        """Callers that wait for an answer. Each counts itself, from before its push until it has the answer."""
        self._is_lone = True
        """Whether the last pushes came one after another: then none waits for others of its turn."""

    @property
    def is_lone(self) -> bool:
        """Whether a caller that has counted itself is alone, and so need not wait for the end of the turn."""
        return self._is_lone and self.count == 1

    def add(self, tenant: str, push: c.Push) -> "asyncio.Future[r.Pushed]":
        """Send a push together with others. It must be one that `may_gather`."""
        future: asyncio.Future[r.Pushed] = self._loop.create_future()
        kind, size = (tenant, push.queue, push.durability), len(push.payload)
        batch = self._open.get(kind)
        if batch is not None and (len(batch.pushes) >= BATCH_JOBS_MAX or batch.size + size > BATCH_BYTES_MAX):
            self._end_turn(batch)
            batch = None
        if batch is None:
            batch = self._open[kind] = TurnBatch(kind)
            self._loop.call_soon(self._end_turn, batch)
        batch.pushes.append((push, future))
        batch.size += size
        return future

    def _end_turn(self, batch: TurnBatch) -> None:
        if self._open.get(batch.kind) is not batch:
            return  # it was full before
        del self._open[batch.kind]
        pushes = [waiting for waiting in batch.pushes if not waiting[1].done()]  # the others were cancelled
        self._is_lone = len(pushes) == self.count == 1
        if pushes:
            task = self._loop.create_task(self._carry_out(batch.kind[0], pushes))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, tenant: str, pushes: list[WaitingPush]) -> None:
        """Send a batch and answer all its callers, also when it fails."""
        groups = [pushes]
        while groups:
            pushes = groups.pop()
            try:
                share(pushes, await self._send(tenant, batch_of(pushes)))
            except StokerError as error:
                if is_worth_parting(error, pushes):
                    groups += halves(pushes)
                else:
                    answer_all(pushes, error)
            except BaseException as error:
                for group in (pushes, *groups):
                    answer_all(group, unexpected(error))
                raise


def may_gather(tenant: str, push: c.Push) -> bool:
    """Whether a push means the same as an item of a batch, and is worth it. What is odd is refused on its own."""
    options: Any = push.options
    return (
        type(push.payload) is bytes
        and len(push.payload) <= PAYLOAD_BYTES_MAX
        and type(push.queue) is str
        and type(tenant) is str
        and (push.durability is None or type(push.durability) is str)
        and type(options) is Options
        and not options.depends_on  # an edge may name an item of its own batch, and a push alone has none
    )


def batch_of(pushes: list[WaitingPush]) -> c.Push | c.PushBatch:
    """One command for all; a push that is alone stays what it is."""
    first = pushes[0][0]
    if len(pushes) == 1:
        return first
    options = [push.options for push, _ in pushes]
    payloads = [push.payload for push, _ in pushes]
    if all(each is first.options or each == first.options for each in options):
        return c.PushBatch(first.queue, payloads, first.options, durability=first.durability)
    return c.PushBatch(first.queue, payloads, each=options, durability=first.durability)


def share(pushes: list[WaitingPush], reply: r.Pushed | r.PushedBatch) -> None:
    """Give each caller the answer to its own push."""
    if isinstance(reply, r.Pushed):
        answer(pushes[0][1], reply)
        return
    refused, duplicates, level = reply.refused, reply.duplicates, reply.level
    for item, (job, (_, future)) in enumerate(zip(reply.ids, pushes, strict=True)):
        if item in refused:
            refusal = refused[item]
            answer(future, BY_CODE.get(refusal.code, StokerError)(refusal.message))
        else:
            by = duplicates.get(item)
            answer(future, r.Pushed(job, by is None, by, level))


def answer(future: "asyncio.Future[r.Pushed]", reply: r.Pushed | StokerError) -> None:
    if future.done():
        return
    if isinstance(reply, StokerError):
        future.set_exception(reply)
    else:
        future.set_result(reply)


def is_worth_parting(error: StokerError, pushes: list[WaitingPush]) -> bool:
    """A batch that is refused as a whole may hold pushes that alone would not be: nothing of it has happened."""
    return len(pushes) > 1 and isinstance(error, Refused) and not isinstance(error, Unauthenticated | Forbidden)


def halves(pushes: list[WaitingPush]) -> tuple[list[WaitingPush], list[WaitingPush]]:
    """The first one last, because the last one is taken first."""
    middle = len(pushes) // 2
    return pushes[middle:], pushes[:middle]


def answer_all(pushes: list[WaitingPush], error: StokerError) -> None:
    for _, future in pushes:
        answer(future, type(error)(*error.args))  # each caller gets an exception of its own: a traceback belongs to one


def unexpected(error: BaseException) -> StokerError:
    return Unknown(f"it is not known whether this push happened: an unexpected {type(error).__name__}: {error}")
