"""Clients in four processes work on one directory, and its owner is killed again and again: nothing lost, nothing
doubled, one owner at a time, and no error for those who live on.

Each process that is killed is replaced. The checker of histories reads what all of them asked and heard.
"""

import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from stoker.model import commands as c
from tests.histories.history import Entry, Intent, Refused, Unsure
from tests.histories.recorder import recorded
from tests.histories.scene import opened
from tests.soaking import SOAKS

KILLS = 120 if SOAKS else 6
SENT_AGAIN = (c.Push, c.PushBatch, c.Stage, c.Publish, c.Pull)
"""What a client sends again by itself when the owner dies."""


class Round:
    """One directory, through the deaths of many owners."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder, opened("shared directory", 1, Path(folder)) as scene:
            scene.play(*["kill the broker"] * KILLS)
            self.checker = scene.check()
            self.errors = errors_of_pushes_and_pulls(recorded(Path(folder)))
            self.clients = [*scene.clients, *scene.dead]


def errors_of_pushes_and_pulls(entries: list[Entry]) -> list[str]:
    asked: dict[str, c.Command[object]] = {}
    found: list[str] = []
    for entry in entries:
        if isinstance(entry, Intent):
            asked[entry.client] = entry.command
        elif isinstance(entry, (Refused, Unsure)) and isinstance(asked[entry.client], SENT_AGAIN):
            found.append(f"{entry.client}: {entry.code}: {entry.message}")
    return found


@cache
def play() -> Round:
    return Round()


@pytest.fixture
def played() -> Round:
    return play()


def test_nothing_is_lost_or_doubled(played: Round):
    assert dict(played.checker.found) == {}
    assert played.checker.counts["acknowledged"] > KILLS * 50


def test_nobody_who_lives_on_is_told_of_an_error(played: Round):
    assert played.errors == []


def test_there_was_one_owner_at_a_time(played: Round):
    owners = sorted((client for client in played.clients if client.owns_at), key=lambda client: client.owns_at or 0)
    assert len(owners) > KILLS, "each of those killed was an owner, and the last one was not killed"
    for owner, next_owner in pairwise(owners):
        if owner.killed_at is not None:
            assert next_owner.owns_at is not None
            assert next_owner.owns_at > owner.killed_at
