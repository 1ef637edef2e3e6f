"""Patterns with `*` (any characters) and `?` (one character). No pattern can make matching slow.

Between two stars there is a piece of fixed length, and its first match is as good as any later one. So matching goes
through the text once and never backtracks.
"""

import re
from collections.abc import Callable, Iterator

WILD = re.compile(r"[*?]")

Find = Callable[[str, int, int], int]
"""Finds where a piece first matches between two positions of a text, or -1."""


class Glob:
    """One pattern, to be matched with many texts."""

    def __init__(self, pattern: str) -> None:
        first, *rest = re.split(r"\*+", pattern)
        self.prefix = WILD.split(pattern, maxsplit=1)[0]
        """The beginning of every text that matches."""
        self.is_exact = self.prefix == pattern
        """Whether only one text matches: the prefix."""
        self._open = bool(rest)
        self._first, self._last = _Piece(first), _Piece(rest.pop() if rest else "")
        self._middle = [_Piece(piece) for piece in rest]
        mixed = [len(piece) for piece in re.split(r"\*+", pattern) if "?" in piece and len(piece) > piece.count("?")]
        self.weight = max(mixed, default=1)
        """How often matching may look at each character of a text."""

    def matches(self, text: str) -> bool:
        size, length = len(text), self._first.length
        if length > size or self._first.find(text, 0, length):
            return False
        if not self._open:
            return length == size
        end = size - self._last.length
        if end < length or self._last.find(text, end, size) != end:
            return False
        at = length
        for piece in self._middle:
            found = piece.find(text, at, end)
            if found < 0:
                return False
            at = found + piece.length
        return True


class _Piece:
    """A fixed number of characters, some of them `?`."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self.find: Find = _finder(text)


def _finder(text: str) -> Find:
    if "?" not in text:
        return lambda within, start, end: within.find(text, start, end)
    search = re.compile("".join(_regular(text)), re.DOTALL).search

    def find(within: str, start: int, end: int) -> int:
        found = search(within, start, end)
        return found.start() if found is not None else -1

    return find


def _regular(text: str) -> Iterator[str]:
    return ("." if character == "?" else re.escape(character) for character in text)
