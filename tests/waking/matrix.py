"""Runs ways at places: all places at once, and at each all waits at once. What ends them happens one after another."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from stoker.client.sync import Client
from tests.waking.places import Opened, Place
from tests.waking.ways import BY_THEMSELVES, WAYS, Queues, Story, Waits

IDLE_S = 1.0
"""How long nothing happens before the first thing does."""
BOUND_S = 5.0
"""A wake-up takes milliseconds; on a machine that is very busy, perhaps a second."""

Way = Callable[[Client, Queues], Story]
Outcomes = dict[str, str]
"""By way: what went wrong, if something did."""


class Waiter:
    """One call that waits."""

    def __init__(self, way: Way, place: Place, loop: asyncio.AbstractEventLoop | None) -> None:
        self.name = way.__name__
        self._story = way(place.acting, Queues(self.name))
        self._waits: Waits = next(self._story)
        self._future: Future[Any] = begun(place.waiting, self._waits, loop)

    def outcome(self) -> str:
        """Let happen what is to end the wait; what went wrong."""
        if self._future.done():
            return f"answered too early: {self._reply()!r}"
        began = time.monotonic()
        try:
            next(self._story, None)
            reply = self._future.result(BOUND_S)
        except TimeoutError:
            return f"not answered within {BOUND_S:g} s"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "" if self._waits.is_answer(reply) else f"an empty answer after {time.monotonic() - began:.1f} s"

    def _reply(self) -> Any:
        return self._future.exception() or self._future.result()


def begun(client: Client, waits: Waits, loop: asyncio.AbstractEventLoop | None) -> "Future[Any]":
    """The call, under way in a thread of its own or on an event loop."""
    if loop is not None:
        return asyncio.run_coroutine_threadsafe(client.broker.execute_async(client.tenant, waits.command), loop)
    future: Future[Any] = Future()

    def wait() -> None:
        try:
            future.set_result(client.execute(waits.command))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    return future


def run_place(opened: Opened, ways: Sequence[Way] = WAYS, by_themselves: Sequence[Way] = BY_THEMSELVES) -> Outcomes:
    """All ways at one place."""
    with ExitStack() as stack:
        place = opened(stack)
        loop = stack.enter_context(running_loop()) if place.on_loop else None
        waiters = [Waiter(way, place, loop) for way in ways]
        began = time.monotonic()
        outcomes: Outcomes = {}
        for way in by_themselves:
            waiter = Waiter(way, place, loop)
            outcomes[waiter.name] = waiter.outcome()
        time.sleep(max(0.0, began + IDLE_S - time.monotonic()))
        return outcomes | {waiter.name: waiter.outcome() for waiter in waiters}


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own. Whatever still waits there is given up."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(given_up(asyncio.all_tasks(loop)))
        loop.close()


async def given_up(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run_all(places: dict[str, Opened]) -> dict[str, Outcomes]:
    with ThreadPoolExecutor(len(places)) as pool:
        running = {name: pool.submit(run_place, opened) for name, opened in places.items()}
        return {name: future.result() for name, future in running.items()}
