"""Pushes that may be sent again because their answer was lost: each is carried out once.

A sender numbers its pushes and says up to which number it has all answers; what lies between is remembered. So what is
kept grows with what is under way, not with time. Senders that stay away make room for others, by their last push.

Pushes that are carried out together (`gathered.py`) are remembered together, in runs of neighbouring numbers.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from stoker.engine import checks
from stoker.engine.old_keys import fields_of, reply_of
from stoker.engine.state import Appliers, QueueState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.limits import INT_MAX
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard_state import ShardState


class Answers:
    """What one sender was answered and has not settled."""

    __slots__ = ("_numbers", "_replies")

    def __init__(self) -> None:
        self._replies: dict[int, r.PushedBatch | int] = {}
        """By number, in the order in which they were given. The answer to a push that made one job is its id."""
        self._numbers: list[int] = []
        """The same numbers, sorted: a client with a thousand pushes under way settles some with every push."""

    def get(self, number: int) -> r.PushedBatch | None:
        """The answer to a number, if it is remembered."""
        found = self._replies.get(number)
        return r.PushedBatch((found,)) if type(found) is int else found  # type: ignore[return-value]

    def items(self) -> Iterator[tuple[int, r.PushedBatch]]:
        """All numbers with their answers, in the order in which they were given."""
        for number, reply in self._replies.items():
            yield number, r.PushedBatch((reply,)) if isinstance(reply, int) else reply

    def has_any(self, first: int, count: int) -> bool:
        """Whether one of these neighbouring numbers is remembered."""
        place = bisect_left(self._numbers, first)
        return place < len(self._numbers) and self._numbers[place] < first + count

    def open_from(self, settled: int) -> int:
        """How many are left when all below a number are settled."""
        return len(self._numbers) - bisect_left(self._numbers, settled)

    def settle(self, settled: int) -> None:
        """Forget all below a number."""
        count = bisect_left(self._numbers, settled)
        for number in self._numbers[:count]:
            del self._replies[number]
        del self._numbers[:count]

    def add(self, number: int, reply: r.PushedBatch) -> None:
        if number not in self._replies:
            insort(self._numbers, number)
        self._replies[number] = reply.ids[0] if is_one_new(reply) else reply

    def add_run(self, first: int, count: int, job: int) -> None:
        """Neighbouring numbers, each with one job."""
        numbers = range(first, first + count)
        is_next = not self._numbers or first > self._numbers[-1]
        for number in numbers:
            if not is_next and number not in self._replies:
                insort(self._numbers, number)
            self._replies[number] = job
            job += STEP
        if is_next:
            self._numbers += numbers


Senders = dict[tuple[str, str], Answers]
"""By tenant and name; the sender that pushed last stands last."""


def answer_before(shard: "ShardState", tenant: str, sending: c.Sending) -> r.PushedBatch | None:
    """What this very push was answered before, if it was. Refuses one that cannot be told apart from others."""
    checks.sending(sending)
    answers = shard.senders.get((tenant, sending.sender))
    found = answers.get(sending.number) if answers is not None else None
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


def remember_one(shard: "ShardState", queue: QueueState, sending: c.Sending, reply: r.Pushed, now: int) -> None:
    """The same for a push of one job."""
    if reply.created:
        run = (sending.sender, sending.number, 1, sending.settled, reply.id)
        shard.emit(rec.PushesAnswered(now, queue.tenant.name, queue.name, [run]))
    else:
        remember(shard, queue, sending, as_batch(reply), now)


def is_one_new(reply: r.PushedBatch) -> bool:
    """Whether it is the answer to a push that made one job."""
    return len(reply.ids) == 1 and not reply.refused and not reply.duplicates


def as_one(reply: r.PushedBatch, level: r.Level) -> r.Pushed:
    """The answer to a push of one job."""
    by = reply.duplicates.get(0)
    return r.Pushed(reply.ids[0], by is None, by, level)


def as_batch(reply: r.Pushed) -> r.PushedBatch:
    return r.PushedBatch((reply.id,), {}, {} if reply.duplicate_by is None else {0: reply.duplicate_by})


# --- pushes that are carried out together --------------------------------------------------------------


class SentRun(msgspec.Struct, gc=False):
    """Neighbouring pushes with neighbouring numbers of one sender."""

    place: int
    sender: str
    number: int
    count: int
    settled: int
    open_from: int
    """What the first push says that is settled: the least of the run."""


def fresh_runs(shard: "ShardState", tenant: str, pushes: Sequence[c.Push]) -> list[SentRun] | None:
    """The numbers of these pushes. None if one of them has to be looked at alone: one that was answered before, that
    occurs twice, or that is refused.
    """
    runs = runs_of(pushes)
    if not runs:
        return runs
    ordered = sorted(runs, key=lambda run: (run.sender, run.number)) if len(runs) > 1 else runs
    if any(a.sender == b.sender and a.number + a.count > b.number for a, b in pairwise(ordered)):
        return None
    counts: dict[str, int] = {}
    for run in ordered:
        counts[run.sender] = counts.get(run.sender, 0) + run.count
        answers = shard.senders.get((tenant, run.sender))
        under_way = counts[run.sender]
        if answers is not None:
            if answers.has_any(run.number, run.count):
                return None
            under_way += answers.open_from(run.open_from)
        if under_way > shard.limits.sendings_max or not is_well_formed(run):
            return None
    return runs


def runs_of(pushes: Sequence[c.Push]) -> list[SentRun]:
    """The numbers of pushes in runs. A push that settles itself is a run of its own, which is not well-formed."""
    runs: list[SentRun] = []
    sender, number, end = None, -1, -1
    for place, push in enumerate(pushes):
        sending = push.sending
        if sending is None:
            continue
        settled = sending.settled
        if place == end and sending.number == number and sending.sender == sender and 0 <= settled <= number:
            run = runs[-1]
            run.count += 1
            if settled > run.settled:
                run.settled = settled
            elif settled < run.open_from:
                run.open_from = settled
        else:
            sender, number = sending.sender, sending.number
            runs.append(SentRun(place, sender, number, 1, settled, settled))
        end = place + 1 if settled <= number else -1
        number += 1
    return runs


def is_well_formed(run: SentRun) -> bool:
    try:
        checks.sending(c.Sending(run.sender, run.number, run.settled))
    except errors.Refused:
        return False
    return 0 <= run.open_from <= run.settled < run.number + run.count <= INT_MAX


def remember_runs(shard: "ShardState", queue: QueueState, runs: Sequence[SentRun], first: int, now: int) -> None:
    """The pushes of these runs have made neighbouring jobs, from `first` on."""
    told = [(run.sender, run.number, run.count, run.settled, first + run.place * STEP) for run in runs]
    shard.emit(rec.PushesAnswered(now, queue.tenant.name, queue.name, told))


# --- applying ----------------------------------------------------------------------------------------


def _answered(shard: "ShardState", record: rec.Answered) -> None:
    answers = _heard_from(shard, (record.tenant, record.sender))
    answers.settle(record.settled)
    answers.add(record.number, reply_of(record.runs, record.refused, record.duplicates))


def _pushes_answered(shard: "ShardState", record: rec.PushesAnswered) -> None:
    for sender, number, count, settled, job in record.runs:
        answers = _heard_from(shard, (record.tenant, sender))
        answers.add_run(number, count, job)
        answers.settle(settled)


def _heard_from(shard: "ShardState", key: tuple[str, str]) -> Answers:
    """The answers of a sender, who is now the last one to have pushed."""
    senders = shard.senders
    answers = senders.pop(key) if key in senders else Answers()
    senders[key] = answers
    while len(senders) > shard.limits.senders_max:
        del senders[next(iter(senders))]
    return answers


APPLY: Appliers = {rec.Answered: _answered, rec.PushesAnswered: _pushes_answered}
