"""Commands that wait: pulls for a job, waits for the end of one.

They are not part of the state: not journaled, not recovered. The reply comes with its `Parked` through the shard's
effects. A pull over queues of several shards is parked in each; the first answer counts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.model import commands as c

if TYPE_CHECKING:
    from stoker.engine.shard_state import ShardState
    from stoker.engine.state import QueueState


class Parked:
    """A command whose reply is still to come.

    The engine is pure and knows no callers: outside of it a `Waiter` (`brokers/contract.py`) stands for the caller.
    """

    __slots__ = ("arrival", "command", "done", "expires_at", "tenant")

    def __init__(self, tenant: str, command: c.Command[Any], expires_at: int) -> None:
        self.tenant = tenant
        self.command = command
        self.expires_at = expires_at
        self.done = False
        self.arrival = 0

    def give_up(self) -> None:
        """The caller has left: the command gets no job."""
        self.done = True


def park(shard: "ShardState", tenant: str, command: c.Pull, now: int) -> Parked:
    """Let a pull wait in each of its queues."""
    parked = Parked(tenant, frozen_pull(command), now + command.wait_ms)
    register(shard, parked, command.queues)
    return parked


def frozen_pull(command: c.Pull) -> c.Pull:
    """A copy of the command, because its sender may change the list of queues while it waits."""
    return msgspec.structs.replace(command, queues=tuple(command.queues))


def register(shard: "ShardState", parked: Parked, queues: Sequence[str]) -> None:
    """Wait here for these queues, perhaps in other shards too."""
    parked.arrival = shard.number_next()
    for name in dict.fromkeys(queues):
        queue = shard.queue(parked.tenant, name)
        if len(queue.waiters) >= queue.waiters_most:
            drop_done(queue)
        queue.waiters.append(parked)
        shard.dirty.append(queue)
    assert type(parked.command) is c.Pull
    if parked.command.claim is not None:
        shard.claim_waiters.setdefault((parked.tenant, parked.command.claim), {})[parked] = None
    shard.park_until(parked)


WAITERS_MOST = 64


def drop_done(queue: "QueueState") -> None:
    """Pulls over several queues are answered by one and stay in the others' lines; when many have, they go."""
    waiting = [parked for parked in queue.waiters if not parked.done]
    queue.waiters.clear()
    queue.waiters.extend(waiting)
    queue.waiters_most = max(WAITERS_MOST, 2 * len(waiting))
