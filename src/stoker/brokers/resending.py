"""What may be sent again when its answer was lost, and what the second answer then means.

A call is a plan: the commands that carry it out, one after another, each with its answer. Pushes get a name and a
number, so that a second sending finds the first. Settling has one by nature, the token: if the second sending is
refused, the first may have done it, and the job's story is asked how the delivery of this token ended. Nothing here
sends anything.
"""

import secrets
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from stoker.brokers.sending_window import SendingWindows
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import NUMBERED, READS, SETTLES, TABLE, TAKES
from stoker.model.errors import Forbidden, LimitExceeded, NotFound, StokerError, Unavailable, Unknown
from stoker.model.event_table import ENDS_DELIVERY, HANDS_BACK
from stoker.model.events import Event, EventKind
from stoker.model.reasons import Reason
from stoker.model.states import State

R = TypeVar("R")

PARTS = 2**53
"""A part of a stage has a number below."""


class ResendAnswer(msgspec.Struct, frozen=True):
    reply: Any
    again: bool
    """Whether the command had been sent before, and perhaps carried out."""


Plan = Generator[c.Command[Any], ResendAnswer, R]


def resend_steps(command: c.Command[R], windows: SendingWindows) -> Plan[R]:
    """Carries out a command over a connection that may be lost meanwhile."""
    kind: Any = type(command)
    if kind in NUMBERED and is_nameless(command):
        return (yield from pushed_once(command, windows))  # type: ignore[no-any-return]
    if kind is c.PushWorkflow and command.request_key is None:  # type: ignore[attr-defined]
        command = msgspec.structs.replace(command, request_key=secrets.token_hex(16))
    if kind is c.Stage and command.part is None:  # type: ignore[attr-defined]
        command = msgspec.structs.replace(command, part=secrets.randbelow(PARTS))
    answer = yield command
    if answer.again and kind in SETTLES and answer.reply.refused:
        try:
            return (yield from settled(command, answer.reply))  # type: ignore[no-any-return]
        except Unavailable as error:
            raise doubted(command, error) from None
    return answer.reply  # type: ignore[no-any-return]


def may_resend(command: c.Command[Any]) -> bool:
    """Whether a second sending does no harm, or can be told from the first one.

    A pull may: jobs of the first that no worker received come back when their lease ends, as if the worker had died.
    """
    kind: Any = type(command)
    if kind is c.Pull or kind is c.Ack:
        return True
    if kind is c.Fail or kind is c.Release:
        return command.tokens is not None  # type: ignore[attr-defined]  # else it might mean another's delivery
    row = TABLE[kind]
    if row.resend == "keyed":
        return any(getattr(command, key) is not None for key in row.keys)
    return row.resend == "always"


def doubted(command: c.Command[Any], error: StokerError) -> StokerError:
    """What a refusal means to the caller after an earlier sending whose answer was lost: that one may have happened."""
    if not isinstance(error, Unavailable) or type(command) in HARMLESS:
        return error
    return Unknown(
        f"it is not known whether this {type(command).__name__} happened: the answer to it was lost, and it was refused"
        f" when it was sent again ({error.code}: {error}); ask, or send it again with a key of your own"
    )


HARMLESS = READS | TAKES
"""What changes nothing, or nothing that does not come back by itself."""


# --- pushes ----------------------------------------------------------------------------------------


def is_nameless(push: Any) -> bool:
    """Whether there is nothing by which a second sending would find the first."""
    return push.sending is None and getattr(push, "request_key", None) is None


def pushed_once(push: Any, windows: SendingWindows) -> Plan[Any]:
    """A push under a number. It is the number's end, too, if the push is refused, given up, or its outcome unknown."""
    while True:
        sending = windows.take()
        try:
            return (yield msgspec.structs.replace(push, sending=sending)).reply
        except LimitExceeded as error:
            if not may_narrow(windows, sending, error):
                raise
        finally:
            windows.settle(sending)


def may_narrow(windows: SendingWindows, sending: c.Sending, error: LimitExceeded) -> bool:
    """Whether the push can go under another number: the server allows fewer open numbers than the window has."""
    return sending.sender in error.message and windows.narrow(sending)


# --- settling --------------------------------------------------------------------------------------

