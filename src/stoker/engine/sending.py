"""Putting a message to another shard into the outbox; `messages.py` is about taking it."""

from stoker.engine.shard_state import ShardState
from stoker.records import records as rec


def send(shard: ShardState, tenant: str, to: int, message: rec.Message, now: int) -> None:
    shard.emit(rec.Sent(now, tenant, to, shard.sent.get(to, 0) + 1, message))
