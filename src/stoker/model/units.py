"""Durations and sizes as people write them: `500ms`, `30s`, `1h30m`; `10MB`, `64MiB`.

For configuration, the command line and decorators. Commands and options only know whole numbers.
"""

import math
import re
from typing import Protocol

from stoker.model.limits import DURATION_MS_MAX


class TimeSpan(Protocol):
    """A `timedelta`, which this package does not import."""

    def total_seconds(self) -> float: ...


Duration = str | int | float | TimeSpan
"""A duration as users give it to decorators and outcomes: text with units, seconds, or a timedelta."""

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
    """Milliseconds. The ValueError says what was expected."""
    return _total(text, DURATIONS_MS, '"500ms", "30s", "5m" or "1h30m"')


def duration_ms(value: Duration) -> int:
    """Whole milliseconds. They are rounded up, so that a short delay does not become 0. Raises ValueError."""
    if isinstance(value, bool) or not (isinstance(value, str | int | float) or hasattr(value, "total_seconds")):
        raise ValueError(f'{value!r} is not a duration: expected text like "30s", seconds, or a timedelta')
    if isinstance(value, str):
        plain = parse_plain(value)
        ms = parse_duration_ms(value) if plain is None else plain * 1_000
    else:
        ms = (value if isinstance(value, int | float) else value.total_seconds()) * 1_000
    if not 0 <= ms <= DURATION_MS_MAX:
        raise ValueError(f"{value!r} is not a duration: expected 0 to ten years")
    return math.ceil(ms)


def parse_bytes(text: str) -> int | float:
    """Bytes: a KB is 1,000 and a KiB 1,024. The ValueError says what was expected."""
    return _total(text, SIZES, '"64MiB" or "10MB"')


def _total(text: str, units: dict[str, int], example: str) -> int | float:
    pieces = PIECE.findall(text) if PIECES.fullmatch(text.strip()) else []
    if not pieces or any(unit.lower() not in units for _, unit in pieces):
        raise ValueError(f"expected text like {example}")
    return sum((float(number) if "." in number else int(number)) * units[unit.lower()] for number, unit in pieces)
