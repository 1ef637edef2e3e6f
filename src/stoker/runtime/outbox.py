"""Delivers messages between shards of this process; `process_router.py` delivers those to other processes."""

from stoker.engine import shard_messages
from stoker.runtime.shards import Shards


def deliver(shards: Shards, now: int) -> None:
    """Everything that lies in an outbox is taken where it is addressed to; what that brings about, too."""
    while any(shards.has(to) for shard in shards for to in shard.outbox):
        for shard in shards:
            for to, waiting in list(shard.outbox.items()):
                if shards.has(to):
                    for number, (tenant, message) in sorted(waiting.items()):
                        shard_messages.take(shards.at(to), shard.number, number, tenant, message, now)
                    shard_messages.arrived(shard, to, number, tenant, now)
                    shards.at(to).serve(now)


class News:
    """Which letters to other processes were told of."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._told: dict[tuple[int, int], int] = {}
        """The newest letter from a shard to another that was reported."""

    def is_there(self) -> bool:
        """Whether something lies in an outbox that was not told of yet.

        What waits for a process that is away is no news: looking for letters ends a turn, too, and would never end.
        """
        found = False
        for shard in self._shards:
            for to, waiting in shard.outbox.items():
                newest = next(reversed(waiting))
                if newest > self._told.get((shard.number, to), -1):
                    self._told[shard.number, to] = newest
                    found = True
        return found
