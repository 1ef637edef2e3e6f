"""The checker sees what it is there to see."""

import pytest

from stoker.model.events import Event, EventKind
from tests.worker_kill.checker import CLOCK_MS, wrongs
from tests.worker_kill.scene import Note

JOB = 64


def event(kind: EventKind, at: int, attempt: int = 1) -> Event:
    return Event(shard=0, sequence=at, index=0, at=at, kind=kind, tenant="default", queue="q", job=JOB, attempt=attempt)


def note(what: str, at: int, attempt: int = 1, token: int = 1, job: int = JOB) -> Note:
    return Note(what, job, token, attempt, at, 1)


STARTED, RETRYING, COMPLETED = EventKind.STARTED, EventKind.RETRYING, EventKind.COMPLETED
TWO = [event(STARTED, 1_000), event(RETRYING, 2_000), event(STARTED, 3_000, 2), event(COMPLETED, 4_000, 2)]
RIGHT = [note("begin", 1_001), note("begin", 3_001, 2, 2), note("end", 3_999, 2, 2)]


def test_a_job_that_was_lost_once_and_then_completed_is_right():
    assert wrongs({JOB: TWO}, RIGHT) == []


@pytest.mark.parametrize(
    ("events", "notes", "word"),
    [
        (TWO[:3], RIGHT, "unfinished"),
        (
            [*TWO, event(STARTED, 5_000, 3), event(COMPLETED, 5_001, 3)],
            [*RIGHT, note("end", 5_000, 3, 3)],
            "unfinished",
        ),
        (TWO, [*RIGHT, note("begin", 3_002, 2, 2)], "repeated"),
        (TWO, [*RIGHT, note("begin", 2_000 + CLOCK_MS + 1, 1, 9)], "outside"),
        (TWO, [*RIGHT, note("begin", 3_001, 7, 9)], "invented"),
        (TWO, [*RIGHT, note("begin", 1_000, job=128)], "invented"),
        (TWO, RIGHT[:2], "unproved"),
    ],
)
def test_each_wrong_is_found(events: list[Event], notes: list[Note], word: str):
    assert any(line.startswith(word) for line in wrongs({JOB: events}, notes))
