"""What one seat promises, each in a small story. `test_stories.py` runs them, also over planted bugs."""

from collections.abc import Callable
from threading import Thread

import pytest

from stoker.brokers.local import LocalSettings
from stoker.journal.postgres import seats
from stoker.journal.postgres.checkpointing import SeatCheckpoint
from stoker.journal.postgres.seats import LEASE_S
from stoker.journal.postgres.writer import LostEnd
from stoker.model.errors import NotFound, StokerError, Unavailable, Unknown
from tests.journal.toy_roles import PATIENCE_S, until
from tests.postgres.seat import SMALL, Seat, carried_out, copied, outcome

Story = Callable[[str, pytest.MonkeyPatch], None]


def forget_time(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is not renewed, and does not end: however slow the machine is, the owner acts as if it had the seat."""
    monkeypatch.setattr(seat.store.lease, "_renew", lambda: None)
    monkeypatch.setattr(seat.store.lease, "_valid_until", float("inf"))


def a_stale_owner_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    carried_out(url, "ALTER TABLE log_model DROP CONSTRAINT log_model_pkey")  # the fence alone must hold
    old = Seat(url)
    kept = old.push(3)
    forget_time(old, monkeypatch)  # nor does it hear that it has lost the seat
    new = Seat(url, instead_of=old)
    later = new.push(2)
    assert isinstance(outcome(lambda: old.push()), (Unknown, Unavailable))
    assert old.broker.failure
    assert new.jobs() == [*kept, *later]
    assert new.push()
    old.close()
    new.close()
    again = Seat(url)
    assert again.jobs()[:5] == [*kept, *later]
    again.close()


def an_append_in_flight_is_read_by_the_next_owner(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.journal.postgres import store

    old = Seat(url)
    forget_time(old, monkeypatch)
    real, late = store._recovered, list[int]()

    def slowly(*given: object) -> object:
        found = real(*given)  # type: ignore[arg-type]
        if not late:
            late.extend(old.push())
        return found

    monkeypatch.setattr(store, "_recovered", slowly)
    new = Seat(url, instead_of=old)
    assert late
    assert new.jobs() == late
    new.close()
    old.close()


def a_lost_end_is_noticed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = Seat(url)
    kept = seat.push(2)
    restore = copied(url)
    seat.push(2)
    carried_out(url, *restore)
    assert isinstance(outcome(lambda: seat.push()), (Unknown, Unavailable))
    assert isinstance(seat.journal.failure, LostEnd)
    assert "no longer has what it had confirmed" in seat.broker.failure
    seat.close()
    again = Seat(url)
    assert again.jobs() == kept
    assert again.push()[0] > kept[-1] + (1 << 24), "numbers that were given out are not given again"
    again.close()


def nothing_is_read_after_the_lease(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ahead(monkeypatch)
    seat = Seat(url)
    seat.push()
    renewed = seat.store.lease.when_renewed
    monkeypatch.setattr(seat.store.lease, "_renew", lambda: None)
    clock.ahead_s += LEASE_S
    read = list[object]()
    readers = [
        Thread(target=lambda: read.append(outcome(seat.client.list_queues)), daemon=True),
        Thread(target=lambda: read.append(outcome(lambda: seat.client.get_job(12345))), daemon=True),
    ]
    for reader in readers:
        reader.start()
    until(lambda: len(seat.journal._tickets._waiting) + len(read) == 2)
    assert not read, "another process may have the seat"
    monkeypatch.undo()  # the lease is renewed after all
    until(seat.store.lease.is_valid)
    assert renewed is not None
    for reader in readers:
        reader.join(PATIENCE_S)
    queues, missing = sorted(read, key=lambda found: isinstance(found, StokerError))
    assert not isinstance(queues, StokerError)
    assert isinstance(missing, NotFound)
    seat.close()


def a_busy_broker_keeps_its_lease(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = Seat(url)
    with seat.broker.guard:
        before = seat.store.lease._valid_until
        until(lambda: seat.store.lease._valid_until > before + seats.RENEW_S / 2)
    seat.close()


def a_checkpoint_never_goes_backwards(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seat = Seat(url, LocalSettings(journal=SMALL))
    assert seat.store.retention is not None
    for _ in range(10):
        seat.client.push_batch("q", [b"x" * 400] * 20)
        seat.upkeep()
    assert seat.store.retention.made
    behind = [max(0, end - 5) for end in seat.store.retention.position]
    old = SeatCheckpoint(position=behind, dropped=[])
    request = seat.store.retention._ask()
    seat.store.retention._enforce(request, old)
    in_force = carried_out(url, "SELECT position FROM checkpoints")[0][0]
    assert in_force == seat.store.retention.position
    seat.close()
    Seat(url).close()


STORIES: list[Story] = [
    a_stale_owner_is_refused,
    an_append_in_flight_is_read_by_the_next_owner,
    a_lost_end_is_noticed,
    nothing_is_read_after_the_lease,
    a_busy_broker_keeps_its_lease,
    a_checkpoint_never_goes_backwards,
]


class Ahead:
    """The clock of the machine, which tests move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        real = seats.boottime
        for module in ("seats", "lease"):
            monkeypatch.setattr(f"stoker.journal.postgres.{module}.boottime", lambda: real() + self.ahead_s)
