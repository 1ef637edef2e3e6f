"""Counts and limits connections over all listeners of a process: in all, from one address, without a known client, and
per second.

Every connection has a place from the moment it is accepted. A connection is *known* once its client has authenticated
or, if no tokens are configured, has sent a request. When there is no room for a new connection, the oldest unknown one
is closed, starting with those that have sent nothing. Known connections are never closed for that.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from stoker.server.config.tree import ServerLimits


class ConnectionBounds(NamedTuple):
    """How many connections there may be."""

    all: int
    address: int
    """From one address."""
    unknown: int
    """Whose client is not known."""
    per_second: int
    """New ones from one address."""


def bounds_for(limits: ServerLimits, descriptors: int, *, has_tokens: bool) -> ConnectionBounds:
    """What the limits allow, and the descriptors that are left for connections."""
    most = min(limits.connections_max, descriptors)
    address = limits.connections_per_address_max
    if most < limits.connections_max:  # all connections are fewer than the operator thought: so are those of one host
        address = min(address, most * 3 // 4)
    unknown = min(limits.connections_unauthenticated_max, most // 4) if has_tokens else most
    return ConnectionBounds(most, max(1, address), max(1, unknown), limits.connections_per_second_max)


class ConnectionPlace:
    """The place of one connection."""

    __slots__ = ("address", "cut", "has_spoken", "is_known", "transport")

    def __init__(self, transport: str, address: str, cut: Callable[[], None]) -> None:
        self.transport = transport
        self.address = address
        self.cut = cut
        """Ends the connection at once."""
        self.has_spoken = False
        self.is_known = False


class Connections:
    """All connections, by transport and by address."""

    def __init__(self, bounds: Callable[[], ConnectionBounds], counts: dict[str, int]) -> None:
        self._bounds = bounds
        """They may change while the server runs."""
        self._counts = counts
        """Open connections by transport, for the metrics."""
        self._places: set[ConnectionPlace] = set()
        self._silent: dict[ConnectionPlace, None] = {}
        """Not known, and nothing was ever heard from them. Oldest first."""
        self._spoken: dict[ConnectionPlace, None] = {}
        """Not known, although they have said something. Oldest first."""
        self._by_address: Counter[str] = Counter()
        self._came: Counter[str] = Counter()
        """From an address in the current second."""
        self._second = 0

    def enter(self, transport: str, address: str, cut: Callable[[], None]) -> ConnectionPlace | None:
        """A place for one more connection, or None if there is no room, and none can be made."""
        bounds = self._bounds()
        if self._is_storm(address, bounds) or not self._has_room(address, bounds):
            return None
        place = ConnectionPlace(transport, address, cut)
        self._places.add(place)
        self._silent[place] = None
        self._by_address[address] += 1
        self._counts[transport] = self._counts.get(transport, 0) + 1
        return place

    def spoke(self, place: ConnectionPlace) -> None:
        """Something was heard from this connection."""
        if not place.has_spoken:
            place.has_spoken = True
            if place in self._silent:
                del self._silent[place]
                self._spoken[place] = None

    def know(self, place: ConnectionPlace) -> None:
        """The client has authenticated: from now on it keeps its place."""
        if not place.is_known:
            place.is_known = True
            self._silent.pop(place, None)
            self._spoken.pop(place, None)

    def leave(self, place: ConnectionPlace) -> None:
        if place not in self._places:
            return  # it was cut off to make room
        self._places.discard(place)
        self._silent.pop(place, None)
        self._spoken.pop(place, None)
        self._counts[place.transport] -= 1
        self._by_address[place.address] -= 1
        if not self._by_address[place.address]:
            del self._by_address[place.address]

    def make_room(self, address: str | None = None) -> bool:
        """Cut off the oldest connection that is not known, of an address or at all: whether there was one."""
        for waiting in (self._silent, self._spoken):
            for place in waiting:
                if address in (None, place.address):
                    self.leave(place)
                    place.cut()
                    return True
        return False

    def _has_room(self, address: str, bounds: ConnectionBounds) -> bool:
        if self._by_address[address] >= bounds.address and not self.make_room(address):
            return False
        is_full = len(self._places) >= bounds.all or len(self._silent) + len(self._spoken) >= bounds.unknown
        return not is_full or self.make_room()

    def _is_storm(self, address: str, bounds: ConnectionBounds) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._came.clear()
        self._came[address] += 1
        return self._came[address] > bounds.per_second
