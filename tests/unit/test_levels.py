"""What a command gets of the levels that a journal has."""

from typing import Any, cast

import pytest

from stoker.journal.contract import Journal
from stoker.journal.memory import MemoryJournal
from stoker.journal.sqlite import SqliteJournal
from stoker.model.replies import LEVELS, Level
from stoker.runtime.levels import Levels


class Elsewhere:
    """Every level waits, and there is only the strongest: as in a database that flushes each commit."""

    levels = ("fsync",)
    at_once = ()


def levels_of(journal: Any, usual: Level | None = None) -> Levels:
    return Levels(cast("Journal", journal), usual)


@pytest.mark.parametrize(
    ("journal", "given"),
    [
        (MemoryJournal, ("memory", "memory", "memory")),
        (SqliteJournal, ("memory", "commit", "fsync")),
        (Elsewhere, ("fsync", "fsync", "fsync")),
    ],
)
def test_a_command_gets_the_strongest_up_to_what_it_asks_for_or_the_weakest(journal: Any, given: tuple[Level, ...]):
    assert tuple(map(levels_of(journal).given, LEVELS)) == given


def test_who_asks_for_nothing_gets_commit_as_far_as_there_is_one():
    assert [levels_of(journal).usual for journal in (MemoryJournal, SqliteJournal, Elsewhere)] == [
        "memory",
        "commit",
        "fsync",
    ]


def test_replies_wait_for_a_ticket_at_levels_that_are_not_reached_at_once():
    assert [levels_of(journal).later for journal in (MemoryJournal, SqliteJournal, Elsewhere)] == [
        set(),
        {"fsync"},
        {"fsync"},
    ]
