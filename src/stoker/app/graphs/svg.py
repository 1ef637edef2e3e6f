"""Workflows as SVG: boxes from left to right, with curves between them.

The picture has no scripts and no fonts of its own. It is dark where the reader prefers dark pages.
"""

from collections.abc import Sequence
from html import escape

from stoker.app.graphs.boxes import LOOKS, Box, look_of, merge_alike, shorten
from stoker.app.graphs.layout import Layout, Spot, layers_of

BOX_HEIGHT, LINE_HEIGHT, GAP_X, GAP_Y, MARGIN = 46, 10, 56, 18, 16
TEXT_CHARS = 60
LAYER_BOXES_MAX = 40
"""Boxes above each other; above it, similar boxes are merged."""
NARROW, WIDE = frozenset("iljtfrI.,:;'|! "), frozenset("mwMW@%")
LINE = LOOKS["blocked"].light[1]
DARK = ".page{fill:#161b22}.name{fill:#e6edf3}.more{fill:#aab4c0}.line{stroke:#8b949e}.tip{fill:#8b949e}" + "".join(
    f".{state}{{fill:{look.dark[0]};stroke:{look.dark[1]}}}.{state}-sign{{fill:{look.dark[1]}}}"
    for state, look in LOOKS.items()
)


def as_svg(boxes: Sequence[Box], title: str = "", *, styled: bool = True) -> str:
    """A picture. Not `styled`, it leaves the colours of dark pages to the stylesheet of the page that it stands in."""
    if max(map(len, layers_of(boxes)), default=0) > LAYER_BOXES_MAX:
        boxes = merge_alike(boxes)
    return Picture(boxes).text(title or "workflow", styled=styled)


class Picture:
    """A layout in pixels; each layer is a column as wide as its widest box."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        self.layout = Layout(boxes, [BOX_HEIGHT] * len(boxes), line_size=LINE_HEIGHT, gap=GAP_Y)
        self.columns: dict[int, tuple[float, float]] = {}
        """The left and the right edge of each spot."""
        left = float(MARGIN)
        for layer in self.layout.layers:
            width = max(_width_of(self.layout.spots[number].box) for number in layer)
            self.columns |= dict.fromkeys(layer, (left, left + width))
            left += width + GAP_X
        self.width, self.height = left - GAP_X + MARGIN, self.layout.size + 2 * MARGIN

    def text(self, title: str, *, styled: bool) -> str:
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        spots = list(enumerate(self.layout.spots))
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
            ' font-family="ui-sans-serif, system-ui, sans-serif">',
            f"<title>{escape(title)}</title>",
            *([f"<style>@media (prefers-color-scheme: dark){{{DARK}}}</style>"] if styled else []),
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path class="tip" d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>',
            f'<rect class="page" {size} rx="10" fill="#ffffff"/>',
            *(self._line(other, number) for number, spot in spots for other in spot.above),
            *(self._crossing(number) for number, spot in spots if spot.box is None),
            *(_drawn(spot.box, MARGIN + spot.start, *self.columns[n]) for n, spot in spots if spot.box is not None),
        ]
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _line(self, start: int, end: int) -> str:
        spot = self.layout.spots[end]
        x1, y1, x2, y2 = self.columns[start][1], _y(self.layout.spots[start]), self.columns[end][0], _y(spot)
        bend, is_tip = (x2 - x1) / 2, spot.box is not None
        curve = f"M{x1:.1f} {y1} C{x1 + bend:.1f} {y1} {x2 - bend:.1f} {y2} {x2 - 2 * is_tip:.1f} {y2}"
        tip = ' marker-end="url(#tip)"' if is_tip else ""
        return _path(curve, self.layout.is_dashed([(start, end)]), tip)

    def _crossing(self, number: int) -> str:
        spot, (left, right) = self.layout.spots[number], self.columns[number]
        is_dashed = self.layout.is_dashed((start, number) for start in spot.above)
        return _path(f"M{left:.1f} {_y(spot)} H{right:.1f}", is_dashed)


def _y(spot: Spot) -> int:
    return MARGIN + spot.middle


def _path(line: str, is_dashed: bool, more: str = "") -> str:
    dash = ' stroke-dasharray="5 4"' if is_dashed else ""
    return f'<path class="line" d="{line}" fill="none" stroke="{LINE}" stroke-width="1.4"{dash}{more}/>'


def _width_of(box: Box | None) -> float:
    if box is None:
        return 0.0
    title, detail = shorten(box.title, TEXT_CHARS), shorten(box.detail, TEXT_CHARS)
    return max(_text_width(title, 13) * 1.06 + 44, _text_width(detail, 11) + 24)


def _text_width(text: str, font_size: int) -> float:
    """The approximate width in common fonts, rather too wide than too narrow."""
    return sum(_letter_width(letter) for letter in text) * font_size


def _letter_width(letter: str) -> float:
    if letter in NARROW:
        return 0.40
    if letter in WIDE or ord(letter) > 0x2E7F:
        return 1.0
    return 0.74 if letter.isupper() else 0.62


def _drawn(box: Box, top: int, left: float, right: float) -> str:
    state, look = box.state if box.state in LOOKS else "blocked", look_of(box)
    fill, line = look.light
    title, detail = escape(shorten(box.title, TEXT_CHARS)), escape(shorten(box.detail, TEXT_CHARS))
    at = f'y="{top + (20 if detail else 28)}" font-size="13"'
    more = f'<text class="more" x="{left + 12:.1f}" y="{top + 36}" font-size="11" fill="#555">{detail}</text>'
    drawn = (
        f'<g><rect class="{state}" x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{BOX_HEIGHT}"'
        f' rx="8" fill="{fill}" stroke="{line}" stroke-width="1.4"/>'
        f'<text class="{state}-sign" x="{left + 12:.1f}" {at} fill="{line}">{look.sign}</text>'
        f'<text class="name" x="{left + 30:.1f}" {at} font-weight="600" fill="#222">{title}</text>'
        f"{more if detail else ''}</g>"
    )
    return f'<a href="{escape(box.link)}">{drawn}</a>' if box.link else drawn
