"""How long a call that nobody answers is tried again, and how it waits in between: growing pauses with jitter.

Whoever waits here is woken when the broker is closed. Tests bring a patience of their own, with a clock that they move.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterator

PAUSE_S, PAUSE_S_MAX = 0.05, 2.0


class Patience:
    """The pauses of one broker."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._napping: set[asyncio.Future[None]] = set()

    def now(self) -> float:
        return time.monotonic()

    def jitter(self) -> float:
        """How much of a pause is really waited: clients that lost the same server must not all come back at once."""
        return random.uniform(0.5, 1.0)

    def pauses(self, total_s: float) -> Iterator[float | None]:
        """How long to wait before each further try; None where the try is the last."""
        deadline = self.now() + total_s
        pause = PAUSE_S
        while self.now() + pause < deadline:
            yield pause * self.jitter()
            pause = min(2 * pause, PAUSE_S_MAX)
        yield None

    def nap(self, pause_s: float) -> None:
        self._ended.wait(pause_s)

    async def nap_async(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(pause_s, wake, future)
        self._napping.add(future)
        try:
            if not self._ended.is_set():
                await future
        finally:
            timer.cancel()
            self._napping.discard(future)

    def end(self) -> None:
        """From any thread: let everybody go on at once."""
        self._ended.set()
        for future in list(self._napping):
            try:
                future.get_loop().call_soon_threadsafe(wake, future)
            except RuntimeError:
                pass  # its loop is closed, and nobody waits on it

    def begin_anew(self) -> None:
        """In a forked process: those who waited did so in the parent."""
        was_ended, self._ended, self._napping = self._ended.is_set(), threading.Event(), set()
        if was_ended:
            self._ended.set()


def wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
