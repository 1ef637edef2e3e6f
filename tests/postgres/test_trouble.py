"""PostgreSQL away, restarted, with its backends ended, its answers lost; and an owner that sleeps or dies."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.postgres.database import Database
from stoker.journal.postgres.seats import Seats
from stoker.journal.postgres.writer import LogWriter
from stoker.model.errors import Unavailable
from stoker.model.replies import Settled
from tests.crash.zygote import the_zygote
from tests.journal.toy_roles import PATIENCE_S, until
from tests.postgres.roles import serve
from tests.postgres.seat import SMALL, Seat, carried_out, new_cluster, outcome
from tests.postgres_server import PostgresServer
from tests.soaking import SOAKS


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One that may be stopped."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def own_cluster(own_server: PostgresServer) -> Iterator[str]:
    with own_server.connect() as connection:
        connection.execute("DROP DATABASE IF EXISTS own WITH (FORCE)")
        connection.execute("CREATE DATABASE own")
    yield new_cluster(own_server.url("own"))
    for seat in list(Seat.opened):
        seat.abandon()


class Pushers:
    """Threads that push, and note what was answered."""

    def __init__(self, seat: Seat, count: int = 4) -> None:
        self.seat = seat
        self.answered: list[int] = []
        self.errors: list[object] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            found = outcome(self.seat.push)
            if isinstance(found, list):
                self.answered += found
            else:
                self.errors.append(found)
                self._ended.wait(0.01)

    def until_more(self, count: int = 50) -> None:
        goal = len(self.answered) + count
        until(lambda: len(self.answered) >= goal or self.seat.broker.failure)
        assert not self.seat.broker.failure

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def check_whole(seat: Seat, pushed: Pushers) -> None:
    """What was answered is there, and nothing else, now and after a restart."""
    seat.close()
    again = Seat(seat.url)
    found: list[int] = []
    while page := again.client.pull("q", 1_000).ids:
        found += page
    again.close()
    assert sorted(found) == sorted(pushed.answered)
    assert all(isinstance(error, Unavailable) for error in pushed.errors)


def test_a_restart_of_postgresql_loses_and_replays_nothing(own_server: PostgresServer, own_cluster: str):
    seat = Seat(own_cluster)
    pushed = Pushers(seat)
    for _ in range(20 if SOAKS else 2):
        pushed.until_more()
        own_server.restart("immediate")
    pushed.until_more()
    pushed.end()
    assert not seat.broker.failure
    check_whole(seat, pushed)


def test_backends_that_are_ended_lose_nothing(own_server: PostgresServer, own_cluster: str):
    seat = Seat(own_cluster)
    pushed = Pushers(seat)
    for _ in range(200 if SOAKS else 15):
        pushed.until_more(10)
        carried_out(
            own_cluster,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'stoker%'",
        )
    pushed.until_more()
    pushed.end()
    check_whole(seat, pushed)


def test_while_postgresql_is_away_pushes_are_refused_and_acks_wait(own_server: PostgresServer, own_cluster: str):
    seat = Seat(own_cluster)
    seat.push(2)
    delivery = seat.client.pull("q")
    own_server.stop("immediate")
    acked = list[object]()
    waiter = threading.Thread(target=lambda: acked.append(outcome(lambda: seat.client.ack_batch(delivery.ids))))
    waiter.start()
    until(lambda: seat.journal.absent)
    refused = outcome(seat.push)
    assert isinstance(refused, Unavailable), refused
    assert "does not answer" in str(refused)
    assert not acked
    own_server.start()
    waiter.join(PATIENCE_S)
    assert isinstance(acked[0], Settled)
    until(lambda: not isinstance(outcome(seat.push), Unavailable))
    seat.close()


def test_a_seat_that_nobody_took_goes_on_after_more_than_a_lease(own_server: PostgresServer, own_cluster: str):
    seat = Seat(own_cluster)
    (job,) = seat.push()
    own_server.stop("immediate")
    until(lambda: not seat.store.lease.is_valid())
    own_server.start()
    until(seat.store.lease.is_valid)
    until(lambda: not seat.journal.absent)
    assert seat.jobs() == [job]
    assert seat.push()
    seat.close()


# --- an answer that is lost --------------------------------------------------------------------------


@pytest.mark.parametrize("written", [True, False], ids=["after the commit", "before it"])
def test_an_append_whose_answer_is_lost_happens_once(cluster: str, monkeypatch: pytest.MonkeyPatch, written: bool):
    seat = Seat(cluster)
    real, lost = LogWriter._append_once, list[bool]()

    def append(self: LogWriter, connection: Any, rows: Any) -> None:
        if not lost:
            lost.append(True)
            heads = dict(self._heads)
            if written:
                real(self, connection, rows)
            self._heads = heads  # the answer was lost, so it knows nothing of it
            raise psycopg.OperationalError("the connection broke")
        real(self, connection, rows)

    monkeypatch.setattr(LogWriter, "_append_once", append)
    (job,) = seat.push()
    assert lost
    later = seat.push(2)
    assert seat.jobs() == [job, *later]
    seat.abandon()
    again = Seat(cluster, instead_of=seat)
    assert again.jobs() == [job, *later]
    again.close()


def test_an_append_that_is_still_under_way_is_waited_for(cluster: str, monkeypatch: pytest.MonkeyPatch):
    """The first attempt holds its locks while the second one, over another connection, comes."""
    seat = Seat(cluster)
    blocker = psycopg.connect(cluster)
    blocker.execute("SELECT 1 FROM stoker.heads FOR UPDATE")
    waiting = threading.Thread(target=seat.push)
    waiting.start()
    asks = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%matching%'"
    until(lambda: carried_out(cluster, asks) == [(1,)])
    seat.journal.writer.link.hang_up(0.0)  # the connection breaks, the statement goes on
    until(lambda: carried_out(cluster, asks)[0][0] >= 2)
    blocker.rollback()
    blocker.close()
    waiting.join(PATIENCE_S)
    assert len(seat.jobs()) == 1
    seat.push()
    seat.close()


def test_a_backend_that_hangs_is_left_and_what_it_does_later_is_refused(cluster: str):
    seat = Seat(cluster)
    seat.push()
    assert seat.journal.writer.link._connection is not None
    backend = seat.journal.writer.link._connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        later = seat.push(2)
    finally:
        os.kill(backend, signal.SIGCONT)
    until(lambda: not carried_out(cluster, f"SELECT 1 FROM pg_stat_activity WHERE pid = {backend}"))
    assert len(seat.jobs()) == 3
    assert seat.push()[0] > later[-1]
    seat.close()
    again = Seat(cluster)
    assert len(again.jobs()) == 4
    again.close()


def test_a_close_does_not_wait_for_a_backend_that_hangs(cluster: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stoker.journal.postgres.journal.CLOSE_S", 0.1)
    seat = Seat(cluster)
    (job,) = seat.push()
    asking = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%asked%'"
    asking += " AND datname = current_database() AND pid != pg_backend_pid()"
    stopped = [pid for (pid,) in carried_out(cluster, asking)]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        pushing = threading.Thread(target=lambda: outcome(seat.push), daemon=True)
        pushing.start()
        until(lambda: seat.journal.ticket() > seat.journal._tickets.reached)
        seat.close()
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    again = Seat(cluster)
    assert job in again.jobs()
    again.close()


# --- an owner that sleeps ----------------------------------------------------------------------------


def test_an_owner_that_was_stopped_for_longer_than_its_lease_does_nothing_any_more(cluster: str):
    with the_zygote().fork(serve, cluster) as child:
        epoch, jobs = child.receive()
        os.kill(child.pid, signal.SIGSTOP)
        watching = Seats(Database(cluster), "other", "")
        until(lambda: not watching.read()[0].is_held)
        new = Seat(cluster)
        assert new.epoch > epoch
        later = new.push(2)
        os.kill(child.pid, signal.SIGCONT)
        child.send("read")
        assert child.receive() in ("Unknown", "Unavailable")
        child.send("push")
        assert child.receive() in ("Unknown", "Unavailable")
        assert new.jobs() == [*jobs, *later]
        new.close()
        watching.close()


# --- death after each statement ----------------------------------------------------------------------


class Died(BaseException):
    """The process is gone, between two statements."""


class Deadline:
    """Lets so many statements of a thread through, and then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        self.used = 0
        self.is_over = False
        thread = threading.get_ident()
        real = psycopg.Connection.execute

        def execute(connection: Any, *given: Any, **named: Any) -> Any:
            if threading.get_ident() == thread:
                if self.left == 0:
                    self.is_over = True
                    raise Died
                self.left -= 1
                self.used += 1
            return real(connection, *given, **named)

        monkeypatch.setattr(psycopg.Connection, "execute", execute)


