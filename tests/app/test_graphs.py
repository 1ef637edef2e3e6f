"""Workflows drawn in a terminal, as SVG and as Mermaid."""

import itertools
import random
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from stoker.app.graphs.boxes import Box, merge_alike
from stoker.app.graphs.layout import Layout
from stoker.app.graphs.mermaid import as_mermaid
from stoker.app.graphs.svg import Picture, as_svg
from stoker.app.graphs.terminal import as_graph, as_list
from tools.make_pictures import pictures

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
    one, many, last = merge_alike(WIDE)
    assert (one.title, many.title, last.after) == ("list", "20 steps: 20 completed", (1,))
    assert merge_alike(DIAMOND) == DIAMOND


def followed(boxes: list[Box]) -> set[tuple[str, str]]:
    """The edges that a reader finds by following the lines from each box down to the tips."""
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
def test_following_the_lines_finds_every_edge(seed: int):
    boxes = [replace(box, dashed=()) for box in graph_of(seed)]
    expected = {(f"n{other}", box.title) for box in boxes for other in box.after}
    assert expected <= followed(boxes)


def test_a_list_tells_what_each_step_comes_after():
    assert as_list(DIAMOND).splitlines() == [
        "✔ listing  files: completed",
        "└─✘ resize   images, group of 1,000: 998 done, 2 failed",
        "└─▶ scan     safety: active",
        "│ └─○ report   mail: blocked  ← resize?, scan",
    ]
    assert "└─\x1b[31m✘\x1b[0m resize" in as_list(DIAMOND, colour=True)
    assert as_list([Box("✔ done")], colour=True) == "\x1b[90m○\x1b[0m ✔ done"


# --- the layout, and pictures --------------------------------------------------------------------------


def graph_of(seed: int) -> list[Box]:
    rng = random.Random(seed)
    return [
        Box(f"n{number}", after=after, dashed=after[:1])
        for number in range(rng.randrange(2, 12))
        for after in [tuple(sorted(rng.sample(range(number), min(number, rng.choice((0, 1, 1, 2))))))]
    ]


@pytest.mark.parametrize("seed", range(10))
def test_no_spot_hides_another_and_lines_go_from_layer_to_layer(seed: int):
    boxes = graph_of(seed)
    layout = Layout(boxes, [46] * len(boxes), line_size=10, gap=18)
    layer_of = {number: at for at, layer in enumerate(layout.layers) for number in layer}
    assert sorted(layer_of) == list(range(len(layout.spots)))
    assert all(layer_of[end] - layer_of[n] == 1 for n, spot in enumerate(layout.spots) for end in spot.below)
    for layer in layout.layers:
        spots = [layout.spots[number] for number in layer]
        assert all(one.end + 18 <= other.start for one, other in itertools.pairwise(spots))
        assert all(spot.start >= 0 and spot.end <= layout.size for spot in spots)


def test_a_line_is_dashed_only_while_all_that_share_it_are():
    boxes = [Box("a"), Box("b"), Box("c", after=(1,)), Box("d", after=(0, 1, 2), dashed=(0,))]
    layout = Layout(boxes, [1] * 4)
    (crossing,) = range(4, len(layout.spots))
    assert [layout.is_dashed([pair]) for pair in ((0, crossing), (1, crossing), (crossing, 3))] == [True, False, False]


def test_columns_of_a_picture_do_not_overlap():
    picture = Picture([*LONG, Box("d", "a long text " * 4, after=(0, 2), dashed=(0,))])
    edges = [picture.columns[layer[0]] for layer in picture.layout.layers]
    assert all(right < left for (_, right), (left, _) in itertools.pairwise(edges))
    assert edges[0][0] >= 0
    assert edges[-1][1] <= picture.width


def test_the_pictures_of_the_guide_are_those_that_are_drawn():
    for path, picture in pictures().items():
        assert path.read_text(encoding="utf-8") == picture, "run `python tools/make_pictures.py`"


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


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("clean-up of v1.2, 3 files", "clean-up of v1.2, 3 files"),
        ("日本語, snake_case", "日本語, snake_case"),
        ('"] --> x["', "#34;#93; --#62; x#91;#34;"),
        ("`<b>#quot;\n", "#96;#60;b#62;#35;quot#59;#10;"),
        ("1. fetch", "1#46; fetch"),
        ("- *a* _b_", "#45; #42;a#42; #95;b#95;"),
    ],
)
def test_no_name_breaks_mermaid(name: str, written: str):
    lines = as_mermaid([Box(name, name, "odd")]).splitlines()
    assert lines[1] == f'    s0["{written}<br/>{written}"]:::blocked'


def test_mermaid_of_very_many_lines_puts_those_together_that_are_alike():
    """Mermaid refuses graphs with more than 500 lines."""
    text = as_mermaid([Box("list"), *(Box(f"s{n}", after=(0,)) for n in range(501))])
    assert "501 steps: 501 blocked" in text
    assert text.count("-->") == 1
