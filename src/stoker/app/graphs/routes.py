"""Routes lines between two layers along rows, with right-angled bends.

Lines that share all their starts, or all their ends, form a bundle and share a row. A bundle's row lies above another's
where the other could be mistaken for its continuation.
"""

from collections.abc import Sequence

from stoker.app.graphs.layout import Layout

STRAIGHT = -1


class Bundle:
    """Lines that share a row: from all of `starts` to all of `ends`."""

    def __init__(self, layout: Layout, is_dashed: bool, starts: Sequence[int] = (), ends: Sequence[int] = ()) -> None:
        self._layout = layout
        self.is_dashed = is_dashed
        self.starts, self.ends = list(starts), list(ends)
        self.row = STRAIGHT

    @property
    def begins_at(self) -> set[int]:
        return {self._layout.spots[number].middle for number in self.starts}

    @property
    def ends_at(self) -> set[int]:
        return {self._layout.spots[number].middle for number in self.ends}

    @property
    def reach(self) -> tuple[int, int]:
        """Its first and its last position."""
        positions = self.begins_at | self.ends_at
        return min(positions), max(positions)

    def is_above(self, other: "Bundle") -> bool:
        """Whether one of its lines comes down where a line of the other continues to its end."""
        return self is not other and bool(self.begins_at & other.ends_at)


def bundles_below(layout: Layout, layer: Sequence[int]) -> list[Bundle]:
    """All lines that leave a layer, each in one bundle, with their rows."""
    found: dict[object, Bundle] = {}
    for number in layer:
        for end in layout.spots[number].below:
            starts, ends = layout.spots[end].above, layout.spots[number].below
            is_dashed = layout.is_dashed([(number, end)])
            if _are_joined_alike(layout, starts, ends, is_dashed):
                whole = Bundle(layout, is_dashed, sorted(starts), sorted(ends))
                found.setdefault(("all", *whole.starts, "to", *whole.ends), whole)
            elif len(starts) == 1:
                found.setdefault(("from", number, is_dashed), Bundle(layout, is_dashed, [number])).ends.append(end)
            elif len(ends) == 1:
                found.setdefault(("to", end, is_dashed), Bundle(layout, is_dashed, (), [end])).starts.append(number)
            else:
                found[number, end] = Bundle(layout, is_dashed, [number], [end])
    bundles = list(found.values())
    _assign_rows(bundles)
    return bundles


def _are_joined_alike(layout: Layout, starts: Sequence[int], ends: Sequence[int], is_dashed: bool) -> bool:
    """Whether lines of the same kind lead from all of `starts` to all of `ends`, and nowhere else."""
    same_starts = all(sorted(layout.spots[one].above) == sorted(starts) for one in ends)
    same_ends = all(sorted(layout.spots[one].below) == sorted(ends) for one in starts)
    return same_starts and same_ends and all(layout.is_dashed([(a, b)]) == is_dashed for a in starts for b in ends)


def _assign_rows(bundles: Sequence[Bundle]) -> None:
    waiting = sorted((one for one in bundles if one.reach[0] < one.reach[1]), key=lambda one: one.reach[0])
    taken: list[list[tuple[int, int]]] = []
    laid: list[Bundle] = []
    while waiting:
        free = [one for one in waiting if not any(other.is_above(one) for other in waiting)]
        bundle = (free or waiting)[0]
        waiting.remove(bundle)
        first, last = bundle.reach[0] - 1, bundle.reach[1] + 1
        row = max((other.row + 1 for other in laid if other.is_above(bundle)), default=0)
        while row < len(taken) and any(start <= last and first <= stop for start, stop in taken[row]):
            row += 1
        taken += [[] for _ in range(row + 1 - len(taken))]
        taken[row].append((first, last))
        bundle.row = row
        laid.append(bundle)
