"""The history of queues: sampled once a minute, kept in a bounded file of its own, read back after a restart."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.client.sync import Client
from stoker.journal.history_file import FILES, KEPT_MS, HistoryFile
from stoker.model.histograms import Histogram
from stoker.model.history import MINUTE_MS, HistoryPoint, TrendPoint
from stoker.server.history import HistorySampler
from stoker.testing import FakeClock

START = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS


class Sampled:
    """A queue whose minutes a test ends."""

    def __init__(self, broker: LocalBroker, clock: FakeClock) -> None:
        self.broker, self.clock = broker, clock
        self.client = Client(broker)
        broker.sample_history()()

    def work(self, queue: str, jobs: int, wait_ms: int = 10) -> None:
        self.client.push_batch(queue, [b""] * jobs)
        self.clock.advance(wait_ms)
        batch = self.client.pull(queue, jobs)
        self.client.ack_batch([job.id for job in batch], batch.token)

    def end_minute(self) -> None:
        self.clock.advance(MINUTE_MS - self.clock.now_ms() % MINUTE_MS)
        self.broker.sample_history()()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def memory(clock: FakeClock) -> Sampled:
    return Sampled(LocalBroker(LocalSettings(shards=4), clock), clock)


def test_each_minute_says_what_happened_in_it(memory: Sampled):
    memory.work("a", 3)
    memory.work("b", 2, wait_ms=100)
    memory.client.push("a", b"stays")
    memory.end_minute()
    memory.end_minute()
    memory.client.push("a", b"bad", max_attempts=1)
    bad = memory.client.pull("a", 2)
    for job in bad:
        memory.client.fail(job.id, bad.token, error="x")
    memory.end_minute()
    first, second, third = memory.client.get_history("a")
    assert (first.at, second.at, third.at) == (START, START + MINUTE_MS, START + 2 * MINUTE_MS)
    assert (first.pushed, first.started, first.completed, first.backlog) == (4, 3, 3, 1)
    assert (first.wait.total, first.wait.sum_ms, first.run.total) == (3, 30, 3)
    assert second == HistoryPoint(at=second.at, backlog=1)
    assert (third.pushed, third.started, third.failed, third.dead, third.completed) == (1, 2, 2, 1, 0)
    assert [point.completed for point in memory.client.get_history()] == [5, 0, 0]
    assert [point.wait.total for point in memory.client.get_history()] == [5, 0, 2]
    assert list(memory.client.as_tenant("other").get_history()) == []


def test_longer_steps_add_up(memory: Sampled):
    for jobs in range(1, 31):
        memory.work("a", jobs)
        memory.end_minute()
    minutes = memory.client.get_history("a")
    steps = memory.client.get_history("a", range_ms=86_400_000, step_ms=900_000)
    assert len(minutes) == 30
    assert sum(point.completed for point in steps) == sum(range(1, 31))
    assert all(point.at % 900_000 == 0 for point in steps)
    assert sum(point.wait.total for point in steps) == sum(point.wait.total for point in minutes)
    last = memory.client.get_history("a", range_ms=5 * MINUTE_MS)
    assert [point.completed for point in last] == [26, 27, 28, 29, 30]


def test_trends_say_of_many_queues_what_the_history_says_of_one(memory: Sampled):
    for jobs in range(1, 13):
        memory.work("a", jobs)
        memory.work("b", 2)
        memory.end_minute()
    memory.client.push("b", b"bad", max_attempts=1)
    bad = memory.client.pull("b")
    memory.client.fail(bad.ids[0], bad.token, error="x")
    memory.end_minute()
    for step in (MINUTE_MS, 5 * MINUTE_MS):
        found = memory.client.get_trends(["a", "b", "none"], step_ms=step)
        assert list(found) == ["a", "b"]
        for name, points in found.items():
            whole = memory.client.get_history(name, step_ms=step)
            ended = [TrendPoint(point.at, point.completed, point.dead) for point in whole]
            assert list(points) == ended
    assert sum(point.dead for point in memory.client.get_trends(["b"])["b"]) == 1
    assert dict(memory.client.as_tenant("other").get_trends(["a"])) == {}


def test_a_queue_made_anew_begins_at_nothing(memory: Sampled):
    memory.work("a", 5)
    memory.end_minute()
    memory.client.obliterate("a")
    memory.work("a", 2)
    memory.end_minute()
    assert [point.completed for point in memory.client.get_history("a")] == [5, 2]


def test_a_restart_loses_no_minute(tmp_path: Path, clock: FakeClock):
    """A server that is stopped stores what it has of the minute, and the next one adds the rest."""

    async def served(jobs: int) -> None:
        broker = open_sqlite(str(tmp_path / "queue"), {}, clock=clock)
        sampler = HistorySampler(broker)
        sampler.start()
        Sampled(broker, clock).work("a", jobs)
        clock.advance(2_000)
        await sampler.close()
        broker.close()

    for jobs in (3, 4):
        asyncio.run(served(jobs))
    broker = open_sqlite(str(tmp_path / "queue"), {}, clock=clock)
    found = Client(broker).get_history("a")
    broker.close()
    assert [(point.at, point.completed) for point in found] == [(START, 7)]


def test_looking_at_a_past_that_is_not_there_makes_no_file(tmp_path: Path, clock: FakeClock):
    broker = open_sqlite(str(tmp_path / "queue"), {}, clock=clock)
    assert list(Client(broker).get_history()) == []
    broker.close()
    assert not [name for name in FILES if (tmp_path / "queue" / name).exists()]


def point(number: int) -> HistoryPoint:
    return HistoryPoint(at=0, pushed=number, wait=Histogram((number,), number))


def test_the_file_is_bounded_by_age_and_by_rows(tmp_path: Path):
    file = HistoryFile(tmp_path / "history.db", rows_max=100)
    for minute in range(1_000, 1_030):
        file.add([("t", f"q{number}", point(minute)) for number in range(10)], minute)
    kept = [one.pushed for one in file.read("t", "q3", 0, 10_000)]
    assert kept == list(range(1_020, 1_030))
    later = 1_030 + KEPT_MS // MINUTE_MS
    file.add([("t", "q3", point(1))], later)
    assert [one.at for one in file.read("t", "q3", 0, later + 1)] == [later * MINUTE_MS]
    file.close()


def test_a_damaged_file_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "history.db"
    path.write_bytes(b"no database, but long enough to be taken for one" * 100)
    file = HistoryFile(path)
    assert file.read("t", "q", 0, 10) == []
    assert "has a hole" in caplog.text
    file.add([("t", "q", point(7))], 5)
    assert [one.pushed for one in file.read("t", "q", 0, 10)] == [7]
    file.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE minutes SET point = x'00'")
    file = HistoryFile(path)
    assert file.read("t", "q", 0, 10) == []
    file.add([("t", "q", point(8))], 6)
    assert [one.pushed for one in file.read("t", "q", 0, 10)] == [8]
    file.close()
