"""How long the jobs of a queue take, and how often they may start: what a worker knows before it pulls."""

import time
from collections.abc import Callable

from stoker.model.options import RateLimit

SLOW_S = 0.1
"""Longer jobs are not fetched ahead at all."""


class JobDuration:
    """Seconds that a job keeps its slot, as a moving mean. Slower jobs count at once, faster ones gradually."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds: float | None = None
        """None means unknown."""

    def measured(self, jobs: int, seconds: float) -> bool:
        """Returns whether jobs turn out to be much slower than expected."""
        mean, known = seconds / jobs, self.seconds
        if known is None or self.seconds is None:
            self.seconds = mean
            return False
        weight = 0.5 if mean > self.seconds else min(0.5, 0.1 + jobs / 30)
        self.seconds += weight * (mean - self.seconds)
        return mean > SLOW_S > known


class HandlerRateLimit:
    """A handler's rate limit in this worker: a token bucket, full at the start."""

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._size = limit.burst or limit.count
        self._per_s = limit.count * 1_000 / limit.per_ms
        self._tokens = float(self._size)
        self._at = clock()

    def _refilled(self) -> float:
        """Add the tokens since the last call. Everything is taken from the result."""
        now = self._clock()
        self._tokens = min(float(self._size), self._tokens + (now - self._at) * self._per_s)
        self._at = now
        return self._tokens

    @property
    def tokens(self) -> int:
        return int(self._refilled() + 1e-9)

    def take(self, jobs: int) -> None:
        self._tokens = self._refilled() - jobs

    @property
    def next_s(self) -> float:
        """Seconds until a token is available."""
        return 0.0 if self.tokens >= 1 else (1 - self._tokens) / self._per_s
