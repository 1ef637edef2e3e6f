"""Decides when to try again: the backoff of one event, and the circuit breaker of one hook. Time is a parameter."""

from collections.abc import Callable
from typing import Final, Literal

from stoker.server.config.tree import WebhookSettings

JITTER: Final = 0.25
"""A delay may be shorter by up to this share, so that events that failed together do not come back together."""

CircuitState = Literal["closed", "open", "half_open"]


def delay_s(attempts: int, settings: WebhookSettings, chance: Callable[[], float]) -> float:
    """How long to wait after this many attempts; `chance` returns numbers from 0 to 1."""
    doubled = settings.backoff_s * 2.0 ** min(attempts - 1, 64)
    return min(doubled, settings.backoff_s_max) * (1 - JITTER * chance())


class Circuit:
    """Closed: attempts go through. After several failures in a row it opens; later one attempt decides."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._open_until: float | None = None

    def state(self, now: float) -> CircuitState:
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def wait_s(self, now: float) -> float:
        """How long no attempt may be made; 0 means now. Only one is ever under way."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now)

    def succeeded(self) -> bool:
        """Returns whether that closed it."""
        was_open = self._open_until is not None
        self._failures, self._open_until = 0, None
        return was_open

    def failed(self, now: float) -> bool:
        """Returns whether that opened it, for the first time since it was closed."""
        self._failures += 1
        was_open = self._open_until is not None
        if was_open or self._failures >= self._settings.circuit_failures:
            self._open_until = now + self._settings.circuit_open_s
        return not was_open and self._open_until is not None
