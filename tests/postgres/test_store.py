"""One seat in use: what a restart finds, what is read back, what is let go."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from stoker.brokers.local import LocalSettings
from stoker.engine.state_dump import dump
from stoker.journal.patience import patiently
from stoker.journal.postgres import seats, tail
from stoker.journal.postgres.journal import PostgresJournal
from stoker.journal.sqlite import JournalSettings
from stoker.model import commands as c
from stoker.model.errors import CannotOpen, InUse, Unavailable, Unknown
from tests.postgres.seat import SMALL, Seat, carried_out, outcome

GAP = 1 << 24


def pictures(seat: Seat) -> list[object]:
    with patiently():
        return [dump(shard) for shard in seat.broker.runtime.shards]


def test_a_seat_that_was_handed_over_in_good_order_goes_on_where_it_was(cluster: str):
    first = Seat(cluster)
    jobs = first.push(5)
    first.client.ack(first.client.pull("q").ids[0])
    batch = first.client.push_batch("bulk", [b"a" * 500, b"b" * 500]).ids
    before = pictures(first)
    first.close()
    second = Seat(cluster)
    assert pictures(second) == before
    assert second.jobs() == jobs
    assert [job.payload for job in second.client.pull("bulk", 2)] == [b"a" * 500, b"b" * 500]
    assert second.push()[0] - jobs[-1] < GAP, "no numbers are left out"
    assert batch
    second.close()


def test_a_seat_that_was_left_by_a_death_leaves_numbers_out(cluster: str):
    first = Seat(cluster)
    jobs = first.push(3)
    token = first.client.pull("q").token
    first.abandon()
    second = Seat(cluster, instead_of=first)
    assert second.jobs() == jobs
    assert second.push()[0] > jobs[-1] + GAP
    assert second.client.pull("q").token > token + GAP
    second.close()


def test_of_two_openers_one_gets_the_seat(cluster: str):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: outcome(lambda: Seat(cluster)), range(2)))
    opened = [each for each in found if isinstance(each, Seat)]
    newest = max(opened, key=lambda seat: seat.epoch)
    for old in opened:  # its lease may have ended before the other one asked: then it is stale
        assert old is newest or isinstance(outcome(old.push), (Unknown, Unavailable))
    assert all("is held by the node 'test' at here:1" in str(each) for each in found if isinstance(each, InUse))
    newest.close()


def test_of_two_that_replace_a_dead_process_one_gets_the_seat(cluster: str):
    dead = Seat(cluster)
    jobs = dead.push(3)
    dead.abandon()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: outcome(lambda: Seat(cluster, instead_of=dead)), range(2)))
    newest = max((each for each in found if isinstance(each, Seat)), key=lambda seat: seat.epoch)
    assert newest.jobs() == jobs
    newest.close()


def test_an_opener_that_sees_clocks_differ_waits_a_whole_lease(cluster: str, monkeypatch: pytest.MonkeyPatch):
    """By the clock of PostgreSQL the lease has ended, but that clock cannot be trusted: the holder may live."""
    dead = Seat(cluster)
    jobs = dead.push(2)
    dead.abandon()
    carried_out(cluster, "UPDATE seats SET until = clock_timestamp() - interval '1 s'")
    began, looks, real = seats.boottime(), list[float](), seats.Seats.read

    def read(self: seats.Seats) -> list[seats.SeatRow]:
        found = real(self)
        self.clocks_differ = True
        looks.append(seats.boottime())
        return found

    monkeypatch.setattr(seats.Seats, "read", read)
    again = Seat(cluster)
    assert looks[-1] - began > seats.LEASE_S
    assert again.jobs() == jobs
    again.close()


def test_a_seat_that_does_not_exist_is_named(cluster: str):
    from stoker.brokers.local import open_seat

    with pytest.raises(CannotOpen, match="no seat 7"):
        open_seat(cluster, 7, "test", "")


@pytest.mark.parametrize(("setting", "level"), [("on", "fsync"), ("off", "commit"), ("local", "fsync")])
def test_a_reply_says_what_postgresql_does(cluster: str, setting: str, level: str):
    name = cluster.rpartition("/")[2]
    carried_out(cluster, f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
    seat = Seat(cluster)
    assert seat.client.push("q", b"", durability="memory").level == level
    assert seat.client.push("q", b"", durability="fsync").level == level
    seat.close()


def test_time_begins_with_the_clock_of_postgresql_and_never_goes_back(cluster: str):
    first = Seat(cluster)
    (now,) = carried_out(cluster, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0]
    assert abs(first.broker.now() - now) < 60_000
    later = now + 86_400_000
    with first.broker.guard:
        first.broker.runtime.advance(later)
        first.broker.runtime.execute("default", c.Push("q", b""), later)
    first.close()
    second = Seat(cluster)
    assert second.broker.now() >= later
    second.close()


def test_old_records_are_read_from_postgresql_in_small_pieces(cluster: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tail, "BYTES_MAX", 2_000)
    seat = Seat(cluster)
    jobs = [seat.client.push_batch("q", [b"%03d" % number * 100] * 3).ids for number in range(40)]
    shard = next(number for number in range(2) if seat.journal.last(number) > 10)
    assert not seat.journal.tail.has(shard, 1)
    events = seat.client.read_events(shard, 0, limit=1_000).events
    assert [event.job for event in events if event.kind == "pushed"] == [job for ids in jobs for job in ids]
    assert [job.payload for job in seat.client.pull("q", 120)] == [
        b"%03d" % n * 100 for n in range(40) for _ in range(3)
    ]
    seat.close()


def test_the_log_is_let_go_and_what_waits_keeps_its_payload(cluster: str):
    """Partitions that nothing needs are dropped, and one that is mostly dead is rewritten."""
    kept = JournalSettings(
        wal_bytes_max=20_000, checkpoint_bytes=40_000, checkpoint_process=False, events_bytes_max=60_000
    )
    seat = Seat(cluster, LocalSettings(journal=kept))
    waiting = seat.client.push_batch("rare", [b"w" * 300, b"v" * 300]).ids
    for _ in range(30):
        seat.client.push_batch("q", [b"x" * 400] * 20)
        delivery = seat.client.pull("q", 20)
        seat.client.ack_batch(delivery.ids, delivery.token)
        seat.upkeep()
    assert seat.store.retention is not None
    assert seat.store.retention.made > 2
    states = [state for (state,) in carried_out(cluster, "SELECT state FROM parts ORDER BY place")]
    tables = carried_out(cluster, "SELECT count(*) FROM pg_class WHERE relname ~ '^log_0_[0-9]+$'")[0][0]
    assert "sparse" in states
    assert states[-1] == "open"
    assert tables == len(states) < 20
    assert min(seat.journal.lowest(shard) for shard in range(2)) >= 1
    assert max(seat.journal.lowest(shard) for shard in range(2)) > 1
    before = pictures(seat)
    seat.close()
    again = Seat(cluster, LocalSettings(journal=kept))
    assert pictures(again) == before
    assert [job.payload for job in again.client.pull("rare", 2)] == [b"w" * 300, b"v" * 300]
    assert waiting
    again.close()


def test_a_checkpoint_is_made_by_a_process_of_its_own(cluster: str):
    kept = JournalSettings(wal_bytes_max=20_000, checkpoint_bytes=40_000)
    seat = Seat(cluster, LocalSettings(journal=kept))
    assert seat.store.retention is not None
    for _ in range(12):
        seat.client.push_batch("q", [b"x" * 400] * 20)
        seat.upkeep(1)
    seat.store.retention.wait()
    assert seat.store.retention.made, seat.store.retention.failed  # a second one, if the first was quick
    (number,) = carried_out(cluster, "SELECT number FROM checkpoints")[0]
    assert carried_out(cluster, "SELECT DISTINCT number FROM checkpoint_parts") == [(number,)]
    before = pictures(seat)
    seat.abandon()
    again = Seat(cluster, instead_of=seat)
    assert [picture["jobs"] for picture in pictures(again)] == [picture["jobs"] for picture in before]  # type: ignore[index]
    again.close()


def test_many_short_lives_come_to_a_checkpoint_too(cluster: str):
    made = 0
    for _ in range(8):
        seat = Seat(cluster, LocalSettings(journal=SMALL))
        seat.client.push_batch("q", [b"x" * 400] * 20)
        seat.upkeep()
        assert seat.store.retention is not None
        made += seat.store.retention.made
        seat.close()
    assert made


def test_many_small_records_come_to_a_checkpoint_too(cluster: str):
    kept = JournalSettings(checkpoint_records=60, checkpoint_process=False)
    seat = Seat(cluster, LocalSettings(journal=kept))
    for _ in range(5):
        seat.push(20)
        seat.upkeep()
    assert seat.store.retention is not None
    assert seat.store.retention.made
    seat.close()


def test_a_checkpoint_whose_answer_is_lost_is_followed(cluster: str, monkeypatch: pytest.MonkeyPatch):
    """What the tables say counts: the next checkpoint is made of the partitions that are there."""
    kept = JournalSettings(
        wal_bytes_max=20_000, checkpoint_bytes=40_000, checkpoint_process=False, events_bytes_max=60_000
    )
    seat = Seat(cluster, LocalSettings(journal=kept))
    retention = seat.store.retention
    assert retention is not None
    lost, real = list[int](), PostgresJournal.forget_below

    def forget(self: PostgresJournal, *given: Any) -> None:
        if len(lost) < 2:
            lost.append(1)
            raise psycopg.OperationalError("the connection broke")
        real(self, *given)

    for number in range(30):
        seat.client.push_batch("q", [b"x" * 400] * 20)
        delivery = seat.client.pull("q", 20)
        seat.client.ack_batch(delivery.ids, delivery.token)
        if number == 10:
            monkeypatch.setattr(PostgresJournal, "forget_below", forget)
        for _ in range(3):
            with suppress(psycopg.OperationalError):
                seat.store.work()
    assert len(lost) == 2
    assert retention.made > 2
    before = pictures(seat)
    seat.close()
    again = Seat(cluster, LocalSettings(journal=kept))
    assert pictures(again) == before
    again.close()


def test_what_a_dead_owner_left_half_made_is_removed(cluster: str):
    seat = Seat(cluster, LocalSettings(journal=SMALL))
    seat.push(2)
    seat.abandon()
    carried_out(
        cluster,
        "CREATE TABLE log_0_77 (LIKE log_model INCLUDING ALL)",
        "INSERT INTO checkpoint_parts VALUES (0, 99, 0, 'half')",
    )
    again = Seat(cluster, instead_of=seat)
    assert not carried_out(cluster, "SELECT 1 FROM pg_class WHERE relname = 'log_0_77'")
    assert not carried_out(cluster, "SELECT 1 FROM checkpoint_parts")
    again.close()


def test_damage_is_named(cluster: str):
    seat = Seat(cluster)
    seat.push(3)
    seat.close()
    carried_out(cluster, "UPDATE log_0_1 SET data = set_byte(data, 12, 7) WHERE first = 2")
    with pytest.raises(CannotOpen, match=r"log_0_1 in .* is damaged at shard \d sequence 2"):
        Seat(cluster)
    carried_out(cluster, "DELETE FROM log_0_1 WHERE first = 2")
    with pytest.raises(CannotOpen, match="lacks the records 2 to 2"):
        Seat(cluster)
    assert carried_out(cluster, "SELECT node FROM seats") == [("",)], "the seat is free for others"
