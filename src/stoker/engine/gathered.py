"""Single pushes that the server carries out together, as one batch with one record of their numbers.

A batch means its items one after another, so clients see no difference except in speed. What cannot be carried out
together is left to the server, which then carries out each push alone.
"""

from collections.abc import Sequence

from stoker.engine import checks, senders
from stoker.engine.pushing import push_plain
from stoker.engine.shard_state import ShardState
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import STEP
from stoker.model.options import Options


class GatheredPushes(c.Command[r.PushedBatch | None], frozen=True, gc=False):
    """Pushes of any senders to one queue, all with these plain options. No client sends this.

    The reply is None if one of them has to be looked at alone: then nothing has happened.
    """

    queue: str
    options: Options
    pushes: Sequence[c.Push]

    @property
    def payloads(self) -> list[bytes]:
        return [push.payload for push in self.pushes]


def push_gathered(shard: ShardState, tenant: str, command: GatheredPushes, now: int) -> r.PushedBatch | None:
    payloads, options = tuple(command.payloads), command.options
    runs = senders.fresh_runs(shard, tenant, command.pushes)
    sizes = checks.sizes_if_fine(payloads, shard.limits)
    if runs is None or sizes is None:
        return None
    if id(options) not in shard.simple:
        checks.options(options, shard.limits)
        options = shard.intern(options)
    queue = shard.queue_for_writing(tenant, command.queue)
    first = push_plain(shard, queue, payloads, sizes, options, now)
    if runs:
        senders.remember_runs(shard, queue, runs, first, now)
    return r.PushedBatch(range(first, first + len(payloads) * STEP, STEP), level=shard.level)
