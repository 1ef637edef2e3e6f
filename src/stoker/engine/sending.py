"""Putting a message to another shard into the outbox; `messages.py` is about taking it."""

from typing import TYPE_CHECKING

from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard import Shard


def send(shard: "Shard", tenant: str, to: int, message: rec.Message, now: int) -> None:
    shard.emit(rec.Sent(now, tenant, to, shard.sent.get(to, 0) + 1, message))
