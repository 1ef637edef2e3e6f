"""Taking messages from shard to shard, when all of them are in this process."""

from collections.abc import Sequence

from stoker.engine import messages
from stoker.engine.shard import Shard


def deliver(shards: Sequence[Shard], now: int) -> None:
    """Everything that lies in an outbox is taken where it is addressed to; what that brings about, too."""
    while any(shard.outbox for shard in shards):
        for shard in shards:
            for to, waiting in list(shard.outbox.items()):
                for number, (tenant, message) in sorted(waiting.items()):
                    messages.take(shards[to], shard.number, number, tenant, message, now)
                    messages.arrived(shard, to, number, tenant, now)
