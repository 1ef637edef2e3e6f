"""Graphs of steps: which stand in which column, as a list for a terminal and as Mermaid.

It takes boxes and the numbers of those that each comes after, and knows nothing of queues. Steps stand in columns, each
right of all that it comes after; inside a column they are ordered so that few lines cross. Graphs of letters are drawn
in `sketch.py`, pictures in `picture.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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


SIGNS = {"completed": "✔", "failed": "✘", "running": "▶", "blocked": "○"}
COLOURS = {
    "completed": ("#e7f5ec", "#2f8f5b"),
    "failed": ("#fdecea", "#c0392b"),
    "running": ("#e8f1fb", "#2f6fb3"),
    "blocked": ("#f4f4f2", "#8a8a84"),
}
"""Fill and line of a box, by its state."""

MEMBERS_MAX = 3
"""Of steps that are shown as one, so many are named."""
COLUMN_MAX = 40
"""Boxes above each other in a picture; of more, those that are alike are shown as one."""

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


# --- steps that are shown as one -----------------------------------------------------------------------


def gathered(boxes: Sequence[Box]) -> list[Box]:
    """Steps side by side, with the same before and behind them, as one box."""
    behind: dict[int, list[tuple[int, bool]]] = {}
    for number, box in enumerate(boxes):
        for other in box.after:
            behind.setdefault(other, []).append((number, other in box.dashed))
    kinds: dict[object, list[int]] = {}
    for number, box in enumerate(boxes):
        kinds.setdefault((box.after, box.dashed, tuple(behind.get(number, ()))), []).append(number)
    place = {number: at for at, members in enumerate(kinds.values()) for number in members}
    return [_together([boxes[number] for number in members], place) for members in kinds.values()]


def _together(members: Sequence[Box], place: Mapping[int, int]) -> Box:
    first = members[0]
    after = tuple(dict.fromkeys(place[number] for number in first.after))
    dashed = tuple(dict.fromkeys(place[number] for number in first.dashed))
    if len(members) == 1:
        return replace(first, after=after, dashed=dashed)
    states = [box.state for box in members]
    state = next(state for state in ("failed", "running", "blocked", "completed", first.state) if state in states)
    names = ", ".join(box.title for box in members[:MEMBERS_MAX]) + (", …" if len(members) > MEMBERS_MAX else "")
    told = ", ".join(f"{states.count(one):,} {one}" for one in dict.fromkeys(states))
    return Box(f"{len(members):,} steps: {told}", names, state, after, dashed)


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
    codes = {"✔": "32", "✘": "31", "▶": "36", "○": "90"}
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
