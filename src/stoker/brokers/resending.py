"""What may be sent again when its answer was lost, and what the second answer then means.

A call is a plan: the commands that carry it out, one after another, each with its answer. Pushes get a name and a
number, so that a second sending finds the first. Settling has one by nature, the token: if the second sending is
refused, the first may have done it, and the job itself is asked. Nothing here sends anything.
"""

import secrets
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import NotFound
from stoker.model.events import Event, EventKind
from stoker.model.states import State
from stoker.wire.table import BY_COMMAND

R = TypeVar("R")

PARTS = 2**53
"""A part of a stage has a number below."""


class Answer(msgspec.Struct, frozen=True):
    reply: Any
    again: bool
    """Whether the command had been sent before, and perhaps carried out."""


Plan = Generator[c.Command[Any], Answer, R]


def plan_of(command: c.Command[R], senders: "Senders") -> Plan[R]:
    """How a command is carried out by somebody who may be lost over it."""
    kind: Any = type(command)
    if kind in PUSHES and is_nameless(command):
        return (yield from pushed_once(command, senders))  # type: ignore[no-any-return]
    if kind is c.PushWorkflow and command.request_key is None:  # type: ignore[attr-defined]
        command = msgspec.structs.replace(command, request_key=secrets.token_hex(16))
    if kind is c.Stage and command.part is None:  # type: ignore[attr-defined]
        command = msgspec.structs.replace(command, part=secrets.randbelow(PARTS))
    answer = yield command
    if answer.again and kind in SETTLING and answer.reply.refused:
        return (yield from settled(command, answer.reply))  # type: ignore[no-any-return]
    return answer.reply  # type: ignore[no-any-return]


def carry_out(plan: Plan[R], send: Callable[[c.Command[Any]], Answer]) -> R:
    """One step after another, until the plan has its end."""
    with closing(plan):
        try:
            step = next(plan)
            while True:
                try:
                    answer = send(step)
                except NotFound as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def carry_out_async(plan: Plan[R], send: Callable[[c.Command[Any]], Awaitable[Answer]]) -> R:
    """The same without blocking."""
    with closing(plan):
        try:
            step = next(plan)
            while True:
                try:
                    answer = await send(step)
                except NotFound as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def may_resend(command: c.Command[Any]) -> bool:
    """Whether a second sending does no harm, or can be told from the first one.

    A pull may: what the first brought and nobody got comes back when its lease ends, as if its worker had died.
    """
    kind: Any = type(command)
    if kind is c.Pull or kind is c.Ack:
        return True
    if kind in PUSHES:
        return not is_nameless(command)
    if kind is c.Fail or kind is c.Release:
        return command.tokens is not None  # type: ignore[attr-defined]  # else it might mean another's delivery
    row = BY_COMMAND.get(kind)
    if row is None or row.again == "keyed":
        if kind is c.PushWorkflow:
            return command.request_key is not None  # type: ignore[attr-defined]
        return kind is c.Stage and command.part is not None  # type: ignore[attr-defined]
    return row.again == "always"


# --- pushes ----------------------------------------------------------------------------------------

PUSHES = frozenset((c.Push, c.PushBatch))


def is_nameless(push: Any) -> bool:
    """Whether there is nothing by which a second sending would find the first."""
    return push.sending is None and getattr(push, "request_key", None) is None


class Sender:
    """A name under which one push at a time is under way: whatever was sent under it before is settled."""

    def __init__(self) -> None:
        self._name = f"stoker:{secrets.token_hex(12)}"
        self._number = 0

    def next(self) -> c.Sending:
        self._number += 1
        return c.Sending(self._name, self._number, self._number)


class Senders:
    """As many as there are pushes under way at once, for any number of threads."""

    def __init__(self) -> None:
        self._free: list[Sender] = []

    def take(self) -> Sender:
        try:
            return self._free.pop()
        except IndexError:
            return Sender()

    def give_back(self, sender: Sender) -> None:
        self._free.append(sender)


def pushed_once(push: Any, senders: Senders) -> Plan[Any]:
    sender = senders.take()
    try:
        return (yield msgspec.structs.replace(push, sending=sender.next())).reply
    finally:
        senders.give_back(sender)


# --- settling --------------------------------------------------------------------------------------

Found = r.FailedJob | bool
SETTLING = frozenset((c.Ack, c.Fail, c.Release))
ENDS_DELIVERY = frozenset(
    (
        EventKind.COMPLETED,
        EventKind.RETRYING,
        EventKind.FAILED,
        EventKind.CANCELLED,
        EventKind.EXPIRED,
        EventKind.RELEASED,
        EventKind.SNOOZED,
    )
)


def settled(command: Any, reply: Any) -> Plan[Any]:
    """The reply to a settling that was sent twice: what the first sending has done is done, and not refused.

    A job that another worker has meanwhile brought to the same end counts as well: the caller wanted just this end.
    """
    refused = dict(reply.refused)
    failed: list[r.FailedJob] = []
    for job in reply.refused:
        found = yield from done_before(command, job)
        if found:
            del refused[job]
        if isinstance(found, r.FailedJob):
            failed.append(found)
    if type(command) is c.Fail:
        return msgspec.structs.replace(reply, jobs=[*reply.jobs, *failed], refused=refused)
    return msgspec.structs.replace(reply, count=reply.count + len(reply.refused) - len(refused), refused=refused)


def done_before(command: Any, job: int) -> Plan[Found]:
    """Whether the job is where the command should have led it."""
    if type(command) is c.Ack:
        try:
            view = (yield c.GetJob(job)).reply
            return bool(view.state is State.COMPLETED)
        except NotFound:
            pass  # not kept after its end, perhaps: the log tells
    story = (yield c.GetStory(job)).reply
    last = next(endings(story), None)
    if last is None:
        return False
    if type(command) is c.Ack:
        return last.kind is EventKind.COMPLETED
    if type(command) is c.Release:
        return last.kind in (EventKind.RELEASED, EventKind.SNOOZED)
    return failed_by(command, job, last)


def endings(story: r.Story) -> Iterator[Event]:
    """What ended deliveries of a job, the latest first."""
    return (event for event in reversed(story.events) if event.kind in ENDS_DELIVERY)


def failed_by(command: c.Fail, job: int, last: Event) -> Found:
    if last.error != command.error or last.error_class != command.error_class:
        return False
    if last.kind is EventKind.RETRYING:
        return r.FailedJob(job, State.DELAYED if last.due > last.at else State.WAITING, last.due)
    if last.kind is EventKind.FAILED:
        return r.FailedJob(job, State.FAILED)
    return False