BY_ITSELF = frozenset((Reason.STALLED, Reason.TIMEOUT, Reason.WORKER_LOST, Reason.CORRUPT))
"""Why deliveries fail without a word of their workers."""
CUT = "…"
"""At the end of a text that the queue has shortened."""

Found = r.FailedJob | bool | None
"""Whether the first sending did it, and what it came to; None if the log no longer tells."""


def settled(command: Any, reply: Any) -> Plan[Any]:
    """The reply to a settling that was sent twice: what the first sending has done is done, and not refused.

    What another worker did with the job meanwhile does not count: the caller's outcome was not used.
    """
    refused = dict(reply.refused)
    failed: list[r.FailedJob] = []
    for job in reply.refused:
        found = yield from done_before(command, job)
        if found is None:
            refused[job] = Unknown.code
        elif found:
            del refused[job]
        if isinstance(found, r.FailedJob):
            failed.append(found)
    if type(command) is c.Fail:
        return msgspec.structs.replace(reply, jobs=[*reply.jobs, *failed], refused=refused)
    return msgspec.structs.replace(reply, count=reply.count + len(reply.refused) - len(refused), refused=refused)


def done_before(command: Any, job: int) -> Plan[Found]:
    """Whether the delivery that the command names has led the job where the command should have led it."""
    token = own(command.tokens, command.ids, job)
    try:
        if token is None:
            return (yield from acked_without_token(command, job))
        story = (yield c.GetStory(job)).reply
    except Forbidden:
        return None  # this token may consume, but not read
    events = delivery_of(story, token)
    if events is None:
        return None
    last = next((event for event in events if event.kind in ENDS_DELIVERY), None)
    if last is None:
        return False
    if type(command) is c.Ack:
        return last.kind is EventKind.COMPLETED
    if type(command) is c.Release:
        return last.kind in HANDS_BACK or (last.reason == Reason.CANCELLED and not last.error)
    return failed_by(command, job, last)


def own(values: Any, ids: Sequence[int], job: int) -> Any:
    """What a command says about one of its jobs, where it says one thing for all, one for each, or nothing."""
    return values[ids.index(job)] if isinstance(values, list | tuple) else values


def acked_without_token(command: c.Ack, job: int) -> Plan[Found]:
    """Nothing tells one delivery from another: the job is completed, with the caller's result if it is readable."""
    try:
        view = (yield c.GetJob(job)).reply
        return bool(view.state is State.COMPLETED and view.result == own(command.results, command.ids, job))
    except NotFound:
        story = (yield c.GetStory(job)).reply
    last = next((event for event in reversed(story.events) if event.kind in ENDS_DELIVERY), None)
    if last is None:
        return False if story.complete else None
    return last.kind is EventKind.COMPLETED


def delivery_of(story: r.Story, token: int) -> Iterator[Event] | None:
    """What happened from the beginning of a delivery on, up to the next one; None if the log no longer tells."""
    starts = [place for place, event in enumerate(story.events) if event.kind is EventKind.STARTED]
    named = [place for place in starts if story.events[place].token == token]
    if not named:
        tells = all(story.events[place].token for place in starts)
        if not story.complete or (not tells and len(starts) != 1):
            return None
        named = [] if tells else starts  # a server of an earlier release tells no tokens: the only one is ours
    if not named:
        return iter(())
    following = [place for place in starts if place > named[-1]]
    return iter(story.events[named[-1] + 1 : following[0] if following else None])


def failed_by(command: c.Fail, job: int, last: Event) -> Found:
    """What a failure came to. A job that was to be cancelled ends with any delivery, also with one whose lease ended:
    the error tells which.
    """
    if last.reason in BY_ITSELF or not says(last.error, command.error):
        return False
    if not says(last.error_class, command.error_class):
        return False
    if last.kind is EventKind.RETRYING:
        return r.FailedJob(job, State.DELAYED if last.due > last.at else State.WAITING, last.due)
    if last.kind is EventKind.FAILED:
        return r.FailedJob(job, State.FAILED)
    if last.kind is EventKind.CANCELLED and last.reason == Reason.CANCELLED:
        return r.FailedJob(job, State.CANCELLED)
    return False


def says(kept: str, said: str) -> bool:
    """Whether a text was kept, perhaps shortened."""
    return kept == said or (kept.endswith(CUT) and said.startswith(kept[: -len(CUT)]))
