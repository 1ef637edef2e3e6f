"""The fingerprint of an error: the same text for errors that differ only in numbers, ids and quoted values.

The patterns are the one source: the engine replaces with them (`fingerprint_of`), and the pipeline's column is made
from them (`spark/lake/silver.py`). So they are written in what Python's and Java's regular expressions mean alike:
ASCII classes are spelled out, and `\\b`, `\\d` and `\\s`, which differ, are not used.
"""

import re
from functools import lru_cache

WORD = "[0-9A-Za-z_]"
HEX = "[0-9a-fA-F]"
SPACE = r"[ \t\n\x0b\f\r]"

PATTERNS: tuple[tuple[str, str], ...] = (
    (f"{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}}", "<uuid>"),
    (f"(?<!{WORD})0x{HEX}+(?!{WORD})", "<hex>"),
    (f"(?<!{WORD}){HEX}{{16,}}(?!{WORD})", "<hex>"),
    ("'[^']*'", "'…'"),
    ('"[^"]*"', '"…"'),
    ("[0-9]+", "#"),
    (f"{SPACE}+", " "),
)
"""Parts in which otherwise equal errors differ, and their placeholders, in the order in which they are replaced."""

FINGERPRINT_CHARS = 200
"""A fingerprint is cut to this length."""

GROUPS_MAX = 1_000
"""Groups of errors that are kept apart in one queue. Errors beyond them are only counted."""

_COMPILED = [(re.compile(pattern), stands) for pattern, stands in PATTERNS]


@lru_cache(maxsize=512)
def fingerprint_of(error_class: str, error: str) -> str:
    """The fingerprint of an error; empty if there is neither a class nor a text."""
    text = error
    for pattern, stands in _COMPILED:
        text = pattern.sub(stands, text)
    text = text.strip(" ") if text else ""
    if error_class and error:
        return f"{error_class}: {text}"[:FINGERPRINT_CHARS]
    return (error_class or text)[:FINGERPRINT_CHARS]
