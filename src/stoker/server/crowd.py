"""How many connections there are, over all listeners of a process: in all, from one address, and in one second.

Whoever is turned away costs nothing but this look.
"""

import time
from collections import Counter
from collections.abc import Callable

from stoker.server.config.tree import ServerLimits


class Crowd:
    """All connections, by transport and by address."""

    def __init__(self, limits: Callable[[], ServerLimits], counts: dict[str, int]) -> None:
        self._limits = limits
        """They may change while the server runs."""
        self._counts = counts
        """Open connections by transport, for the metrics."""
        self._open = 0
        self._by_address: Counter[str] = Counter()
        self._came: Counter[str] = Counter()
        """From an address in the current second."""
        self._second = 0

    def enter(self, transport: str, address: str) -> bool:
        """Whether there is room for one more; if so, it is counted."""
        limits = self._limits()
        if (
            self._is_storm(address, limits.connections_per_second_max)
            or self._open >= limits.connections_max
            or self._by_address[address] >= limits.connections_per_address_max
        ):
            return False
        self._open += 1
        self._by_address[address] += 1
        self._counts[transport] = self._counts.get(transport, 0) + 1
        return True

    def leave(self, transport: str, address: str) -> None:
        self._open -= 1
        self._counts[transport] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_storm(self, address: str, most: int) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._came.clear()
        self._came[address] += 1
        return self._came[address] > most
