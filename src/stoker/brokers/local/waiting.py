"""Callers that cannot be answered at once: they wait for something to happen, or for the disk."""

import asyncio
from collections.abc import Callable
from typing import Any

from stoker.brokers.contract import Waiter
from stoker.engine.parking import Parked
from stoker.journal.contract import Journal

NO_REPLY: Any = object()


class LocalWaiter(Waiter):
    """A caller whose command is parked in the engine of this process: a thread, a coroutine, or a client of the server.

    The engine has the command as a `Parked`, because it is pure and knows neither replies nor callers.
    """

    __slots__ = ("parked", "reply", "ticket", "wake")

    def __init__(self, parked: Parked, wake: "Wake", stop: Callable[[Any], object]) -> None:
        super().__init__(parked.tenant, parked.command, stop)
        self.parked = parked
        self.wake = wake
        self.reply: Any = NO_REPLY
        self.ticket = 0
        """What the reply has to wait for."""


Wake = Callable[[LocalWaiter], object]
"""Called, from any thread, when the waiter has its reply, or should look at the time."""


class FlushLine:
    """Callers of one event loop that wait for the disk: one wake-up serves all of them."""

    def __init__(self, journal: Journal, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._loop = loop
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._asked = False

    async def wait(self, ticket: int) -> None:
        """Wait until this many turns are on disk, or never will be."""
        future = self._loop.create_future()
        self._waiting.append((ticket, future))
        if not self._asked:
            self._ask(ticket)
        await future

    def _ask(self, ticket: int) -> None:
        self._asked = True
        if not self._journal.when_flushed(ticket, self._wake):
            self._loop.call_soon(self._release)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._release)
        except RuntimeError:
            pass  # the loop was closed, and its callers with it

    def _release(self) -> None:
        self._asked = False
        still: list[tuple[int, asyncio.Future[None]]] = []
        for ticket, future in self._waiting:
            if not (self._journal.reached(ticket) or self._journal.has_failed):
                still.append((ticket, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still
        if still:
            self._ask(still[0][0])
