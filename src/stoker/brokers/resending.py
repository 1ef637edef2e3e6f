"""What may be sent again when the owner of a shared directory died over it, and what the second answer then means.

A call is a plan: the commands that carry it out, one after another, each with its answer. Pushes get a key of their
own, so that a second sending finds the first. Settling has one by nature, the token: if the second sending is
refused, the first may have done it, and the job itself is asked. Nothing here sends anything.
"""

import secrets
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import msgspec

from stoker.brokers.remote.broker import may_repeat
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE, NotFound, StokerError
from stoker.model.events import Event, EventKind
from stoker.model.states import State

R = TypeVar("R")

PARTS = 2**53
"""A part of a stage has a number below."""


class Answer(msgspec.Struct, frozen=True):
    reply: Any
    again: bool
    """Whether the command had been sent before, and perhaps carried out."""


Plan = Generator[c.Command[Any], Answer, R]


def plan_of(command: c.Command[R]) -> Plan[R]:
    """How a command is carried out by somebody who may die over it."""
    kind: Any = type(command)
    if kind is c.Push:
        answer = yield as_batch(command)  # type: ignore[arg-type]
        return pushed(answer.reply)  # type: ignore[return-value]
    answer = yield with_key(command)
    if answer.again and kind in SETTLING and answer.reply.refused:
        return (yield from settled(command, answer.reply))  # type: ignore[no-any-return]
    return answer.reply  # type: ignore[no-any-return]


def may_resend(command: c.Command[Any]) -> bool:
    """Whether a second sending does no harm, or can be told from the first one.

    A pull may: what the first brought and nobody got comes back when its lease ends, as if its worker had died.
    """
    kind = type(command)
    if kind is c.Pull or kind is c.Ack:
        return True
    if kind is c.Fail or kind is c.Release:
        return command.tokens is not None  # type: ignore[attr-defined]  # else it might mean another's delivery
    return may_repeat(command)


# --- pushes ----------------------------------------------------------------------------------------


def new_key() -> str:
    return f"stoker:{secrets.token_hex(12)}"


def with_key(command: Any) -> Any:
    """The same with something by which a second sending finds the first."""
    if type(command) is c.PushBatch and command.request_key is None:
        return msgspec.structs.replace(command, request_key=new_key())
    if type(command) is c.Stage and command.part is None:
        return msgspec.structs.replace(command, part=secrets.randbelow(PARTS))
    return command


def as_batch(push: c.Push) -> c.PushBatch:
    return c.PushBatch(push.queue, (push.payload,), push.options, None, False, new_key(), push.durability)


def pushed(reply: r.PushedBatch) -> r.Pushed:
    refusal = reply.refused.get(0)
    if refusal is not None:
        raise BY_CODE.get(refusal.code, StokerError)(refusal.message)
    duplicate_by = reply.duplicates.get(0)
    return r.Pushed(reply.ids[0], duplicate_by is None, duplicate_by, reply.level)


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
