"""Drawing a graph of steps with letters: boxes in layers from top to bottom, and the lines between them.

A line that passes over a layer has a place of its own in it. Between two layers lines run along rows, one for each
bundle of lines that share a beginning or an end; where others only cross, the one across is interrupted. This knows
boxes, and neither workflows nor terminals: whoever shows it says how wide it may be.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stoker.app.drawing import SIGNS, Box, columns_of, gathered

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
LINES = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"
"""By the directions that a line goes in."""
DASHED = {"│": "┆", "─": "┄"}
CODES = {"completed": "32", "failed": "31", "running": "36", "blocked": "90"}
GAP = 3
TEXTS = (44, 26)
"""How wide what stands in a box may be, in the order in which that is tried."""
DETAIL_LINES = 2
ROUNDS = 4


def as_graph(boxes: Sequence[Box], width: int, colour: bool = False) -> str | None:
    """The graph, as wide as that at most; None if it does not fit, however much is put together."""
    for some in (boxes, gathered(boxes)) if boxes else ():
        for text_max in TEXTS:
            sheet = Sheet(some, text_max)
            if sheet.width <= width:
                return sheet.text(colour)
    return None


# --- layers --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Spot:
    """A box, or the place where a line passes over a layer."""

    box: Box | None
    layer: int
    width: int
    left: int = 0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)

    @property
    def middle(self) -> int:
        return self.left + self.width // 2


class Net:
    """Lines that share a row: from all of these spots to all of those."""

    def __init__(self, starts: Iterable[int], ends: Iterable[int]) -> None:
        self.starts, self.ends = sorted(set(starts)), sorted(set(ends))
        self.row = -1


class Sheet:
    """Everything in its place."""

    def __init__(self, boxes: Sequence[Box], text_max: int) -> None:
        self.spots: list[Spot] = []
        self._texts = [written(box, text_max) for box in boxes]
        self._rows = max(map(len, self._texts)) + 2
        self.dashed: set[tuple[int, int]] = set()
        self.layers: list[list[int]] = [[] for _ in columns_of(boxes)]
        self._add(boxes)
        self._arrange()
        self.width = max(spot.left + spot.width for spot in self.spots)

    def _add(self, boxes: Sequence[Box]) -> None:
        columns = columns_of(boxes)
        depth = {number: layer for layer, column in enumerate(columns) for number in column}
        for number, box in enumerate(boxes):
            self.spots.append(Spot(box, depth[number], max(map(len, self._texts[number])) + 6))
        for layer, column in enumerate(columns):
            self.layers[layer] = list(column)
        passing: dict[tuple[int, int], int] = {}
        solid: set[tuple[int, int]] = set()
        for number, box in enumerate(boxes):
            for other in box.after:
                at = other
                for layer in range(depth[other] + 1, depth[number]):
                    at = self._join(at, self._passing(passing, number, layer), box, other, solid)
                self._join(at, number, box, other, solid)
        self.dashed -= solid

    def _passing(self, passing: dict[tuple[int, int], int], end: int, layer: int) -> int:
        """Lines to the same box pass over a layer together."""
        if (end, layer) not in passing:
            passing[end, layer] = len(self.spots)
            self.layers[layer].append(len(self.spots))
            self.spots.append(Spot(None, layer, 1))
        return passing[end, layer]

    def _join(self, start: int, end: int, box: Box, other: int, solid: set[tuple[int, int]]) -> int:
        if end not in self.spots[start].below:
            self.spots[start].below.append(end)
            self.spots[end].above.append(start)
        (self.dashed if other in box.dashed else solid).add((start, end))
        return end

    def _arrange(self) -> None:
        for turn in range(ROUNDS):
            self._order(downwards=turn % 2 == 0)
        for layer in self.layers:
            left = 0
            for number in layer:
                self.spots[number].left = left
                left += self.spots[number].width + GAP
        for turn in range(2 * ROUNDS):
            for layer in self.layers if turn % 2 == 0 else reversed(self.layers):
                self._place(layer, downwards=turn % 2 == 0)
        least = min(spot.left for spot in self.spots)
        for spot in self.spots:
            spot.left -= least

    def _order(self, *, downwards: bool) -> None:
        place = {number: at / max(1, len(layer) - 1) for layer in self.layers for at, number in enumerate(layer)}
        for layer in self.layers if downwards else reversed(self.layers):
            layer.sort(key=lambda number: (_mean(self._near(number, downwards), place, place[number]), number))
            place |= {number: at / max(1, len(layer) - 1) for at, number in enumerate(layer)}

    def _near(self, number: int, downwards: bool) -> list[int]:
        return self.spots[number].above if downwards else self.spots[number].below

    def _place(self, layer: Sequence[int], *, downwards: bool) -> None:
        """Each below, or above, the middle of those that it is joined to, as far as the others leave room."""
        middles = {number: float(spot.middle) for number, spot in enumerate(self.spots)}
        wanted = [round(_mean(self._near(one, downwards), middles, middles[one])) for one in layer]
        right = -(10**9)
        shift = 0
        for number, middle in zip(layer, wanted, strict=True):
            spot = self.spots[number]
            spot.left = max(middle - spot.width // 2, right)
            right = spot.left + spot.width + GAP
            shift += middle - spot.middle
        for number in layer:
            self.spots[number].left += round(shift / len(layer))

    # --- lines -----------------------------------------------------------------------------------------

    def nets(self, layer: Sequence[int]) -> list[Net]:
        """The lines below a layer, put together where they have all ends, or all beginnings, in common."""
        found: dict[object, Net] = {}
        for number in layer:
            for end in self.spots[number].below:
                starts, ends = self.spots[end].above, self.spots[number].below
                is_dashed = (number, end) in self.dashed
                if self._is_bundle(starts, ends, is_dashed):
                    found.setdefault(("all", *sorted(starts), -1, *sorted(ends)), Net(starts, ends))
                elif len(starts) == 1:
                    found.setdefault(("from", number, is_dashed), Net([number], [])).ends.append(end)
                elif len(ends) == 1:
                    found.setdefault(("to", end, is_dashed), Net([], [end])).starts.append(number)
                else:
                    found[number, end] = Net([number], [end])
        nets = list(found.values())
        self._lay(nets)
        return nets

    def _is_bundle(self, starts: Sequence[int], ends: Sequence[int], is_dashed: bool) -> bool:
        """Whether lines of the same kind lead from all of these to all of those."""
        alike = all(((start, end) in self.dashed) == is_dashed for start in starts for end in ends)
        same_starts = all(sorted(self.spots[one].above) == sorted(starts) for one in ends)
        return alike and same_starts and all(sorted(self.spots[one].below) == sorted(ends) for one in starts)

    def _columns(self, net: Net) -> list[int]:
        return [self.spots[number].middle for number in (*net.starts, *net.ends)]

    def _lay(self, nets: Sequence[Net]) -> None:
        """A row for each that is not straight, above those that begin where it ends would be taken for its own."""
        bent = [net for net in nets if len(set(self._columns(net))) > 1]
        waiting = sorted(bent, key=lambda net: min(self._columns(net)))
        taken: list[list[tuple[int, int]]] = []
        laid: list[Net] = []
        while waiting:
            free = [net for net in waiting if not any(self._is_above(other, net) for other in waiting if other != net)]
            net = (free or waiting)[0]
            waiting.remove(net)
            first, last = min(self._columns(net)) - 1, max(self._columns(net)) + 1
            row = max((other.row + 1 for other in laid if self._is_above(other, net)), default=0)
            while row < len(taken) and any(start <= last and first <= stop for start, stop in taken[row]):
                row += 1
            taken += [[] for _ in range(row + 1 - len(taken))]
            taken[row].append((first, last))
            net.row = row
            laid.append(net)

    def _is_above(self, one: Net, other: Net) -> bool:
        """Whether a line comes down where the other's goes on down to a box."""
        starts = {self.spots[number].middle for number in one.starts}
        return bool(starts & {self.spots[number].middle for number in other.ends})

    # --- letters ---------------------------------------------------------------------------------------

    def text(self, colour: bool) -> str:
        page = Page()
        top = 0
        for layer in self.layers:
            for number in layer:
                self._draw(page, self.spots[number], number, top)
            top += self._rows
            nets = self.nets(layer)
            rows = max((net.row + 1 for net in nets), default=0)
            for net in nets:
                self._route(page, net, top, top + max(rows, 1))
            if nets:
                top += max(rows, 1) + 1
        return page.text(colour)

    def _draw(self, page: "Page", spot: Spot, number: int, top: int) -> None:
        if spot.box is None:
            is_dashed = all((start, number) in self.dashed for start in spot.above)
            for row in range(top, top + self._rows):
                page.line(row, spot.middle, UP | DOWN, (number,), is_dashed)
            return
        box, inner = spot.box, spot.width - 2
        code = CODES.get(box.state, "90")
        sign = SIGNS.get(box.state, "?")
        bottom = ["─"] * inner
        if spot.below:
            bottom[spot.width // 2 - 1] = "┬"
        page.write(top, spot.left, f"╭{'─' * inner}╮", code)
        texts = self._texts[number]
        for row in range(self._rows - 2):
            text = f" {sign if row == 0 else ' '} {texts[row] if row < len(texts) else ''}"
            page.write(top + 1 + row, spot.left, "│", code)
            page.write(top + 1 + row, spot.left + 1, text.ljust(inner), code if row == 0 else "")
            page.write(top + 1 + row, spot.left + spot.width - 1, "│", code)
        page.write(top + self._rows - 1, spot.left, f"╰{''.join(bottom)}╯", code)

    def _route(self, page: "Page", net: Net, top: int, bottom: int) -> None:
        """From the lower edge of boxes to the tips above others, or to places where lines go on."""
        pairs = [(start, end) for start in net.starts for end in net.ends if end in self.spots[start].below]
        is_dashed = all(pair in self.dashed for pair in pairs)
        names = (*net.starts, *net.ends)
        columns = self._columns(net)
        bend = top + net.row if net.row >= 0 else bottom
        for start in net.starts:
            for row in range(top, bend):
                page.line(row, self.spots[start].middle, UP | DOWN, names, is_dashed)
        if net.row >= 0:
            self._along(page, net, bend, (min(columns), max(columns)), names, is_dashed)
        for end in net.ends:
            spot = self.spots[end]
            for row in range(bend + (net.row >= 0), bottom):
                page.line(row, spot.middle, UP | DOWN, names, is_dashed)
            if spot.box is None:
                page.line(bottom, spot.middle, UP | DOWN, names, is_dashed)
            else:
                page.write(bottom, spot.middle, "▼")

    def _along(
        self, page: "Page", net: Net, row: int, extent: tuple[int, int], names: tuple[int, ...], is_dashed: bool
    ) -> None:
        begins = {self.spots[number].middle for number in net.starts}
        ends = {self.spots[number].middle for number in net.ends}
        for column in range(extent[0], extent[1] + 1):
            way = (LEFT if column > extent[0] else 0) | (RIGHT if column < extent[1] else 0)
            way |= (UP if column in begins else 0) | (DOWN if column in ends else 0)
            page.line(row, column, way, names, is_dashed)


def _mean(numbers: Sequence[int], places: Mapping[int, float], otherwise: float) -> float:
    return sum(places[number] for number in numbers) / len(numbers) if numbers else otherwise


def written(box: Box, text_max: int) -> list[str]:
    """The lines of a box."""
    lines = textwrap.wrap(box.detail, text_max, break_on_hyphens=False)
    if len(lines) > DETAIL_LINES:
        lines = [*lines[: DETAIL_LINES - 1], cut(" ".join(lines[DETAIL_LINES - 1 :]), text_max)]
    return [cut(box.title, text_max), *lines]


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


class Page:
    """Letters in rows and columns."""

    def __init__(self) -> None:
        self._letters: dict[int, dict[int, tuple[str, str]]] = {}
        self._ways: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}

    def write(self, row: int, column: int, text: str, code: str = "") -> None:
        line = self._letters.setdefault(row, {})
        for at, letter in enumerate(text):
            line[column + at] = (letter, code)

    def line(self, row: int, column: int, way: int, names: tuple[int, ...], is_dashed: bool) -> None:
        """A piece of a line. It joins others that begin or end where it does; of those that only cross, the upright
        one is seen."""
        before, others = self._ways.get((row, column), (0, ()))
        if before and not set(others) & set(names):
            if before & (UP | DOWN):
                return
        elif before:
            way |= before
        self._ways[row, column] = (way, (*others, *names))
        letter = LINES[way]
        self.write(row, column, DASHED.get(letter, letter) if is_dashed else letter, CODES["blocked"])

    def text(self, colour: bool) -> str:
        return "\n".join(self._row(self._letters[row], colour) for row in sorted(self._letters))

    @staticmethod
    def _row(line: Mapping[int, tuple[str, str]], colour: bool) -> str:
        found, now = "", ""
        for column in range(max(line) + 1):
            letter, code = line.get(column, (" ", ""))
            if colour and code != now:
                found += f"\x1b[{code}m" if code else "\x1b[0m"
                now = code
            found += letter
        return found.rstrip() + ("\x1b[0m" if now else "")
