"""None of the contradictions is forgotten: each has a test, or a later part of Stoker that will bring it."""

import re
from types import ModuleType

import pytest

from tests.contradictions import LATER, test_bunqueue, test_codeq, test_fastq, test_flashq

SYSTEMS: list[tuple[ModuleType, str, int]] = [
    (test_flashq, "F", 30),
    (test_codeq, "C", 16),
    (test_bunqueue, "B", 11),
    (test_fastq, "Q", 15),
]

EVERY = {f"{letter}{number}" for _, letter, count in SYSTEMS for number in range(1, count + 1)}


def claims_of(module: ModuleType) -> dict[str, object]:
    return {name: member for name, member in vars(module).items() if name.startswith("test_") and callable(member)}


def ruled_out_by(module: ModuleType) -> set[str]:
    named = (re.match(r"test_([a-z]\d+)_", name) for name in claims_of(module))
    return {match[1].upper() for match in named if match}


def test_every_contradiction_has_a_test_or_a_later_part():
    found = set().union(*(ruled_out_by(module) for module, _, _ in SYSTEMS))
    assert len(EVERY) == 72
    assert sorted(EVERY - found - LATER.keys()) == []
    assert sorted(found & LATER.keys()) == [], "it has come: take it off the list of later ones"
    assert sorted((found | LATER.keys()) - EVERY) == [], "there is no such contradiction"


@pytest.mark.parametrize(("module", "letter", "count"), SYSTEMS, ids=[letter for _, letter, _ in SYSTEMS])
def test_each_test_says_what_was_wrong(module: ModuleType, letter: str, count: int):
    assert len(ruled_out_by(module)) > count // 2
    for name, member in claims_of(module).items():
        assert name.startswith(f"test_{letter.lower()}"), name
        assert member.__doc__, f"{name} says nothing of what {module.__name__} rules out"
