"""Suggest the name that a misspelt one was meant to be."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, or nothing if none is near."""
    from difflib import get_close_matches  # only needed when something is wrong

    return (get_close_matches(name, list(known), 1) or [""])[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'priority'?`, as the end of a sentence, or nothing if no known name is near."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
