"""Keeps what was measured, and makes a page of it.

`benchmarks/figures.json` has the newest figures of each part and of each other queue, with date and machine.
`docs/figures.md` is made from it, and so are the tables that other pages show between `<!-- table: PART -->` and
`<!-- end -->`; the part `peers` is the table of other queues. A test fails when a page is not up to date:
`python -m benchmarks.figures` makes them.
"""

import os
import platform
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.measure import Row, short, spread
from benchmarks.parts import PARTS

ROOT = Path(__file__).parents[1]
DATA = ROOT / "benchmarks" / "figures.json"
DOCS = ROOT / "docs"
PAGE = DOCS / "figures.md"
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A table in a page, with its part."""
PEERS = "peers"

HEAD = """# Figures

The newest figures of every benchmark. [Benchmarks](benchmarks.md) says what each part does and how to read it.
`make bench ARGS=--keep` and `make bench-peers ARGS=--keep` measure again and write this page.

A figure is the median of the runs, with the lowest and the highest in brackets. The floor is the least work that
Python, the disk or the network must do for the same jobs, measured in the same run; the ratio is the result.
"""
PEERS_HEAD = """
## Other queues (`make bench-peers`)

The same work through each queue: W1 many jobs pushed in bulk, W2 single pushes of ten callers, W3 single pushes of one
caller, W4 jobs that only count through the workers, W5 memory of a waiting job, W6 from a push to its handler, idle.
Redis writes nothing to disk; Stoker commits every push and every acknowledgement.
"""


class PartFigures(msgspec.Struct):
    """What the runs of one part found."""

    date: str
    machine: str
    runs: list[list[Row]]
    remark: str = ""


class PeerFigures(msgspec.Struct):
    """What the runs of one other queue found, as its cells."""

    date: str
    machine: str
    title: str
    runs: int
    cells: dict[str, str]
    remark: str = ""


class Figures(msgspec.Struct):
    """Everything that was kept."""

    parts: dict[str, PartFigures] = {}
    peers: dict[str, PeerFigures] = {}


def load() -> Figures:
    return msgspec.json.decode(DATA.read_bytes(), type=Figures) if DATA.exists() else Figures()


def save(figures: Figures) -> None:
    DATA.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
    for path, text in pages(figures):
        path.write_text(text)


def keep_part(name: str, runs: list[list[Row]], remark: str) -> None:
    figures = load()
    figures.parts[name] = PartFigures(today(), machine(), runs, remark)
    save(figures)


def keep_peer(name: str, title: str, runs: int, cells: dict[str, str], remark: str) -> None:
    figures = load()
    figures.peers[name] = PeerFigures(today(), machine(), title, runs, cells, remark)
    save(figures)


def today() -> str:
    return time.strftime("%Y-%m-%d")


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def counted(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs, median and range"


# --- the pages -------------------------------------------------------------------------------------------------------


def pages(figures: Figures) -> Iterator[tuple[Path, str]]:
    """The page of all figures, and every page that shows a table, each as it should be."""
    yield PAGE, page(figures)
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if TABLE.search(text):
            yield path, with_tables(text, figures)


def with_tables(text: str, figures: Figures) -> str:
    """A page with the newest figures in its tables."""

    def newest(place: "re.Match[str]") -> str:
        lines = peers_table(figures.peers) if place[2] == PEERS else part_table(place[2], figures.parts[place[2]])
        return "\n".join([place[1], *lines, place[3]])

    return TABLE.sub(newest, text)


def page(figures: Figures) -> str:
    parts = [line for name in PARTS if name in figures.parts for line in section(name, figures.parts[name])]
    peers = [PEERS_HEAD, *peers_table(figures.peers)] if figures.peers else []
    return "\n".join([HEAD, *parts, *peers]).rstrip() + "\n"


def section(name: str, found: PartFigures) -> Iterator[str]:
    yield f"## {PARTS[name].title} (`{name}`)\n"
    yield from part_table(name, found)


def part_table(name: str, found: PartFigures) -> Iterator[str]:
    yield f"Payloads of 100 bytes; {PARTS[name].how}; {counted(len(found.runs))}. {found.date}; {found.machine}.\n"
    if found.remark:
        yield f"{found.remark}.\n"
    yield "| | figure | floor | ratio | |\n|---|---|---|---|---|"
    yield from map(line, zip(*found.runs, strict=True))
    yield ""


def line(rows: Sequence[Row]) -> str:
    first, floor, ratio = rows[0], "", ""
    if first.floor:
        floor = short(sorted(row.floor for row in rows)[len(rows) // 2])
        ratio = spread([row.rate / row.floor for row in rows])
    cells = (first.what.strip(), f"{spread([row.rate for row in rows])} {first.unit}", floor, ratio, rows[-1].note)
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def peers_table(found: dict[str, PeerFigures]) -> Iterator[str]:
    """One line for each queue, and below it how each was run."""
    columns = list(next(iter(found.values())).cells)
    yield "| | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns)
    for name, peer in found.items():
        yield f"| {name} | " + " | ".join(peer.cells[column] for column in columns) + " |"
    yield ""
    for name, peer in found.items():
        remark = f"; {peer.remark}" if peer.remark else ""
        yield f"- {name}: {peer.title}; {counted(peer.runs)}; {peer.date}; {peer.machine}{remark}"
    yield ""


if __name__ == "__main__":
    save(load())
