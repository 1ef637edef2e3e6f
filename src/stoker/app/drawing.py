"""Drawing a graph of steps: in layers, for a terminal, as Mermaid and as SVG.

It takes boxes and the numbers of those that each comes after, and knows nothing of queues. Steps stand in columns, each
right of all that it comes after; inside a column they are ordered so that few lines cross.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Box:
    """One step: what is written on it, how it stands, and what it comes after."""

    title: str
    detail: str = ""
    state: str = "blocked"
    after: tuple[int, ...] = ()
    dashed: tuple[int, ...] = ()
    """Those of them whose failure does not matter."""


SIGNS = {"completed": "✔", "failed": "✘", "running": "▶", "blocked": "·"}
COLOURS = {
    "completed": ("#e7f5ec", "#2f8f5b"),
    "failed": ("#fdecea", "#c0392b"),
    "running": ("#e8f1fb", "#2f6fb3"),
    "blocked": ("#f4f4f2", "#8a8a84"),
}
"""Fill and line of a box, by its state."""

ROUNDS = 8
"""How often the order inside the columns is improved; more changes nothing for graphs that fit on a screen."""


def columns_of(boxes: Sequence[Box]) -> list[list[int]]:
    """The numbers of the boxes, column by column, in the order in which they stand."""
    depth = [0] * len(boxes)
    waiting = [len(box.after) for box in boxes]
    behind: list[list[int]] = [[] for _ in boxes]
    for number, box in enumerate(boxes):
        for other in box.after:
            behind[other].append(number)
    free = [number for number, count in enumerate(waiting) if not count]
    for number in free:  # grows while it is walked
        for other in behind[number]:
            depth[other] = max(depth[other], depth[number] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                free.append(other)
    columns: list[list[int]] = [[] for _ in range(max(depth, default=0) + 1)]
    for number in range(len(boxes)):
        columns[depth[number]].append(number)
    for turn in range(ROUNDS):
        _order(columns, [list(box.after) for box in boxes] if turn % 2 == 0 else behind, turn % 2 == 1)
    return columns


def _order(columns: list[list[int]], near: Sequence[Sequence[int]], backwards: bool) -> None:
    """Let each box stand beside the middle of those that it is joined to."""
    place = {number: at / max(1, len(column) - 1) for column in columns for at, number in enumerate(column)}
    for column in reversed(columns) if backwards else columns:
        column.sort(key=lambda number: (_mean([place[other] for other in near[number]], place[number]), number))
        place |= {number: at / max(1, len(column) - 1) for at, number in enumerate(column)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


# --- for a terminal ------------------------------------------------------------------------------------


def as_text(boxes: Sequence[Box], colour: bool = False) -> str:
    """A line a step, in order, with what it comes after: reads well for any graph, in any width."""
    width = max((len(box.title) for box in boxes), default=0)
    lines = []
    columns = columns_of(boxes)
    for depth, column in enumerate(columns):
        for number in column:
            box = boxes[number]
            sign = SIGNS.get(box.state, "?")
            before = ", ".join(boxes[other].title + ("?" if other in box.dashed else "") for other in box.after)
            rail = "│ " * max(0, depth - 1) + ("└─" if depth else "")
            line = f"{rail}{sign} {box.title.ljust(width)}  {box.detail}".rstrip()
            lines.append(line + (f"  ← {before}" if len(box.after) > 1 or depth > 1 else ""))
    text = "\n".join(lines)
    return _painted(text) if colour else text


def _painted(text: str) -> str:
    codes = {"✔": "32", "✘": "31", "▶": "36", "·": "90"}
    for sign, code in codes.items():
        text = text.replace(sign, f"\x1b[{code}m{sign}\x1b[0m")
    return text


# --- Mermaid ---------------------------------------------------------------------------------------------


def as_mermaid(boxes: Sequence[Box]) -> str:
    lines = ["flowchart LR"]
    for number, box in enumerate(boxes):
        label = escape(box.title, quote=True) + (
            f"<br/><small>{escape(box.detail, quote=True)}</small>" * bool(box.detail)
        )
        lines.append(f'    s{number}["{label}"]:::{box.state}')
    for number, box in enumerate(boxes):
        lines += [f"    s{other} {'-.->' if other in box.dashed else '-->'} s{number}" for other in box.after]
    for state, (fill, line) in COLOURS.items():
        lines.append(f"    classDef {state} fill:{fill},stroke:{line},color:#222")
    return "\n".join(lines) + "\n"


# --- SVG -----------------------------------------------------------------------------------------------------

BOX_HEIGHT, GAP_X, GAP_Y, MARGIN, LETTER = 46, 56, 18, 16, 7.3


def as_svg(boxes: Sequence[Box], title: str = "") -> str:
    """A picture of its own: no style sheet, no script, readable on light and on dark pages."""
    columns = columns_of(boxes)
    widths = [
        max((max(len(boxes[n].title) * LETTER + 44, len(boxes[n].detail) * 6.0 + 24) for n in column), default=0)
        for column in columns
    ]
    height = max((len(column) * (BOX_HEIGHT + GAP_Y) - GAP_Y for column in columns), default=0)
    spots: dict[int, tuple[float, float, float]] = {}
    left = float(MARGIN)
    for column, width in zip(columns, widths, strict=True):
        top = MARGIN + (height - (len(column) * (BOX_HEIGHT + GAP_Y) - GAP_Y)) / 2
        for at, number in enumerate(column):
            spots[number] = (left, top + at * (BOX_HEIGHT + GAP_Y), width)
        left += width + GAP_X
    size = (left - GAP_X + MARGIN, height + 2 * MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]:.0f}" height="{size[1]:.0f}"'
        f' viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" font-family="ui-sans-serif, system-ui, sans-serif">',
        f"<title>{escape(title or 'workflow')}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#8a8a84"/></marker></defs>',
        f'<rect width="{size[0]:.0f}" height="{size[1]:.0f}" rx="10" fill="#ffffff"/>',
    ]
    parts += [
        _line(spots[other], spots[number], other in box.dashed)
        for number, box in enumerate(boxes)
        for other in box.after
    ]
    parts += [_drawn(box, *spots[number]) for number, box in enumerate(boxes)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(start: tuple[float, float, float], stop: tuple[float, float, float], dashed: bool) -> str:
    x1, y1 = start[0] + start[2], start[1] + BOX_HEIGHT / 2
    x2, y2 = stop[0], stop[1] + BOX_HEIGHT / 2
    bend = max(24.0, (x2 - x1) / 2)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<path d="M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2 - 2:.1f} {y2:.1f}"'
        f' fill="none" stroke="#8a8a84" stroke-width="1.4"{dash} marker-end="url(#tip)"/>'
    )


def _drawn(box: Box, left: float, top: float, width: float) -> str:
    fill, line = COLOURS.get(box.state, COLOURS["blocked"])
    title, detail = escape(box.title), escape(box.detail)
    middle = top + (20 if detail else 28)
    text = f'<text x="{left + 30:.1f}" y="{middle:.1f}" font-size="13" font-weight="600" fill="#222">{title}</text>'
    if detail:
        text += f'<text x="{left + 12:.1f}" y="{top + 36:.1f}" font-size="11" fill="#555">{detail}</text>'
    sign = escape(SIGNS.get(box.state, "?"))
    return (
        f'<g><rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="8" fill="{fill}"'
        f' stroke="{line}" stroke-width="1.4"/>'
        f'<text x="{left + 12:.1f}" y="{middle:.1f}" font-size="13" fill="{line}">{sign}</text>{text}</g>'
    )
