"""The steps of a drawing: their text, the look of each state, and merging of similar steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stoker.model.replies import StepView, WorkflowView


@dataclass(frozen=True, slots=True)
class Box:
    """One step: its text, its state, and the numbers of the boxes that it comes after."""

    title: str
    detail: str = ""
    state: str = "blocked"
    after: tuple[int, ...] = ()
    dashed: tuple[int, ...] = ()
    """The numbers in `after` whose failure is tolerated."""
    link: str = ""
    """Where a click on the box leads, in a page."""


class StateStyle(NamedTuple):
    """How a state is shown. Colours are pairs: the fill of a box and its line."""

    sign: str
    ansi: str
    light: tuple[str, str]
    dark: tuple[str, str]


LOOKS = {
    "completed": StateStyle("✔", "32", ("#e7f5ec", "#2f8f5b"), ("#12291c", "#4cc38a")),
    "failed": StateStyle("✘", "31", ("#fdecea", "#c0392b"), ("#33161a", "#f2777a")),
    "running": StateStyle("▶", "36", ("#e8f1fb", "#2f6fb3"), ("#10243d", "#6cb6ff")),
    "blocked": StateStyle("○", "90", ("#f4f4f2", "#8a8a84"), ("#22262c", "#9aa4b0")),
}
UNKNOWN = LOOKS["blocked"]._replace(sign="?")
"""For states that a newer server may add."""

MEMBERS_MAX = 3
"""How many members of a merged box are named."""


def look_of(box: Box) -> StateStyle:
    return LOOKS.get(box.state, UNKNOWN)


def shorten(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def merge_alike(boxes: Sequence[Box]) -> list[Box]:
    """Merge steps into one box if they come after the same steps and before the same steps."""
    behind: dict[int, list[tuple[int, bool]]] = {}
    for number, box in enumerate(boxes):
        for other in box.after:
            behind.setdefault(other, []).append((number, other in box.dashed))
    alike: dict[object, list[int]] = {}
    for number, box in enumerate(boxes):
        alike.setdefault((box.after, box.dashed, tuple(behind.get(number, ()))), []).append(number)
    place = {number: at for at, members in enumerate(alike.values()) for number in members}
    return [_merged([boxes[number] for number in members], place) for members in alike.values()]


def _merged(members: Sequence[Box], place: Mapping[int, int]) -> Box:
    first = members[0]
    after = tuple(dict.fromkeys(place[number] for number in first.after))
    dashed = tuple(dict.fromkeys(place[number] for number in first.dashed))
    if len(members) == 1:
        return replace(first, after=after, dashed=dashed)
    states = [box.state for box in members]
    state = next(state for state in ("failed", "running", "blocked", "completed", first.state) if state in states)
    names = ", ".join(box.title for box in members[:MEMBERS_MAX]) + (", …" if len(members) > MEMBERS_MAX else "")
    counts = ", ".join(f"{states.count(one):,} {one}" for one in dict.fromkeys(states))
    return Box(f"{len(members):,} steps: {counts}", names, state, after, dashed)


def boxes_of(view: WorkflowView, link: Callable[[StepView], str] | None = None) -> list[Box]:
    """The steps of a workflow."""
    return [
        Box(
            step.name if step.name and step.key.isdigit() else step.key,
            detail_of(step),
            step.state,
            tuple(edge.step for edge in step.after),
            tuple(edge.step for edge in step.after if edge.on_failure == "continue"),
            link(step) if link is not None else "",
        )
        for step in view.steps
    ]


def detail_of(step: StepView) -> str:
    """The queue of a step, and its jobs by state."""
    if step.open and not step.count:
        return f"{step.queue}: to be filled"
    counts = {name: getattr(step.counts, name) for name in step.counts.__struct_fields__}
    some = [f"{number:,} {name}" for name, number in counts.items() if number]
    if len(some) == 1 and step.count == 1:
        return f"{step.queue}: {some[0].partition(' ')[2]}"
    done = ", ".join(some).replace("completed", "done")
    return f"{step.queue}, group of {step.count:,}: {done}" if some else step.queue
