"""Everything that happens by itself at some time, in one heap.

An entry is never taken out when its holder's plans change; it is recognised as stale when it fires, or
swept out when stale entries are in the majority. So arming costs one push and disarming nothing.
"""

from heapq import heapify, heappop, heappush
from typing import Any

DUE, TTL, LEASE, DEAD_RETRY, DEAD_AGE, KEY, AGE, STAGE, TRANSACTION, CLAIM, REFILL = range(11)
"""What fires first at equal times stands first."""

NEVER = 1 << 62

SWEEP_MIN = 1024
"""Sweep when more entries than this, and three of four, are stale."""


class Deadlines:
    """Entries are (time, kind, number, holder); the number keeps holders from being compared."""

    __slots__ = ("earliest", "heap", "number", "stale")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, int, Any]] = []
        self.stale = 0
        self.number = 0
        self.earliest = NEVER
        """No entry is earlier than this; it may itself be too early."""

    def arm(self, at: int, kind: int, holder: Any) -> None:
        self.number += 1
        heappush(self.heap, (at, kind, self.number, holder))
        if at < self.earliest:
            self.earliest = at

    def pop_equal(self, now: int) -> tuple[int, int, list[Any]] | None:
        """The earliest time reached, its first kind, and all that is armed for exactly that."""
        heap = self.heap
        if not heap or heap[0][0] > now:
            return None
        at, kind, _, holder = heappop(heap)
        holders = [holder]
        while heap and heap[0][0] == at and heap[0][1] == kind:
            holders.append(heappop(heap)[3])
        return at, kind, holders

    def sweep(self, keep: Any) -> None:
        """Keep the entries for which `keep(at, kind, holder)` holds."""
        self.heap = [entry for entry in self.heap if keep(entry[0], entry[1], entry[3])]
        heapify(self.heap)
        self.stale = 0
