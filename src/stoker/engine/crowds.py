"""Bounds what slots of schedules take of a turn: so many of one moment are dealt with at once, the others soon after.

A slot costs a tenth of a millisecond, most of it for finding the next one in the calendar; thousands of schedules that
are due at midnight would keep everybody waiting for a second. Nothing here decides about a slot or outlives a restart:
whoever waits here is due, and is found so again.
"""

from collections import deque
from collections.abc import Iterator

from stoker.engine.state import Planned

SLOTS = 100
"""Dealt with in one go: about 10 ms."""
PAUSE_MS = 20
"""From one go to the next: so at least half of the time is everybody else's."""


class Pace:
    """How many slots may be dealt with now. All shards of a process share one."""

    __slots__ = ("left", "next_at")

    def __init__(self) -> None:
        self.left = SLOTS
        self.next_at = 0
        """When the next go begins."""

    def admits(self, now: int) -> bool:
        if now >= self.next_at:
            self.next_at, self.left = now + PAUSE_MS, SLOTS
        self.left -= 1
        return self.left >= 0


class Crowd:
    """Slots of one shard whose time has come, and that have to wait for others, in their order."""

    __slots__ = ("_waiting", "armed")

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, Planned]] = deque()
        self.armed = 0
        """When they are looked at."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[tuple[int, Planned]]:
        """Those that wait, with the times that they were due at."""
        return ((due, planned) for due, _, planned in self._waiting)

    def join(self, due: int, noticed_at: int, planned: Planned) -> None:
        """It was due at `due`, and that was noticed so late: how long it waits here is not its fault."""
        self._waiting.append((due, noticed_at, planned))

    def first(self) -> tuple[int, int, Planned] | None:
        """The next one that still is due then: it may have been changed, paused or deleted meanwhile."""
        while self._waiting:
            due, noticed_at, planned = self._waiting.popleft()
            if planned.due == due:
                return due, noticed_at, planned
        return None

    def holds(self, at: int) -> bool:
        return self.armed == at and bool(self._waiting)
