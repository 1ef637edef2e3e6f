"""The operations of a call, each for a thread and for an event loop: send a command, wait, pause.

`broker.py` carries them out, one after the other.
"""

import asyncio
import threading
import time
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from stoker.brokers.redis.links import (
    RedisNode,
    Words,
)
from stoker.brokers.redis.waiting import Ticket
from stoker.brokers.remote.links import LinkLost

if TYPE_CHECKING:
    from stoker.brokers.redis.broker import RedisBroker

R = TypeVar("R")


class RedisExchange:
    """Send a command to a server, and get its answer."""

    def __init__(self, node: RedisNode, words: Words, asking: bool = False) -> None:
        self.node, self.words, self.asking = node, words, asking

    def run(self, broker: "RedisBroker") -> Any:
        return broker.pool(self.node).call(self.words, self.asking)

    async def run_async(self, broker: "RedisBroker") -> Any:
        link, future = await broker.stream(self.node).begin(self.words, self.asking)
        try:
            async with asyncio.timeout(broker.settings.timeout_s):
                return await asyncio.shield(future)
        except TimeoutError:
            link.close()
            future.exception()
            raise LinkLost(f"Redis did not answer within {broker.settings.timeout_s:g} s", sent=True) from None
        except asyncio.CancelledError:
            future.add_done_callback(partial(broker.answered_late, self.words, link))
            raise


class ParkStep:
    """Wait until a ticket is woken, or its time is over."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def run(self, broker: "RedisBroker") -> None:
        woken = threading.Event()
        self._ticket.when_woken(woken.set)
        woken.wait(max(0.0, self._ticket.ends_at - time.monotonic()))

    async def run_async(self, broker: "RedisBroker") -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        timer = loop.call_later(max(0.0, self._ticket.ends_at - time.monotonic()), settle, future)
        self._ticket.when_woken(partial(call_soon, loop, settle, future))
        try:
            await future
        finally:
            timer.cancel()


class PassStep:
    """Let the clock of a test pass a time."""

    def __init__(self, until: int) -> None:
        self._until = until

    def run(self, broker: "RedisBroker") -> None:
        broker.clock.wait(threading.Event(), self._until)

    async def run_async(self, broker: "RedisBroker") -> None:
        await broker.clock.wait_async(asyncio.Event(), self._until)


class NapStep:
    """Wait before the next try."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def run(self, broker: "RedisBroker") -> None:
        broker.patience.nap(self._pause_s)

    async def run_async(self, broker: "RedisBroker") -> None:
        await broker.patience.nap_async(self._pause_s)


Operations = Generator["RedisExchange | ParkStep | PassStep | NapStep", Any, R]
"""What has to be done, one operation after the other: it gets what came of each, and returns what came of all."""


def settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def call_soon(loop: asyncio.AbstractEventLoop, *call: Any) -> None:
    try:
        loop.call_soon_threadsafe(*call)
    except RuntimeError:
        pass  # the loop is closed, and its callers are gone
