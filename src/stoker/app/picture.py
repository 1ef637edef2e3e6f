"""Drawing a graph of steps as SVG: boxes in columns, and lines that pass between them.

A picture of its own, without scripts and fonts; where somebody prefers dark pages, it is dark. A line that passes over
columns has a place in each of them, so that no box hides it. It knows boxes, and nothing of workflows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from stoker.app.drawing import COLOURS, COLUMN_MAX, SIGNS, Box, columns_of, gathered

BOX_HEIGHT, LINE_HEIGHT, GAP_X, GAP_Y, MARGIN = 46, 10, 56, 18, 16
TEXT_MAX = 60
NARROW, WIDE = frozenset("iljtfrI.,:;'|! "), frozenset("mwMW@%")
DARK = {
    "completed": ("#12291c", "#4cc38a"),
    "failed": ("#33161a", "#f2777a"),
    "running": ("#10243d", "#6cb6ff"),
    "blocked": ("#22262c", "#9aa4b0"),
}
"""Fill and line of a box on dark pages, by its state."""


@dataclass(slots=True)
class Spot:
    """Where a box, or a line that passes, stands."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


def as_svg(boxes: Sequence[Box], title: str = "") -> str:
    if max((len(column) for column in columns_of(boxes)), default=0) > COLUMN_MAX:
        boxes = gathered(boxes)
    stations = with_stations(boxes)
    spots, width, height = placed(stations, len(boxes))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="ui-sans-serif, system-ui, sans-serif">',
        f"<title>{escape(title or 'workflow')}</title>",
        style(),
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0 L8 4 L0 8 z" fill="#8a8a84"/></marker></defs>',
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}" rx="10" fill="#ffffff"/>',
    ]
    for number, box in enumerate(stations):
        ends = number < len(boxes)
        parts += [_line(spots[other], spots[number], other in box.dashed, ends=ends) for other in box.after]
        if not ends:
            parts.append(_passing(spots[number], len(box.dashed) == len(box.after)))
    parts += [_drawn(box, spots[number]) for number, box in enumerate(stations[: len(boxes)])]
    return "\n".join([*parts, "</svg>"]) + "\n"


def style() -> str:
    """Colours for those who like it dark; without it, those that stand in the picture hold."""
    dark = [
        ".page{fill:#161b22}.name{fill:#e6edf3}.more{fill:#aab4c0}.line{stroke:#8b949e}.tip{fill:#8b949e}",
        *(f".{state}{{fill:{fill};stroke:{line}}}.{state}-sign{{fill:{line}}}" for state, (fill, line) in DARK.items()),
    ]
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(dark)}}}</style>"


def with_stations(boxes: Sequence[Box]) -> list[Box]:
    """The boxes, and behind them a station in each column that a line passes over. Lines to one box pass together."""
    depth = {number: at for at, column in enumerate(columns_of(boxes)) for number in column}
    found = list(boxes)
    stations: dict[tuple[int, int], int] = {}
    for number, box in enumerate(boxes):
        after: dict[int, bool] = {}
        for other in box.after:
            at = other
            for column in range(depth[other] + 1, depth[number]):
                if (number, column) not in stations:
                    stations[number, column] = len(found)
                    found.append(Box(""))
                station = stations[number, column]
                _join(found, station, at, other in box.dashed)
                at = station
            after[at] = after.get(at, True) and other in box.dashed
        found[number] = replace(box, after=tuple(after), dashed=tuple(one for one in after if after[one]))
    return found


def _join(found: list[Box], station: int, other: int, is_dashed: bool) -> None:
    """A line with a dash only as long as all that pass are tolerated."""
    box = found[station]
    tolerated = is_dashed and (other not in box.after or other in box.dashed)
    dashed = {*box.dashed, other} if tolerated else {*box.dashed} - {other}
    found[station] = replace(box, after=tuple(dict.fromkeys((*box.after, other))), dashed=tuple(sorted(dashed)))


def placed(stations: Sequence[Box], boxes: int) -> tuple[list[Spot], float, float]:
    """Where everything stands, and how large all of it is."""
    columns = columns_of(stations)
    heights = [BOX_HEIGHT if number < boxes else LINE_HEIGHT for number in range(len(stations))]
    tall = [sum(heights[number] + GAP_Y for number in column) - GAP_Y for column in columns]
    highest = max(tall, default=0)
    spots = [Spot(0, 0, 0, height) for height in heights]
    left = float(MARGIN)
    for column, height in zip(columns, tall, strict=True):
        width = max((width_of(stations[number]) for number in column if number < boxes), default=0.0)
        top = MARGIN + (highest - height) / 2
        for number in column:
            spots[number].left, spots[number].top, spots[number].width = left, top, width
            top += heights[number] + GAP_Y
        left += width + GAP_X
    return spots, left - GAP_X + MARGIN, highest + 2 * MARGIN


def width_of(box: Box) -> float:
    return max(text_width(cut(box.title), 13.0) * 1.06 + 44, text_width(cut(box.detail), 11.0) + 24)


def text_width(text: str, size: float) -> float:
    """About as wide as it is in the fonts that people have: rather too much than too little."""
    return sum(_letter_width(letter) for letter in text) * size


def _letter_width(letter: str) -> float:
    if letter in NARROW:
        return 0.40
    if letter in WIDE or ord(letter) > 0x2E7F:
        return 1.0
    return 0.74 if letter.isupper() else 0.62


def cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _line(start: Spot, stop: Spot, dashed: bool, *, ends: bool) -> str:
    x1, y1, x2, y2 = start.left + start.width, start.middle, stop.left, stop.middle
    bend = max(24.0, (x2 - x1) / 2)
    tip = ' marker-end="url(#tip)"' if ends else ""
    return (
        f'<path class="line" d="M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f}'
        f' {x2 - 2 * ends:.1f} {y2:.1f}" fill="none" stroke="#8a8a84" stroke-width="1.4"{_dash(dashed)}{tip}/>'
    )


def _passing(spot: Spot, dashed: bool) -> str:
    return (
        f'<path class="line" d="M{spot.left:.1f} {spot.middle:.1f} H{spot.left + spot.width:.1f}" fill="none"'
        f' stroke="#8a8a84" stroke-width="1.4"{_dash(dashed)}/>'
    )


def _dash(dashed: bool) -> str:
    return ' stroke-dasharray="5 4"' if dashed else ""


def _drawn(box: Box, spot: Spot) -> str:
    state = box.state if box.state in COLOURS else "blocked"
    fill, line = COLOURS[state]
    title, detail = escape(cut(box.title)), escape(cut(box.detail))
    left, middle = spot.left, spot.top + (20 if detail else 28)
    text = (
        f'<text class="name" x="{left + 30:.1f}" y="{middle:.1f}" font-size="13" font-weight="600" fill="#222">'
        f"{title}</text>"
    )
    if detail:
        at = f'x="{left + 12:.1f}" y="{spot.top + 36:.1f}"'
        text += f'<text class="more" {at} font-size="11" fill="#555">{detail}</text>'
    sign = escape(SIGNS.get(box.state, "?"))
    return (
        f'<g><rect class="{state}" x="{left:.1f}" y="{spot.top:.1f}" width="{spot.width:.1f}" height="{BOX_HEIGHT}"'
        f' rx="8" fill="{fill}" stroke="{line}" stroke-width="1.4"/>'
        f'<text class="{state}-sign" x="{left + 12:.1f}" y="{middle:.1f}" font-size="13" fill="{line}">{sign}</text>'
        f"{text}</g>"
    )
