"""Messages between shards: sent at least once, taken once.

A message is in the sender's outbox from the record that decided it until the other shard is known to have taken it. The
receiver journals its `Taken` record together with the effects of the message. So the effects happen exactly once, even
if a process dies in between or the message is sent again.
"""

from collections.abc import Callable
from typing import Any

from stoker.engine import dependencies, transactions, workflows
from stoker.engine.apply.moves import drop_edge
from stoker.engine.outbox import send
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Appliers
from stoker.model import commands as c
from stoker.records import records as rec

__all__ = ["APPLY", "arrived", "send", "take"]


def take(shard: ShardState, sender: int, number: int, tenant: str, message: rec.Message, now: int) -> None:
    """Carry out a message, unless that has been done."""
    if number <= shard.taken.get(sender, 0):
        return
    TAKE[type(message)](shard, tenant, message, now)
    shard.emit(rec.MessageTaken(now, tenant, sender, number))


def take_publish(shard: ShardState, tenant: str, message: rec.PublishStages, now: int) -> None:
    found = transactions.find(shard, tenant, message.transaction)
    if found is None or found.outcome is None:
        there = [name for name in message.stages if found is not None and name in found.stages]
        transactions.publish(shard, tenant, c.Publish(message.transaction, there), now)


def take_abort(shard: ShardState, tenant: str, message: rec.AbortTransaction, now: int) -> None:
    found = transactions.find(shard, tenant, message.transaction)
    if found is None or found.outcome is None:
        transactions.abort(shard, tenant, c.Abort(message.transaction), now)


TAKE: dict[type[Any], Callable[[ShardState, str, Any, int], None]] = {
    rec.PublishStages: take_publish,
    rec.AbortTransaction: take_abort,
    rec.Watch: dependencies.take_watch,
    rec.TellEnd: dependencies.take_end,
    **workflows.TAKE,
}
"""How each message is carried out."""


def arrived(shard: ShardState, to: int, number: int, tenant: str, now: int) -> None:
    """Another shard has taken all messages up to a number."""
    shard.emit(rec.MessagesArrived(now, tenant, to, number))


# --- applied ---------------------------------------------------------------------------------------


def _sent(shard: ShardState, record: rec.MessageSent) -> None:
    shard.outbox.setdefault(record.to, {})[record.number] = (record.tenant, record.message)
    shard.sent[record.to] = record.number
    message = record.message
    if type(message) is rec.TellEnd:  # reported once: these jobs no longer wait here
        for waiting in message.waiting:
            drop_edge(shard, message.job, waiting)
        if message.job not in shard.dependents:
            shard.watchers.pop(message.job, None)


def _taken(shard: ShardState, record: rec.MessageTaken) -> None:
    shard.taken[record.sender] = record.number


def _arrived(shard: ShardState, record: rec.MessagesArrived) -> None:
    waiting = shard.outbox[record.to]
    for number in [number for number in waiting if number <= record.number]:
        del waiting[number]
    if not waiting:
        del shard.outbox[record.to]


def _opened(shard: ShardState, record: rec.Opened) -> None:
    if record.sequence > shard.sequence:
        shard.never_given.add(shard.sequence + 1, record.sequence + 1)
    shard.epoch, shard.sequence, shard.token = record.epoch, record.sequence, record.token
    shard.configure(record.settings, record.limits)


APPLY: Appliers = {
    rec.Opened: _opened,
    rec.MessageSent: _sent,
    rec.MessageTaken: _taken,
    rec.MessagesArrived: _arrived,
}
