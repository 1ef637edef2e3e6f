"""The same ways under a clock that moves only to the moment for which the broker's own timekeeper sleeps.

So a deadline that the timekeeper does not know of shows as a wait that is too long, and nothing takes any time: this is
how planted bugs are found. Two kinds of callers: those of a server, whose commands are begun, held and ended by a
dispatcher, and coroutines at an embedded broker.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from stoker.brokers.contract import LACKS_NOTHING
from stoker.brokers.local import NO_REPLY, LocalBroker, LocalSettings, LocalWaiter
from stoker.client.sync import Client
from stoker.model import commands as c
from stoker.testing import FakeClock
from tests.waking.matrix import Way
from tests.waking.ways import BY_THEMSELVES, SHARDS, WAYS, Queues, Waits

SOON_MS = 2_000
"""No way takes longer."""
TURNS = 20
"""Of the event loop, after which whoever was woken has done what there was to do."""


class Timekept(FakeClock):
    """Moves when told to, and only as far as somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: dict[asyncio.Future[None], int] = {}

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heard = asyncio.ensure_future(signal.wait())
        either: tuple[asyncio.Future[Any], ...] = (over, heard)
        self._sleepers[over] = until_ms
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard.cancel()
            del self._sleepers[over]

    def move_on(self, latest_ms: int) -> bool:
        """Go to the next moment that somebody sleeps for; false if that is too late, or there is none."""
        until_ms = min(self._sleepers.values(), default=latest_ms + 1)
        if until_ms > latest_ms:
            return False
        self._now_ms = max(self._now_ms, until_ms)
        for over, until_ms in self._sleepers.items():
            if until_ms <= self._now_ms and not over.done():
                over.set_result(None)
        return True


class Ended:
    """A broker as a dispatcher uses it: each command is a turn of its own."""

    name, lacks = "local", LACKS_NOTHING

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self.close = broker.close

    def execute(self, tenant: str, command: c.Command[Any]) -> Any:
        reply = self._broker.begin(tenant, command, lambda _: None)
        assert not isinstance(reply, LocalWaiter)
        self._broker.end()
        return reply

    async def execute_async(self, tenant: str, command: c.Command[Any]) -> Any:
        return self.execute(tenant, command)


async def settled() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def is_woken(clock: Timekept, is_answered: Callable[[], bool]) -> bool:
    """Let everybody act, and time pass as far as somebody keeps it."""
    latest_ms = clock.now_ms() + SOON_MS
    await settled()
    while not is_answered() and clock.move_on(latest_ms):
        await settled()
    return is_answered()


async def at_a_server(way: Way, shards: int = SHARDS) -> bool:
    """Whether somebody who is held at a dispatcher is woken."""
    clock = Timekept()
    broker = LocalBroker(LocalSettings(shards=shards), clock)
    keeper = asyncio.create_task(broker.keep_time())
    story = way(Client(Ended(broker)), Queues(way.__name__))
    waits = next(story)
    await settled()
    waiter = broker.begin("default", waits.command, lambda _: None)  # its turn is not ended: nothing is said
    await settled()
    next(story, None)
    woken = await is_woken(clock, lambda: waiter.reply is not NO_REPLY) and waits.is_answer(waiter.reply)
    await over(keeper)
    broker.close()
    return woken


async def embedded(way: Way, shards: int = SHARDS) -> bool:
    """Whether a coroutine is woken, which keeps the time for others that wait, too."""
    clock = Timekept()
    broker = LocalBroker(LocalSettings(shards=shards), clock)
    others = [asyncio.create_task(broker.execute_async("default", waits.command)) for waits in elsewhere()]
    await settled()
    story = way(Client(broker), Queues(way.__name__))
    waits = next(story)
    waiting = asyncio.create_task(broker.execute_async("default", waits.command))
    await settled()
    next(story, None)
    woken = await is_woken(clock, waiting.done) and waits.is_answer(waiting.result())
    await over(waiting, *others)
    broker.close()
    return woken


def elsewhere() -> list[Waits]:
    """Two callers who wait for nothing that comes: they have become timekeepers."""
    return [Waits(c.Pull((f"idle-{number}",), 1, 40_000)) for number in range(2)]


async def over(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def asleep(way: Way) -> list[str]:
    """Where nobody is woken."""
    found = {"at a server": await at_a_server(way), "embedded": await embedded(way), "1 shard": await embedded(way, 1)}
    return [f"{way.__name__}, {place}" for place, woken in found.items() if not woken]


def check_all() -> None:
    """Raises at the first way whose callers sleep on."""

    async def check() -> None:
        for way in (*WAYS, *BY_THEMSELVES):
            lost = await asleep(way)
            assert not lost, f"sleeps on: {lost}"

    asyncio.run(check())
