"""A clock that moves only when a test says so, or when code would have to wait."""

import asyncio
import threading
from datetime import timedelta

from stoker.model.errors import InvalidRequest
from stoker.model.units import parse_duration_ms


class FakeClock:
    """Time for tests. Waiting costs nothing: a wait moves the clock to its end."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, by: int | str | timedelta) -> int:
        """Let time pass: `"5m"`, a timedelta, or whole milliseconds. Returns the new time."""
        ms = by if isinstance(by, int) else to_ms(by)
        if ms < 0:
            raise ValueError("a clock cannot run backwards")
        self._now_ms += ms
        return self._now_ms

    def wait(self, signal: threading.Event, until_ms: int) -> None:
        """Return when the signal is set or `until_ms` has come: here, at once."""
        if not signal.is_set():
            self._now_ms = max(self._now_ms, until_ms)

    async def wait_async(self, signal: asyncio.Event, until_ms: int) -> None:
        await asyncio.sleep(0)  # other tasks act first: time passes only when all of them wait
        if not signal.is_set():
            self._now_ms = max(self._now_ms, until_ms)


def to_ms(duration: str | timedelta) -> int:
    """Milliseconds of `"5m"` or a timedelta. A bare number is refused: it could be seconds or milliseconds."""
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1000)
    if not isinstance(duration, str):
        raise InvalidRequest(f'{duration!r} is not a duration: say the unit, like "30s" or "5m", or give a timedelta')
    try:
        return round(parse_duration_ms(duration))
    except ValueError as error:
        raise InvalidRequest(f"{duration!r} is not a duration: {error}") from None
