"""The clock of servers under test: time passes where there is nothing left to do but to wait for it.

It knows the dispatchers of one event loop and asks them; of transports, and of who talks to the servers, it knows
nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from stoker.brokers.local import NO_REPLY, LocalBroker, LocalWaiter
from stoker.brokers.redis.served import ServedRedis
from stoker.server.dispatcher import Dispatcher
from stoker.testing import FakeClock
from tests.served.no_turns import WithoutTurns

LOOK_S = 0.004
"""Between two looks whether anybody waits. What they find does not depend on it."""
QUIET_TURNS = 50
"""In so many turns of the loop on end nobody may have anything to do.

What is under way, from one task to the next or through a Unix socket, gets on by a step in every turn, and the longest
way has a tenth of these. Turns and not milliseconds: of a busy machine a process gets none for as long as it likes, and
then two moments that are far apart have nothing between them.
"""


class Sleeper:
    """Somebody who keeps the time, and the moment that he waits for."""

    def __init__(self, signal: asyncio.Event, until_ms: int) -> None:
        self.signal, self.until_ms = signal, until_ms
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def sleeps(self) -> bool:
        return not self.signal.is_set() and not self.woken.done()


class ServedClock(FakeClock):
    """Stands still until commands wait at the dispatchers and nobody does anything else: then the next moment comes.

    The client of a test says one thing at a time: whoever waits at a dispatcher is all that there is of it.
    """

    def __init__(self, dispatchers: Callable[[], Sequence[Dispatcher]]) -> None:
        super().__init__()
        self._dispatchers = dispatchers
        self._sleepers: list[Sleeper] = []
        self._mover: asyncio.Task[None] | None = None

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        sleeper = Sleeper(signal, until_ms)
        self._sleepers.append(sleeper)
        if self._mover is None:
            self._mover = asyncio.get_running_loop().create_task(self._move())
        heard = asyncio.ensure_future(signal.wait())
        either: tuple[asyncio.Future[Any], ...] = (heard, sleeper.woken)
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()
            self._sleepers.remove(sleeper)
            if not self._sleepers:
                self._mover.cancel()
                self._mover = None

    async def settle(self) -> None:
        """Until nobody does anything, also for those who do not wait for it."""
        while not await self._stays_idle():  # noqa: ASYNC110  a server has no events for its tests
            await asyncio.sleep(LOOK_S)

    async def _move(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._is_waited_for() and await self._stays_idle() and self._is_waited_for():
                self._now_ms = max(self._now_ms, min(sleeper.until_ms for sleeper in self._sleepers))
                for sleeper in self._sleepers:
                    if sleeper.until_ms <= self._now_ms and not sleeper.woken.done():
                        sleeper.woken.set_result(None)

    def _is_waited_for(self) -> bool:
        return any(
            dispatcher.is_waiting or (dispatcher._waiting and dispatcher.broker.turns is None)
            for dispatcher in self._dispatchers()
        )

    async def _stays_idle(self) -> bool:
        for _ in range(QUIET_TURNS):
            if not self._is_idle():
                return False
            await asyncio.sleep(0)
        return self._is_idle()

    def _is_idle(self) -> bool:
        dispatchers = self._dispatchers()
        asleep = all(sleeper.sleeps for sleeper in self._sleepers) and len(self._sleepers) >= in_redis(dispatchers)
        return asleep and all(is_idle(dispatcher) for dispatcher in dispatchers) and nothing_is_said(dispatchers)


def in_redis(dispatchers: Sequence[Dispatcher]) -> int:
    """How many commands wait in Redis: each must sleep before time passes, because its script may be on its way."""
    return sum(len(dispatcher._waiting) for dispatcher in dispatchers if isinstance(dispatcher.broker, ServedRedis))


def is_idle(dispatcher: Dispatcher) -> bool:
    """Whether nobody has to be answered, by now or by the disk."""
    broker = dispatcher.broker
    if isinstance(broker, ServedRedis):
        return len(dispatcher._away) == len(dispatcher._waiting) and not dispatcher._is_open
    if isinstance(broker, WithoutTurns):
        return len(dispatcher._away) == len(dispatcher._waiting) and not (
            dispatcher._is_open or broker.local.line(dispatcher._loop)._waiting
        )
    assert isinstance(broker, LocalBroker)
    answered = any(isinstance(waiter, LocalWaiter) and waiter.reply is not NO_REPLY for waiter in dispatcher._waiting)
    return not (answered or dispatcher._is_open or dispatcher._flushing or broker.line(dispatcher._loop)._waiting)


def nothing_is_said(dispatchers: Sequence[Dispatcher]) -> bool:
    """Whether all that processes have asked each other waits for something to happen, and no letter is under way."""
    routers = [dispatcher.team.router for dispatcher in dispatchers if dispatcher.team is not None]
    asked = sum(len(router._asked) for router in routers)
    waiting = sum(len(router._waiting) + len(router._serving) for router in routers)
    return asked == waiting and not any(router._background for router in routers)
