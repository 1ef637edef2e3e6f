"""Graphs of steps as letters, as pictures and as Mermaid."""

import itertools
import random
import re
from xml.etree import ElementTree

import pytest

from stoker.app.drawing import Box, as_mermaid, columns_of, gathered
from stoker.app.picture import as_svg, placed, with_stations
from stoker.app.sketch import as_graph

CHAIN = [Box("fetch", "web: completed", "completed"), Box("parse", "cpu: active", "running", (0,), (0,))]
DIAMOND = [
    Box("listing", "files: completed", "completed"),
    Box("resize", "images, group of 1,000: 998 done, 2 failed", "failed", (0,)),
    Box("scan", "safety: active", "running", (0,)),
    Box("report", "mail: blocked", "blocked", (1, 2), (1,)),
]
LONG = [Box("a"), Box("b", after=(0,)), Box("c", after=(1, 0))]
WIDE = [
    Box("list"),
    *(Box(f"step {n}", "q: done", "completed", (0,)) for n in range(20)),
    Box("join", after=(*range(1, 21),)),
]

DRAWN = {
    "a chain, whose failure is tolerated": (
        CHAIN,
        """
╭──────────────────╮
│ ✔ fetch          │
│   web: completed │
╰─────────┬────────╯
          ┆
          ▼
  ╭───────────────╮
  │ ▶ parse       │
  │   cpu: active │
  ╰───────────────╯
""",
    ),
    "a diamond": (
        DIAMOND,
        """
                               ╭────────────────────╮
                               │ ✔ listing          │
                               │   files: completed │
                               ╰──────────┬─────────╯
                        ╭─────────────────┴──────────────────╮
                        ▼                                    ▼
╭──────────────────────────────────────────────╮   ╭──────────────────╮
│ ✘ resize                                     │   │ ▶ scan           │
│   images, group of 1,000: 998 done, 2 failed │   │   safety: active │
╰───────────────────────┬──────────────────────╯   ╰─────────┬────────╯
                        ╰┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄╮                  │
                                          ├──────────────────╯
                                          ▼
                                 ╭─────────────────╮
                                 │ ○ report        │
                                 │   mail: blocked │
                                 ╰─────────────────╯
""",
    ),
    "a line that passes a box": (
        LONG,
        """
    ╭─────╮
    │ ○ a │
    ╰──┬──╯
   ╭───┴──╮
   ▼      │
╭─────╮   │
│ ○ b │   │
╰──┬──╯   │
   ╰───┬──╯
       ▼
    ╭─────╮
    │ ○ c │
    ╰─────╯
""",
    ),
    "many of the same kind": (
        WIDE,
        """
          ╭────────╮
          │ ○ list │
          │        │
          ╰────┬───╯
               │
               ▼
╭─────────────────────────────╮
│ ✔ 20 steps: 20 completed    │
│   step 0, step 1, step 2, … │
╰──────────────┬──────────────╯
               │
               ▼
          ╭────────╮
          │ ○ join │
          │        │
          ╰────────╯
""",
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_graph_is_drawn_with_letters(name: str):
    boxes, picture = DRAWN[name]
    assert f"\n{as_graph(boxes, 100)}\n" == picture


def test_a_narrow_terminal_gets_narrow_boxes_and_a_very_narrow_one_nothing():
    narrow = as_graph(DIAMOND, 60)
    assert narrow is not None
    assert max(map(len, narrow.splitlines())) <= 60
    assert "images, group of 1,000:" in narrow
    assert "998 done, 2 failed" in narrow
    assert as_graph(DIAMOND, 20) is None
    assert as_graph([], 100) is None


def test_colours_say_how_steps_stand():
    coloured = as_graph(DIAMOND, 100, colour=True)
    assert coloured is not None
    assert "\x1b[31m│ ✘ resize" in coloured
    assert "\x1b[32m│ ✔ listing" in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == as_graph(DIAMOND, 100)


def test_steps_that_are_alike_are_shown_as_one():
    one, many, last = gathered(WIDE)
    assert (one.title, many.title, last.after) == ("list", "20 steps: 20 completed", (1,))
    assert gathered(DIAMOND) == DIAMOND


def followed(boxes: list[Box]) -> set[tuple[str, str]]:
    """The edges that somebody sees who follows the lines from each box down to the tips."""
    text = as_graph(boxes, 10_000)
    assert text is not None
    rows = text.splitlines()
    at = {(row, column): letter for row, line in enumerate(rows) for column, letter in enumerate(line)}
    titles = {
        (row, column): found[1]
        for row, line in enumerate(rows)
        for found in re.finditer(r"│ ○ (n\d+) +│", line)
        for column in range(found.start(), found.end())
    }
    ways = {letter: number for number, letter in enumerate(" ╵╷│╴╯╮┤╶╰╭├─┴┬┼")}
    edges = set()
    for (row, column), letter in at.items():
        if letter != "┬" or (row - 1, column) not in titles:
            continue
        seen, open_ = set(), [(row + 1, column, 1)]
        while open_:
            here = open_.pop()
            y, x, came = here
            if here in seen:
                continue
            seen.add(here)
            if at.get((y, x)) == "▼":
                edges.add((titles[row - 1, column], titles[y + 2, x]))
                continue
            way = ways.get(at.get((y, x), " "), 0)
            if came in (4, 8) and way == 3:  # something upright crosses: the line goes on behind it
                way = 12
            for out, dy, dx, enters in ((1, -1, 0, 2), (2, 1, 0, 1), (4, 0, -1, 8), (8, 0, 1, 4)):
                if way & out and out != came and out != 1:
                    open_.append((y + dy, x + dx, enters))
    return edges


@pytest.mark.parametrize("seed", range(30))
def test_whoever_follows_the_lines_finds_every_edge(seed: int):
    rng = random.Random(seed)
    boxes = [
        Box(f"n{number}", after=tuple(sorted(rng.sample(range(number), min(number, rng.choice((0, 1, 1, 2)))))))
        for number in range(rng.randrange(2, 12))
    ]
    expected = {(f"n{other}", box.title) for box in boxes for other in box.after}
    assert expected <= followed(boxes)


# --- pictures ------------------------------------------------------------------------------------------


def test_no_box_of_a_picture_hides_a_line_or_another_box():
    boxes = with_stations([*LONG, Box("d", after=(0, 2), dashed=(0,))])
    spots, width, height = placed(boxes, 4)
    columns = columns_of(boxes)
    assert all(
        abs(at[other] - at[n]) == 1 for at in [place(columns)] for n, box in enumerate(boxes) for other in box.after
    )
    for column in columns:
        tops = [(spots[number].top, spots[number].top + spots[number].height) for number in column]
        assert all(stop < start for (_, stop), (start, _) in itertools.pairwise(tops))
    assert all(
        spot.left >= 0 and spot.left + spot.width <= width and spot.top + spot.height <= height for spot in spots
    )


def place(columns: list[list[int]]) -> dict[int, int]:
    return {number: at for at, column in enumerate(columns) for number in column}


def test_a_picture_is_whole_whatever_the_names_are():
    boxes = [Box('<b>&"', "x" * 500), Box("日本語", "", "odd", (0,), (0,))]
    root = ElementTree.fromstring(as_svg(boxes, "a <title>"))
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert '<b>&"' in texts
    assert "日本語" in texts
    assert max(map(len, texts)) == 60
    assert "stroke-dasharray" in as_svg(boxes)


def test_a_picture_of_very_many_steps_puts_those_together_that_are_alike():
    many = [Box("list"), *(Box(f"s{n}", after=(0,)) for n in range(500))]
    root = ElementTree.fromstring(as_svg(many))
    assert len(list(root.iter("{http://www.w3.org/2000/svg}g"))) == 2


def test_mermaid_names_steps_and_policies():
    text = as_mermaid(DIAMOND)
    assert "s1 -.-> s3" in text
    assert "s2 --> s3" in text
    assert ":::failed" in text
