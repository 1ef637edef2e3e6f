"""Durations and sizes as people write them: `500ms`, `30s`, `1h30m`; `10MB`, `64MiB`.

For configuration, the command line and decorators. Commands and options only know whole numbers.
"""

import re

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


def parse_bytes(text: str) -> int | float:
    """Bytes; KB are 1,000 of them and KiB 1,024. Raises ValueError with what was expected."""
    return _total(text, SIZES, '"64MiB" or "10MB"')


def _total(text: str, units: dict[str, int], example: str) -> int | float:
    pieces = PIECE.findall(text) if PIECES.fullmatch(text.strip()) else []
    if not pieces or any(unit.lower() not in units for _, unit in pieces):
        raise ValueError(f"expected text like {example}")
    return sum((float(number) if "." in number else int(number)) * units[unit.lower()] for number, unit in pieces)
