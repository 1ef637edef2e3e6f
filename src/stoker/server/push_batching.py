"""Combines single pushes of one turn of the event loop into batches.

A batch means its items one after another (docs/semantics.md), so clients see no difference except in speed: a push in
a batch of ten costs the queue a fifth of a push alone. Only pushes without special options are combined, and they are
executed before any command that came after them.
"""

from typing import Any

from stoker.engine.plain_options import is_plain
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import BY_CODE
from stoker.model.options import DEFAULT_OPTIONS

MOST = 1_000
"""The most pushes that are put together; a turn rarely brings more."""


class PendingBatch:
    """Neighbouring pushes with the same options to one queue, and the calls that wait for their replies."""

    __slots__ = ("dones", "options", "payloads", "queue", "tenant")

    def __init__(self, tenant: str, command: c.Push, done: Any) -> None:
        self.tenant = tenant
        self.queue = command.queue
        self.options = command.options
        self.payloads = [command.payload]
        self.dones = [done]

    def take(self, tenant: str, command: c.Push, done: Any) -> bool:
        """Whether one more fits in with the others."""
        if command.queue != self.queue or tenant != self.tenant or len(self.dones) >= MOST:
            return False
        if command.options is not self.options and command.options != self.options:
            return False
        self.payloads.append(command.payload)
        self.dones.append(done)
        return True

    @property
    def command(self) -> c.Command[Any]:
        if len(self.payloads) == 1:
            return c.Push(self.queue, self.payloads[0], self.options)
        return c.PushBatch(self.queue, self.payloads, self.options)

    def replies(self, reply: Any) -> list[Any]:
        """The reply for each of them."""
        if type(reply) is not r.PushedBatch:
            return [reply] * len(self.dones)
        told: list[Any] = [r.Pushed(job, True, None, reply.level) for job in reply.ids]
        for place, refusal in reply.refused.items():
            told[place] = BY_CODE[refusal.code](refusal.message)
        return told


def is_batchable(command: c.Push) -> bool:
    """Whether it asks for nothing but to be pushed."""
    if command.durability is not None or command.sending is not None:
        return False
    return command.options is DEFAULT_OPTIONS or is_plain(command.options)
