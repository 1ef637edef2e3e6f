"""Two processes open one seat at the same time: whatever the order of their statements, one of them serves it."""

import threading
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from stoker.model.errors import StokerError
from tests.journal.toy_roles import PATIENCE_S
from tests.postgres.seat import Seat, carried_out, outcome
from tests.postgres.test_trouble import taken_now
from tests.soaking import SOAKS


class Opener:
    """Opens the seat in a thread of its own, which stops before a statement until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str, stop_before: int, instead_of: Any) -> None:
        self.seat: Seat | None = None
        self.error: Exception | None = None
        self.left = stop_before
        self.has_stopped, self.may_go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._open, args=(url, instead_of), daemon=True)
        real = psycopg.Connection.execute

        def execute(connection: Any, *given: Any, **named: Any) -> Any:
            if threading.current_thread() is self._thread:
                if self.left == 0:
                    self.has_stopped.set()
                    assert self.may_go_on.wait(PATIENCE_S)
                self.left -= 1
            return real(connection, *given, **named)

        monkeypatch.setattr(psycopg.Connection, "execute", execute)
        self._thread.start()

    def _open(self, url: str, instead_of: Any) -> None:
        try:
            self.seat = Seat(url, instead_of=instead_of)
        except StokerError as error:
            self.error = error
        finally:
            self.has_stopped.set()

    def go_on(self) -> None:
        self.may_go_on.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def test_of_two_openers_one_serves_the_seat(cluster: str, monkeypatch: pytest.MonkeyPatch):
    """The second comes before any statement of the first; where the first holds a lock, it waits or comes again."""
    owner = Seat(cluster)
    jobs = owner.push(3)
    owner.abandon()
    statement, is_over, refused = 1, False, 0
    while not is_over:
        with monkeypatch.context() as patch:
            first = Opener(patch, cluster, statement, taken_now(cluster))
            assert first.has_stopped.wait(PATIENCE_S)
            is_over = first.seat is not None
            second = opened(cluster)
            first.go_on()
        second = second or opened(cluster)
        assert second is not None
        jobs += second.push()
        if first.seat is not None:  # it came in before the second, which has replaced it
            assert isinstance(outcome(first.seat.push), StokerError)
            first.seat.abandon()
        else:
            refused += 1
        assert second.jobs() == jobs
        assert carried_out(cluster, "SELECT epoch FROM seats") == [(second.epoch,)]
        second.abandon()
        statement += 1 if SOAKS else 3
    assert refused, "a first opener was overtaken"


def opened(cluster: str) -> Seat | None:
    """By a process that knows that the one before is dead; None if it was held up for too long."""
    with suppress(StokerError):
        return Seat(cluster, instead_of=taken_now(cluster))
    return None
