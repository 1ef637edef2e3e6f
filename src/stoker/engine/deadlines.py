"""All deadlines of a shard, in one heap.

An entry is never removed when its deadline changes. It is recognised as stale when it fires, or swept out when the heap
has grown to twice its live entries. So arming costs one heap push, and disarming nothing.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

(
    DUE,
    TTL,
    LEASE,
    DEAD_RETRY,
    DEAD_AGE,
    KEY,
    AGE,
    STAGE,
    TRANSACTION,
    CLAIM,
    KV,
    EDGES,
    FLOW,
    SCHEDULE,
    SLOTS,
    REFILL,
    BULK,
) = range(17)
"""At equal times, earlier kinds fire first."""

NEVER = 1 << 62

SWEEP_MASK = 63
"""How often the length of a heap that grows by one at a time is checked."""

SWEEP_MIN = 1024
"""Stale entries are left alone up to this number, or up to the number of live entries."""


class Deadlines:
    """Entries are (time, kind, number, holder). The number keeps holders from being compared."""

    __slots__ = ("earliest", "heap", "most", "number")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, int, Any]] = []
        self.most = SWEEP_MIN
        """Beyond this length the heap is swept."""
        self.number = 0
        self.earliest = NEVER
        """No entry is earlier than this; the earliest may be later. 0 when it is time to sweep."""

    def arm(self, at: int, kind: int, holder: Any) -> None:
        self.number += 1
        heappush(self.heap, (at, kind, self.number, holder))
        if len(self.heap) > self.most:
            self.earliest = 0
        elif at < self.earliest:
            self.earliest = at

    def pop_equal(self, now: int) -> tuple[int, int, list[Any]] | None:
        """The earliest time that is reached, its first kind, and all holders that are armed for exactly that."""
        heap = self.heap
        if not heap or heap[0][0] > now:
            return None
        at, kind, _, holder = heappop(heap)
        holders = [holder]
        while heap and heap[0][0] == at and heap[0][1] == kind:
            holders.append(heappop(heap)[3])
        return at, kind, holders

    def sweep(self, is_armed: Callable[[int, int, Any], bool]) -> None:
        """Keep the entries that are not stale, each once."""
        seen: set[tuple[int, int, Any]] = set()
        kept = []
        for entry in self.heap:
            at, kind, _, holder = entry
            if is_armed(at, kind, holder):
                key = (at, kind, holder if type(holder) is tuple else id(holder))
                if key not in seen:
                    seen.add(key)
                    kept.append(entry)
        heapify(kept)
        self.heap = kept
        self.most = SWEEP_MIN + 2 * len(kept)