def life(cluster: str, before: Seat | None, answered: list[int]) -> Seat:
    """Open a seat, push, go on in another partition, make a checkpoint: any statement of this may be the last."""
    seat = Seat(cluster, LocalSettings(journal=SMALL), instead_of=before)
    for _ in range(4):
        answered += seat.client.push_batch("q", [b"x" * 400] * 20).ids
        seat.upkeep(2)
    return seat


def test_a_death_after_any_statement_costs_nothing_that_was_answered(cluster: str, monkeypatch: pytest.MonkeyPatch):
    answered: list[int] = []
    first = life(cluster, None, answered)
    first.abandon()
    before, left, is_over = first, 1, True
    while is_over:
        with monkeypatch.context() as patch:
            patch.setattr("stoker.journal.postgres.store.IDLE_S", 3_600.0)  # the upkeep is this thread's
            deadline = Deadline(patch, left)
            known = list(Seat.opened)
            try:
                seat: Seat | None = life(cluster, before, answered)
            except Died:
                seat = next((each for each in Seat.opened if each not in known), None)
        if seat is not None:
            seat.abandon()
            before = seat
        again = Seat(cluster, instead_of=taken_now(cluster))
        found = {view.id for view in again.client.browse(queue="q", limit=1_000).jobs}
        total = again.client.get_counts("q").waiting
        assert total >= len(answered)
        assert found
        again.abandon()
        before, left, is_over = again, left + (1 if SOAKS else 9), deadline.is_over
    last = Seat(cluster, instead_of=before)
    delivered: list[int] = []
    while page := last.client.pull("q", 1_000).ids:
        delivered += page
    assert set(delivered) >= set(answered)
    last.close()


def taken_now(cluster: str) -> Any:
    """Stands for the process that has the seat, and is dead."""

    class Gone:
        epoch = carried_out(cluster, "SELECT epoch FROM seats")[0][0]

    return Gone
