"""The time of a seat begins with the clock of PostgreSQL, however long the answer was on its way."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from stoker.journal.postgres import store

AHEAD_MS = 1_000_000


class Far:
    """A PostgreSQL whose answers take these times to come back, in seconds, and a clock that only they move."""

    def __init__(self, *back_s: float) -> None:
        self.now_s, self._back_s = 100.0, list(back_s)

    def __call__(self, url: str) -> "Far":
        return self

    def errors(self) -> Any:
        return nullcontext()

    @contextmanager
    def connect(self) -> Iterator["Far"]:
        yield self
        self.now_s += 3.0  # leaving takes its time, too

    def execute(self, statement: str) -> Any:
        at = round(self.now_s * 1_000) + AHEAD_MS
        self.now_s += self._back_s.pop(0)
        return SimpleNamespace(fetchone=lambda: (at,))


@pytest.mark.parametrize(
    ("back_s", "late_ms"), [((0.0,), 0), ((4.0, 0.02), 10), ((4.0, 2.0, 0.4, 6.0, 1.0), 200)], ids=str
)
def test_a_late_answer_does_not_make_the_clock_late(
    monkeypatch: pytest.MonkeyPatch, back_s: tuple[float, ...], late_ms: int
):
    """At most by half of the time that the quickest answer took. A seat whose clock was seconds behind took acks of
    leases that were over, and ran delayed jobs late.
    """
    far = Far(*back_s)
    monkeypatch.setattr(store, "Database", far)
    monkeypatch.setattr(store, "time", SimpleNamespace(monotonic=lambda: far.now_s))
    found = store.time_ms("")
    assert round(far.now_s * 1_000) + AHEAD_MS - found == late_ms
