"""Formats text for a terminal: times, durations, sizes and tables, with colours.

It needs only click, so that short answers come quickly. Modules that draw or animate use rich.
"""

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from datetime import datetime

import click

from stoker.model import wording
from stoker.model.wording import lasting, many

NONE = "-"
"""Shown where there is no value."""

ROOM = 24
"""The narrowest column for wrapped text; narrower text goes below its row."""
BELOW = 6
"""The indent of text below its row."""

STATE_COLOURS = {
    "waiting": "cyan",
    "delayed": "blue",
    "blocked": "magenta",
    "active": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "expired": "bright_black",
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def when(ms: int, now: int | None = None) -> str:
    """A time, absolute and relative: `2026-01-31 12:00:00 (3m 10s ago)`."""
    if not ms:
        return NONE
    return f"{clock(ms)} ({away(ms, now)})"


def clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000).strftime("%Y-%m-%d %H:%M:%S")


def away(ms: int, now: int | None = None) -> str:
    return wording.away(ms, now_ms() if now is None else now)


def averages(completed: int, wait_ms: int, run_ms: int) -> str:
    """How long completed jobs waited and ran; empty if there are none."""
    return f"waited {lasting(wait_ms / completed)}, ran {lasting(run_ms / completed)}" if completed else ""


def wait(count: int) -> str:
    """`1 job waits`, `2 jobs wait`."""
    return f"{many(count, 'job')} {'waits' if count == 1 else 'wait'}"


def plain(text: str) -> str:
    """Text from outside on one line, with control characters escaped, so that no payload moves the cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def plain_lines(text: str) -> list[str]:
    return [plain(line.replace("\t", "    ")) for line in text.splitlines()]


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def state(name: str) -> str:
    return click.style(name, fg=STATE_COLOURS.get(name))


def facts(pairs: Iterable[tuple[str, str]], indent: str = "  ") -> str:
    """One name and value on each line; empty values are left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{indent}{click.style(f'{name:<{width}}', dim=True)}  {value}" for name, value in shown)


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[str] = ()) -> str:
    """A table. Columns in `right` are right-aligned; a last column that is too wide is wrapped."""
    at_right = set(right)
    widths = [max([len(head), *(seen(row[place]) for row in rows)]) for place, head in enumerate(heads)]
    lines = [[click.style(head, bold=True) if head else "" for head in heads], *rows]
    width = terminal_width()
    return "\n".join(_line(line, heads, widths, at_right, width) for line in lines)


def _line(
    cells: Sequence[str], heads: Sequence[str], widths: Sequence[int], at_right: set[str], width: int | None
) -> str:
    padded = []
    for cell, head, wide in zip(cells, heads, widths, strict=True):
        space = " " * (wide - seen(cell))
        padded.append(space + cell if head in at_right else cell + space)
    whole = "  ".join(padded).rstrip()
    if width is None or seen(whole) <= width:
        return whole
    beside = "".join(f"{cell}  " for cell in padded[:-1])
    if not seen(cells[-1]):
        return beside.rstrip()
    if width - seen(beside) >= ROOM:
        return hanging(beside, cells[-1], width)
    return f"{beside.rstrip()}\n{hanging(' ' * BELOW, cells[-1], width)}"


def hanging(beside: str, text: str, width: int | None = None) -> str:
    """Text after a prefix, wrapped to the terminal's width, with further lines below the first."""
    width = terminal_width() if width is None else width
    if width is None or seen(beside) + seen(text) <= width:
        return beside + text
    lines = textwrap.wrap(click.unstyle(text), max(ROOM, width - seen(beside)), break_on_hyphens=False) or [""]
    return f"\n{' ' * seen(beside)}".join([beside + lines[0], *lines[1:]])


def terminal_width() -> int | None:
    """None without a terminal: programs that read the output want whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def seen(text: str) -> int:
    """The visible width, without colour codes."""
    return len(click.unstyle(text))
