"""An exact set of sequence numbers, kept as ranges.

It remembers for ever which jobs failed, were cancelled or expired, so that a dependency on one of them is decided
correctly after the job is forgotten. Neighbouring ranges merge, so the set stays small.
"""

from bisect import bisect_right


class RangeSet:
    """Integers as sorted, disjoint, non-adjacent ranges `[start, stop)`."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self._starts, value) - 1
        return at >= 0 and value < self._stops[at]

    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._stops, strict=True))

    def add(self, start: int, stop: int) -> None:
        starts, stops = self._starts, self._stops
        if starts and stops[-1] == start:  # the common case: growing at the end
            stops[-1] = stop
            return
        first = bisect_right(stops, start - 1)
        last = bisect_right(starts, stop)
        if first < last:
            start, stop = min(start, starts[first]), max(stop, stops[last - 1])
        starts[first:last] = [start]
        stops[first:last] = [stop]

    def remove(self, value: int) -> None:
        at = bisect_right(self._starts, value) - 1
        if at < 0 or value >= self._stops[at]:
            return
        start, stop = self._starts[at], self._stops[at]
        pieces = [(a, b) for a, b in ((start, value), (value + 1, stop)) if a < b]
        self._starts[at : at + 1] = [a for a, _ in pieces]
        self._stops[at : at + 1] = [b for _, b in pieces]
