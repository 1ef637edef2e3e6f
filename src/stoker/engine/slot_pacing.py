"""Limit how many slots of schedules are handled in one turn. The others follow soon after.

A slot costs a tenth of a millisecond, most of it for finding the next one in the calendar. Without a limit, thousands
of schedules that are due at midnight would block the server for a second. Nothing here decides about a slot or is
stored: a slot that waits here is due, and is found again after a restart.
"""

from collections import deque
from collections.abc import Iterator

from stoker.engine.state import Planned

SLOTS = 100
"""Slots handled at once: about 10 ms."""
PAUSE_MS = 20
"""The pause between two rounds of slots, so that at least half of the time is left for other commands."""


class SlotPace:
    """How many slots may be handled now. All shards of a process share one."""

    __slots__ = ("left", "next_at")

    def __init__(self) -> None:
        self.left = SLOTS
        self.next_at = 0
        """When the next round begins."""

    def admits(self, now: int) -> bool:
        if now >= self.next_at:
            self.next_at, self.left = now + PAUSE_MS, SLOTS
        self.left -= 1
        return self.left >= 0


class SlotBacklog:
    """Slots of one shard that are due and wait for their turn, in order."""

    __slots__ = ("_waiting", "armed")

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, Planned]] = deque()
        self.armed = 0
        """When the next of them are handled."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[tuple[int, Planned]]:
        """The waiting schedules, each with the time at which it was due."""
        return ((due, planned) for due, _, planned in self._waiting)

    def join(self, due: int, noticed_at: int, planned: Planned) -> None:
        """Let a schedule wait. `noticed_at` is kept, so that the time spent here does not make the slot missed."""
        self._waiting.append((due, noticed_at, planned))

    def first(self) -> tuple[int, int, Planned] | None:
        """The next schedule that is still due. Others were changed, paused or deleted in the meantime."""
        while self._waiting:
            due, noticed_at, planned = self._waiting.popleft()
            if planned.due == due:
                return due, noticed_at, planned
        return None

    def holds(self, at: int) -> bool:
        return self.armed == at and bool(self._waiting)
