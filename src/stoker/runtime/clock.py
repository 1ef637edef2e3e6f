"""The clock: wall time at the start plus the time that a monotonic clock has counted since.

Setting the machine's clock therefore neither ends nor prolongs a lease.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from time import monotonic_ns
from typing import Protocol


class Clock(Protocol):
    """Time, and waiting for it."""

    def now_ms(self) -> int: ...

    def wait(self, signal: threading.Event, until_ms: int) -> None:
        """Return when the signal is set, or at `until_ms`."""
        ...

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None: ...


def wall_ms(clock: Clock) -> int | None:
    """What the clock on the wall shows, which may be set at any time. Tests' clocks hang on no wall."""
    look: Callable[[], int | None] | None = getattr(clock, "wall_ms", None)
    return look() if look is not None else None


class SystemClock:
    """The machine's own time, or time that goes on from a start which another clock has shown."""

    def __init__(self, start_ms: int | None = None) -> None:
        self._has_wall = start_ms is None
        self._offset_ms = (time.time_ns() // 1_000_000 if start_ms is None else start_ms) - monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._offset_ms + monotonic_ns() // 1_000_000

    def wall_ms(self) -> int | None:
        return time.time_ns() // 1_000_000 if self._has_wall else None

    def wait(self, signal: threading.Event, until_ms: int) -> None:
        signal.wait(max(0, until_ms - self.now_ms()) / 1000)

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        try:
            async with asyncio.timeout(max(0, until_ms - self.now_ms()) / 1000):
                await signal.wait()
        except TimeoutError:
            pass


class AheadClock:
    """A clock some milliseconds ahead of another.

    With it journaled time goes on where it stopped, even if the wall's was set back.
    """

    def __init__(self, clock: Clock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def wall_ms(self) -> int | None:
        return wall_ms(self._clock)

    def wait(self, signal: threading.Event, until_ms: int) -> None:
        self._clock.wait(signal, until_ms - self._ahead_ms)

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        await self._clock.wait_async(signal, until_ms - self._ahead_ms)
