"""Delivers messages between shards of this process; `spread.py` delivers those to other processes."""

from stoker.engine import messages
from stoker.runtime.shards import Shards


def deliver(shards: Shards, now: int) -> None:
    """Everything that lies in an outbox is taken where it is addressed to; what that brings about, too."""
    while any(shards.has(to) for shard in shards for to in shard.outbox):
        for shard in shards:
            for to, waiting in list(shard.outbox.items()):
                if shards.has(to):
                    for number, (tenant, message) in sorted(waiting.items()):
                        messages.take(shards.at(to), shard.number, number, tenant, message, now)
                    messages.arrived(shard, to, number, tenant, now)
                    shards.at(to).serve(now)
