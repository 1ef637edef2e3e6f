"""Gathers the single pushes of one turn of the event loop, of any client, and carries them out as batches.

A batch means its items one after another (docs/semantics.md), so clients see no difference except in speed: a push in
a batch of ten costs the queue a fifth of a push alone. There is one batch for each queue, in the order in which the
queues were first named. Only pushes without special options are gathered. They are carried out before any command that
came after them, and pushes to one queue stay in their order.
"""

from typing import Any

from stoker.engine.gathered import GatheredPushes
from stoker.engine.plain_options import is_plain
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.options import DEFAULT_OPTIONS

MOST = 1_000
"""The most pushes that are put together; a turn rarely brings more."""


class PendingBatch:
    """Neighbouring pushes with the same options to one queue, and the calls that wait for their replies."""

    __slots__ = ("dones", "options", "pushes", "tenant")

    def __init__(self, tenant: str, push: c.Push, done: Any) -> None:
        self.tenant = tenant
        self.options = push.options
        self.pushes = [push]
        self.dones = [done]

    def take(self, push: c.Push, done: Any) -> bool:
        """Whether one more fits in with the others."""
        if push.options is not self.options and push.options != self.options:
            return False
        if len(self.dones) >= MOST:
            return False
        self.pushes.append(push)
        self.dones.append(done)
        return True

    @property
    def command(self) -> GatheredPushes:
        return GatheredPushes(self.pushes[0].queue, self.options, self.pushes)


def replies_of(reply: r.PushedBatch) -> list[r.Pushed]:
    """The reply for each push of a batch that was carried out."""
    level = reply.level
    return [r.Pushed(job, True, None, level) for job in reply.ids]


def is_batchable(command: c.Push) -> bool:
    """Whether it asks for nothing but to be pushed, with or without a number for sending it again."""
    if command.durability is not None:
        return False
    return command.options is DEFAULT_OPTIONS or is_plain(command.options)
