"""Suggest the name that a misspelt name was meant to be."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most similar to this one, or an empty text if none is."""
    from difflib import get_close_matches  # only needed for errors

    return (get_close_matches(name, list(known), 1) or [""])[0]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence, such as `; did you mean 'priority'?`, or an empty text if no known name is similar."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
