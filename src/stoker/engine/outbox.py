"""Putting a message to another shard into the outbox; `shard_messages.py` is about taking it."""

from stoker.engine.shard_state import ShardState
from stoker.records import records as rec


def send(shard: ShardState, tenant: str, to: int, message: rec.Message, now: int) -> None:
    shard.emit(rec.MessageSent(now, tenant, to, shard.sent.get(to, 0) + 1, message))
