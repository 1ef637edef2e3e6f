"""Pushes that may be sent again because their answer was lost: each is carried out once.

A sender numbers its pushes and says up to which number it has all answers; what lies between is remembered. So what is
kept grows with what is under way, not with time. Senders that stay away make room for others, by their last push.
"""

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from stoker.engine import checks
from stoker.engine.old_keys import fields_of, reply_of
from stoker.engine.state import Appliers, QueueState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard_state import ShardState


class Answers:
    """What one sender was answered and has not settled."""

    __slots__ = ("_numbers", "replies")

    def __init__(self) -> None:
        self.replies: dict[int, r.PushedBatch] = {}
        """By number, in the order in which they were given."""
        self._numbers: list[int] = []
        """The same numbers, sorted: a client with a thousand pushes under way settles some with every push."""

    def open_from(self, settled: int) -> int:
        """How many are left when all below a number are settled."""
        return len(self._numbers) - bisect_left(self._numbers, settled)

    def settle(self, settled: int) -> None:
        """Forget all below a number."""
        count = bisect_left(self._numbers, settled)
        for number in self._numbers[:count]:
            del self.replies[number]
        del self._numbers[:count]

    def add(self, number: int, reply: r.PushedBatch) -> None:
        if number not in self.replies:
            insort(self._numbers, number)
        self.replies[number] = reply


Senders = dict[tuple[str, str], Answers]
"""By tenant and name; the sender that pushed last stands last."""


def answer_before(shard: "ShardState", tenant: str, sending: c.Sending) -> r.PushedBatch | None:
    """What this very push was answered before, if it was. Refuses one that cannot be told apart from others."""
    checks.sending(sending)
    answers = shard.senders.get((tenant, sending.sender))
    found = answers.replies.get(sending.number) if answers is not None else None
    if found is None:
        if sending.number < sending.settled:
            raise errors.InvalidRequest(
                f"invalid sending: number {sending.number} is below {sending.settled}, which settles it"
            )
        under_way = answers.open_from(sending.settled) if answers is not None else 0
        if under_way >= shard.limits.sendings_max:
            raise errors.LimitExceeded(
                f"sender {sending.sender!r} has {under_way} pushes that it has not settled: say with `settled` which"
                " answers have come"
            )
    return found


def remember(shard: "ShardState", queue: QueueState, sending: c.Sending, reply: r.PushedBatch, now: int) -> None:
    runs, refused, duplicates = fields_of(reply)
    tenant, sender, number, settled = queue.tenant.name, sending.sender, sending.number, sending.settled
    shard.emit(rec.Answered(now, tenant, queue.name, sender, number, settled, runs, refused, duplicates))


def as_one(reply: r.PushedBatch, level: r.Level) -> r.Pushed:
    """The answer to a push of one job."""
    by = reply.duplicates.get(0)
    return r.Pushed(reply.ids[0], by is None, by, level)


def as_batch(reply: r.Pushed) -> r.PushedBatch:
    return r.PushedBatch((reply.id,), {}, {} if reply.duplicate_by is None else {0: reply.duplicate_by})


# --- applying ----------------------------------------------------------------------------------------


def _answered(shard: "ShardState", record: rec.Answered) -> None:
    key, senders = (record.tenant, record.sender), shard.senders
    answers = senders.pop(key, None) or Answers()
    answers.settle(record.settled)
    answers.add(record.number, reply_of(record.runs, record.refused, record.duplicates))
    senders[key] = answers
    while len(senders) > shard.limits.senders_max:
        del senders[next(iter(senders))]


APPLY: Appliers = {rec.Answered: _answered}
