"""Durations and sizes as people write them: `500ms`, `30s`, `1h30m`; `10MB`, `64MiB`.

For configuration, the command line and decorators. Commands and options only know whole numbers.
"""

import math
import re
from typing import Protocol

from stoker.model.limits import DURATION_MS_MAX


class Span(Protocol):
    """A `timedelta`, which this package does not know."""

    def total_seconds(self) -> float: ...


Duration = str | int | float | Span
"""As people give it to decorators and outcomes: text with units, seconds, or a timedelta."""

DURATIONS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

SIZES = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "tb": 1_000_000_000_000,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}

PLAIN = re.compile(r"[0-9][0-9_]*(\.[0-9]+)?")
PIECES = re.compile(r"(?:[0-9]+(?:\.[0-9]+)? *[A-Za-z]+ *)+")
PIECE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]+)")


def parse_plain(text: str) -> int | float | None:
    """A number without a unit, or None."""
    text = text.strip()
    if not PLAIN.fullmatch(text):
        return None
    return float(text) if "." in text else int(text)


def parse_duration_ms(text: str) -> int | float:
    """Milliseconds. Raises ValueError with what was expected."""
    return _total(text, DURATIONS_MS, '"500ms", "30s", "5m" or "1h30m"')


def duration_ms(value: Duration) -> int:
    """Whole milliseconds, rounded up: what was meant to wait must not come out as 0. Raises ValueError."""
    if isinstance(value, bool) or not (isinstance(value, str | int | float) or hasattr(value, "total_seconds")):
        raise ValueError(f'{value!r} is no duration: expected text like "30s", seconds, or a timedelta')
    if isinstance(value, str):
        plain = parse_plain(value)
        ms = parse_duration_ms(value) if plain is None else plain * 1_000
    else:
        ms = (value if isinstance(value, int | float) else value.total_seconds()) * 1_000
    if not 0 <= ms <= DURATION_MS_MAX:
        raise ValueError(f"{value!r} is no duration: expected 0 to ten years")
    return math.ceil(ms)


def parse_bytes(text: str) -> int | float:
    """Bytes; KB are 1,000 of them and KiB 1,024. Raises ValueError with what was expected."""
    return _total(text, SIZES, '"64MiB" or "10MB"')


def _total(text: str, units: dict[str, int], example: str) -> int | float:
    pieces = PIECE.findall(text) if PIECES.fullmatch(text.strip()) else []
    if not pieces or any(unit.lower() not in units for _, unit in pieces):
        raise ValueError(f"expected text like {example}")
    return sum((float(number) if "." in number else int(number)) * units[unit.lower()] for number, unit in pieces)
