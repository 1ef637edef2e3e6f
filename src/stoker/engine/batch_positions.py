"""Positions of a batch: a range with holes, and a sorted table of such pieces.

A batch of ten thousand jobs is moved by moving the ends of a range; a single job that leaves makes a hole. Each end
skips holes that it reaches, so a span never starts or ends in a hole.
"""

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import msgspec


class PositionSpan(msgspec.Struct, gc=False):
    """The positions `start <= p < stop` without the holes; `left` of them."""

    start: int
    stop: int
    left: int
    holes: set[int] | None = None

    def __contains__(self, position: int) -> bool:
        return self.start <= position < self.stop and (self.holes is None or position not in self.holes)

    def remove(self, start: int, stop: int) -> None:
        """Remove a run that is wholly inside and has no holes."""
        self.left -= stop - start
        if start == self.start:
            self.start = stop
            self._skip_front()
        elif stop == self.stop:
            self.stop = start
            self._skip_back()
        elif self.holes is None:
            self.holes = set(range(start, stop))
        else:
            self.holes.update(range(start, stop))

    def _skip_front(self) -> None:
        holes = self.holes
        while holes and self.start in holes:
            holes.remove(self.start)
            self.start += 1

    def _skip_back(self) -> None:
        holes = self.holes
        while holes and self.stop - 1 in holes:
            self.stop -= 1
            holes.remove(self.stop)

    def run(self, start: int, stop: int) -> int:
        """The end of the run that begins at `start`: the next hole, `stop`, or the end of the span."""
        stop = min(stop, self.stop)
        holes = self.holes
        if holes:
            end = start + 1  # a walk, not a search: all runs of a span together cost no more than its length
            while end < stop and end not in holes:
                end += 1
            return end
        return stop

    def runs(self) -> Iterator[tuple[int, int]]:
        """All runs without holes. The ends are copied first, so the caller may remove what it gets."""
        start, stop = self.start, self.stop
        for hole in sorted(self.holes or ()):
            if start < hole:
                yield start, hole
            start = hole + 1
        if start < stop:
            yield start, stop


class BatchPiece(Protocol):
    """A piece that covers positions from `origin` on."""

    origin: int

    def covers(self, position: int) -> bool: ...


P = TypeVar("P", bound=BatchPiece)


class BatchPieces(Generic[P]):
    """Disjoint pieces of one batch, found by position."""

    __slots__ = ("_by_origin", "_origins")

    def __init__(self) -> None:
        self._origins: list[int] = []
        self._by_origin: dict[int, P] = {}

    def __iter__(self) -> Iterator[P]:
        return iter(list(self._by_origin.values()))

    def __len__(self) -> int:
        return len(self._origins)

    def add(self, piece: P) -> None:
        origin = piece.origin
        if not self._origins or origin > self._origins[-1]:
            self._origins.append(origin)
        else:
            insort(self._origins, origin)
        self._by_origin[origin] = piece

    def remove(self, piece: P) -> None:
        del self._by_origin[piece.origin]
        del self._origins[bisect_right(self._origins, piece.origin) - 1]

    def find(self, position: int) -> P | None:
        at = bisect_right(self._origins, position) - 1
        if at < 0:
            return None
        piece = self._by_origin[self._origins[at]]
        return piece if piece.covers(position) else None
