"""Workflows in a terminal: a graph of characters from top to bottom, or a list with one line for each step.

Where two lines cross, the vertical one is drawn and the horizontal one is interrupted.
"""

import textwrap
from collections.abc import Mapping, Sequence

from stoker.app.graphs.boxes import LOOKS, Box, look_of, merge_alike, shorten
from stoker.app.graphs.layout import Layout
from stoker.app.graphs.routes import STRAIGHT, Bundle, bundles_below

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
LINES = " ╵╷│╴╯╮┤╶╰╭├─┴┬┼"
"""Indexed by the directions that a line goes in."""
DASHED = {"│": "┆", "─": "┄"}
LINE_ANSI = LOOKS["blocked"].ansi
GAP = 3
TEXT_CHARS = (44, 26)
"""Widths for the text in a box; the first that fits is used."""
DETAIL_LINES_MAX = 2


def as_graph(boxes: Sequence[Box], width: int, colour: bool = False) -> str | None:
    """The graph, at most this wide; None if it does not fit even with similar steps merged."""
    for some in (boxes, merge_alike(boxes)) if boxes else ():
        for chars_max in TEXT_CHARS:
            sheet = Sheet(some, chars_max)
            if sheet.layout.size <= width:
                return sheet.text(colour)
    return None


def as_list(boxes: Sequence[Box], colour: bool = False) -> str:
    """A line for each step, in order, with the steps that it comes after: fits any graph and any width."""
    width = max((len(box.title) for box in boxes), default=0)
    lines = []
    for depth, layer in enumerate(Layout(boxes, [1] * len(boxes)).layers):
        for box in [boxes[number] for number in layer if number < len(boxes)]:
            look = look_of(box)
            sign = f"\x1b[{look.ansi}m{look.sign}\x1b[0m" if colour else look.sign
            before = ", ".join(boxes[other].title + ("?" if other in box.dashed else "") for other in box.after)
            rail = "│ " * max(0, depth - 1) + ("└─" if depth else "")
            line = f"{rail}{sign} {box.title.ljust(width)}  {box.detail}".rstrip()
            lines.append(line + (f"  ← {before}" if len(box.after) > 1 or depth > 1 else ""))
    return "\n".join(lines)


class Sheet:
    """A graph with texts of at most this width."""

    def __init__(self, boxes: Sequence[Box], chars_max: int) -> None:
        self._texts = [_lines_of(box, chars_max) for box in boxes]
        self._rows = max(map(len, self._texts)) + 2
        self.layout = Layout(boxes, [max(map(len, lines)) + 6 for lines in self._texts], gap=GAP)
        self._canvas = Canvas()

    def text(self, colour: bool) -> str:
        top = 0
        for layer in self.layout.layers:
            for number in layer:
                self._draw(number, top)
            top += self._rows
            bundles = bundles_below(self.layout, layer)
            rows = max((bundle.row + 1 for bundle in bundles), default=0)
            for bundle in bundles:
                self._route(bundle, top, top + max(rows, 1))
            if bundles:
                top += max(rows, 1) + 1
        return self._canvas.text(colour)

    def _draw(self, number: int, top: int) -> None:
        spot, canvas = self.layout.spots[number], self._canvas
        bottom = top + self._rows - 1
        if spot.box is None:
            is_dashed = self.layout.is_dashed((start, number) for start in spot.above)
            canvas.upright(range(top, bottom + 1), spot.middle, (number,), is_dashed)
            return
        inner, look = spot.size - 2, look_of(spot.box)
        texts = [*self._texts[number], *[""] * self._rows][: self._rows - 2]
        canvas.write(top, spot.start, f"╭{'─' * inner}╮", look.ansi)
        for row, text in enumerate(texts):
            first = row == 0
            canvas.write(top + 1 + row, spot.start, f"│{' ' * inner}│", look.ansi)
            written = f" {look.sign if first else ' '} {text}".ljust(inner)
            canvas.write(top + 1 + row, spot.start + 1, written, look.ansi if first else "")
        canvas.write(bottom, spot.start, f"╰{'─' * inner}╯", look.ansi)
        if spot.below:
            canvas.write(bottom, spot.middle, "┬", look.ansi)

    def _route(self, bundle: Bundle, top: int, bottom: int) -> None:
        """Draw lines from the lower edges of boxes to the tips above others, or to where lines cross a layer."""
        canvas, names, is_dashed = self._canvas, (*bundle.starts, *bundle.ends), bundle.is_dashed
        is_bent = bundle.row != STRAIGHT
        bend = top + bundle.row if is_bent else bottom
        for column in bundle.begins_at:
            canvas.upright(range(top, bend), column, names, is_dashed)
        if is_bent:
            first, last = bundle.reach
            for column in range(first, last + 1):
                way = (LEFT if column > first else 0) | (RIGHT if column < last else 0)
                way |= (UP if column in bundle.begins_at else 0) | (DOWN if column in bundle.ends_at else 0)
                canvas.line(bend, column, way, names, is_dashed)
        for spot in [self.layout.spots[end] for end in bundle.ends]:
            canvas.upright(range(bend + is_bent, bottom + (spot.box is None)), spot.middle, names, is_dashed)
            if spot.box is not None:
                canvas.write(bottom, spot.middle, "▼")


def _lines_of(box: Box, chars_max: int) -> list[str]:
    lines = textwrap.wrap(box.detail, chars_max, break_on_hyphens=False)
    if len(lines) > DETAIL_LINES_MAX:
        rest = " ".join(lines[DETAIL_LINES_MAX - 1 :])
        lines = [*lines[: DETAIL_LINES_MAX - 1], shorten(rest, chars_max)]
    return [shorten(box.title, chars_max), *lines]


class Canvas:
    """Characters in rows and columns, each with its colour."""

    def __init__(self) -> None:
        self._letters: dict[int, dict[int, tuple[str, str]]] = {}
        self._ways: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}

    def write(self, row: int, column: int, text: str, ansi: str = "") -> None:
        line = self._letters.setdefault(row, {})
        for at, letter in enumerate(text):
            line[column + at] = (letter, ansi)

    def upright(self, rows: range, column: int, names: tuple[int, ...], is_dashed: bool) -> None:
        for row in rows:
            self.line(row, column, UP | DOWN, names, is_dashed)

    def line(self, row: int, column: int, way: int, names: tuple[int, ...], is_dashed: bool) -> None:
        """Draw a piece of a line. It joins lines with a common start or end, and passes behind vertical ones."""
        before, others = self._ways.get((row, column), (0, ()))
        if before and not set(others) & set(names):
            if before & (UP | DOWN):
                return
        elif before:
            way |= before
        self._ways[row, column] = (way, (*others, *names))
        letter = LINES[way]
        self.write(row, column, DASHED.get(letter, letter) if is_dashed else letter, LINE_ANSI)

    def text(self, colour: bool) -> str:
        return "\n".join(self._row(self._letters[row], colour) for row in sorted(self._letters))

    @staticmethod
    def _row(line: Mapping[int, tuple[str, str]], colour: bool) -> str:
        found, now = "", ""
        for column in range(max(line) + 1):
            letter, ansi = line.get(column, (" ", ""))
            if colour and ansi != now:
                found += f"\x1b[{ansi}m" if ansi else "\x1b[0m"
                now = ansi
            found += letter
        return found.rstrip() + ("\x1b[0m" if now else "")
