"""The tree of errors is the one that is drawn, and codes are stable names."""

import re
from collections.abc import Iterator

import pytest

import stoker.model.errors as module
from stoker.model.errors import BY_CODE, Refused, StokerError, Unavailable
from stoker.records.codec import UnreadableRecord

DRAWN = re.compile(r"^ {4}(?P<lead>(?:[|` ][ -]{2} )*)(?P<name>[A-Z]\w+)(?: +(?P<rest>.*))?$")


def drawn() -> Iterator[tuple[int, str, str]]:
    """(depth, class, what stands beside it) for each line of the drawing."""
    assert module.__doc__ is not None
    for line in module.__doc__.splitlines():
        found = DRAWN.match(line)
        if found:
            yield len(found["lead"]) // 4, found["name"], found["rest"] or ""


def real(root: type[StokerError], depth: int = 0) -> Iterator[tuple[int, type[StokerError]]]:
    """Depth first, in the order of definition; other modules have errors of their own."""
    yield depth, root
    for child in root.__subclasses__():
        if child.__module__ == module.__name__:
            yield from real(child, depth + 1)


def everything(root: type[StokerError]) -> Iterator[type[StokerError]]:
    yield root
    for child in root.__subclasses__():
        yield from everything(child)


def test_the_drawn_tree_is_the_real_tree():
    assert [(depth, name) for depth, name, _ in drawn()] == [
        (depth, kind.__name__) for depth, kind in real(StokerError)
    ]


def test_the_drawing_names_the_code_of_every_leaf_and_says_what_it_means():
    for _, name, beside in drawn():
        kind = getattr(module, name)
        if not kind.__subclasses__():
            code, _, meaning = beside.partition(" ")
            assert code == kind.code
            assert meaning.strip(), f"{name} is drawn without a word about it"


def test_every_code_is_unique():
    """A transport may have words of its own for a code; what the codes are, is said once."""
    own_words = ("stoker.server.", "stoker.wire.")
    codes = [kind.code for kind in everything(StokerError) if not kind.__module__.startswith(own_words)]
    assert UnreadableRecord.code in codes
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", [kind for _, kind in real(StokerError)], ids=lambda kind: kind.__name__)
def test_a_code_on_the_wire_finds_its_class(kind: type[StokerError]):
    assert re.fullmatch(r"[a-z_]+", kind.code)
    assert BY_CODE[kind.code] is kind


def test_retrying_helps_against_the_servers_condition_and_not_against_the_callers_request():
    for kind in everything(StokerError):
        if issubclass(kind, Refused):
            assert not kind.retryable
        if issubclass(kind, Unavailable):
            assert kind.retryable


def test_the_message_is_what_the_error_says():
    assert module.NotFound("job 7 not found").message == "job 7 not found"
