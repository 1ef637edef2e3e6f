"""The keys as docs/redis.md names them, each as a pattern that a real key must fit."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "redis.md"
PARTS = {
    "LEN:SENDER": r"\d+:.+",
    "LEN:QUEUE": r"\d+:.+",
    "LEN:GROUP": r"\d+:.+",
    "PRIORITY": r"-?\d+",
    "ID": r"\d+",
    "B": r"\d+",
    "C": r"\d+",
    "Q": r"q:\d+:.+?",
}
NEVER_THERE = {"void", "room"}


def patterns() -> dict[str, re.Pattern[str]]:
    """By the name in the page, without the prefix `P`."""
    rows = [line for line in PAGE.read_text().split("## The keys")[1].split("\n## ")[0].splitlines() if "| `P " in line]
    names = [name for row in rows for name in re.findall(r"`P ([^`]+)`", row.split("|")[1])]
    return {name: re.compile(pattern_of(name)) for name in names if name not in NEVER_THERE}


def pattern_of(name: str) -> str:
    said = "|".join(re.escape(part) for part in PARTS)
    return re.sub(rf"(?<![A-Za-z])({said})(?![A-Za-z])", lambda found: PARTS[found[1]], name) + r"\Z"
