"""The time of a seat begins with the clock of PostgreSQL, however long the answer was on its way."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stoker.journal.postgres import store
from stoker.journal.postgres.database import Database

SLOW_S = 1.0


class SlowAnswers(Database):
    """The first answers arrive late."""

    late = 1

    @contextmanager
    def connect(self, **given: Any) -> Iterator[Any]:  # type: ignore[override]
        yield self

    def execute(self, statement: Any) -> Any:
        with super().connect() as connection:
            done = connection.execute(statement)
        if SlowAnswers.late:
            SlowAnswers.late -= 1
            time.sleep(SLOW_S)
        return done


@pytest.mark.parametrize("late", [1, store.TIME_TRIES])
def test_a_late_answer_does_not_make_the_clock_late(cluster: str, monkeypatch: pytest.MonkeyPatch, late: int):
    """A seat whose clock was seconds behind took acks of leases that were over, and ran delayed jobs late."""
    monkeypatch.setattr(store, "Database", SlowAnswers)
    monkeypatch.setattr(SlowAnswers, "late", late)
    began, found, ended = time.time(), store.time_ms(cluster), time.time()
    assert SlowAnswers.late == 0
    assert ended - began >= late * SLOW_S
    assert ended * 1_000 - found < SLOW_S * 600, "at worst half of the time that the quickest answer took"
