"""Staged jobs are published with their payloads where they are: nothing is written twice, and nothing is lost."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings, open_sqlite
from stoker.client.sync import Client
from stoker.engine.audit import audit
from stoker.journal.backup import backup, restore
from stoker.journal.backup_targets import DirectoryTarget
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.sqlite import JournalSettings
from stoker.model.events import EventKind
from stoker.model.limits import Limits
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.records import records as rec
from stoker.records.codec import open_record

SMALL = JournalSettings(
    wal_bytes_max=50_000,
    checkpoint_records=10,
    checkpoint_process=False,
    events_bytes_max=20_000,
    disk_reserve_bytes=4096,
)
ONE_SHARD = LocalSettings(shards=1, journal=SMALL)
PAYLOADS = [b"%d" % number * 100 for number in range(50)]


class Place:
    """A data directory, opened again as often as one likes. Its upkeep works only when it is asked to."""

    def __init__(self, path: Path, settings: LocalSettings = ONE_SHARD) -> None:
        self.path, self.settings = path, settings
        self.open()

    def open(self) -> None:
        self.broker: LocalBroker = open_sqlite(str(self.path), {}, self.settings)
        self.client = Client(self.broker)
        assert isinstance(self.broker.store, DirectoryStore)
        assert self.broker.store.upkeep is not None
        self.upkeep = self.broker.store.upkeep
        self.upkeep.work_lock.acquire()

    def close(self) -> None:
        self.upkeep.work_lock.release()
        self.broker.close()

    def reopen(self) -> None:
        self.close()
        self.open()
        for shard in self.broker.runtime.shards:
            audit(shard)

    def records(self) -> list[rec.Record]:
        return [record for _, record in self.broker.runtime.journal.read(0, 0, 10_000)]

    def forget(self) -> None:
        """Everything that is in the log now is older than what is kept of it."""
        journal = self.broker.runtime.journal
        last = journal.last(0)
        while journal.lowest(0) <= last:
            self.fill()

    def fill(self) -> None:
        """A piece of log that nobody needs."""
        self.client.push("other", os.urandom(5_000))
        self.client.obliterate("other")
        self.upkeep.work()

    def payloads(self) -> list[bytes]:
        return [job.payload for job in self.client.browse("q", ascending=True).jobs]


@pytest.fixture
def place(tmp_path: Path):
    made = Place(tmp_path / "data")
    yield made
    made.close()


def staged_and_published(client: Client, options: Options = DEFAULT_OPTIONS) -> None:
    client.stage("t", "s", "q", PAYLOADS[:25], options, part=0)
    client.stage("t", "s", "q", PAYLOADS[25:], options, part=1)
    assert client.publish("t", ["s"]).created == len(PAYLOADS)


def test_payloads_are_not_written_again(place: Place):
    staged_and_published(place.client)
    kinds = [type(record) for record in place.records() if not isinstance(record, rec.Opened)]
    assert kinds == [rec.PartStaged, rec.PartStaged, rec.PartPublished, rec.PartPublished, rec.TransactionEnded]
    last = place.broker.runtime.journal.rows(0, place.broker.runtime.journal.last(0) - 1, 1)[0]
    assert last.size < len(PAYLOADS[0]) * 10
    assert place.payloads() == PAYLOADS


STEPS: dict[str, list[Callable[[Place], None]]] = {
    "a restart": [Place.reopen],
    "retention": [Place.forget],
    "retention and a restart": [Place.forget, Place.reopen],
    "a restart and retention": [Place.reopen, Place.forget, Place.reopen, Place.forget],
}


@pytest.mark.parametrize("between", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("behind", STEPS.values(), ids=STEPS)
def test_they_outlive(place: Place, between: list[Callable[[Place], None]], behind: list[Callable[[Place], None]]):
    """Whatever comes between staging and publishing, and before the jobs are pulled."""
    place.client.stage("t", "s", "q", PAYLOADS)
    for step in between:
        step(place)
    assert place.client.publish("t", ["s"]).created == len(PAYLOADS)
    for step in behind:
        step(place)
    assert place.payloads() == PAYLOADS
    delivery = place.client.pull("q", 30)
    place.reopen()
    assert list(delivery.runs[0].payloads) == PAYLOADS[:30]
    assert [job.payload for job in place.client.pull("q", 30)] == PAYLOADS[30:]


def test_the_last_job_lets_go_of_the_log(place: Place):
    """What only published jobs needed is dropped with them."""
    journal = place.broker.runtime.journal
    place.client.stage("t", "s", "q", PAYLOADS)
    staged = journal.last(0)
    place.client.publish("t", ["s"])
    place.forget()
    assert journal.body(0, staged) is not None
    place.client.obliterate("q")
    place.forget()
    assert journal.body(0, staged) is None


@pytest.mark.parametrize("options", [Options(lifo=True), Options(delay_ms=10**7), Options(priority=3, ttl_ms=10**7)])
def test_options_mean_what_they_mean_for_pushes(place: Place, tmp_path: Path, options: Options):
    staged_and_published(place.client, options)
    other = Client(open_sqlite(str(tmp_path / "pushed"), {}, ONE_SHARD))
    other.push_batch("q", PAYLOADS[:25], options)
    other.push_batch("q", PAYLOADS[25:], options)
    place.reopen()
    shown = [(job.id, job.payload, job.state, job.options) for job in place.client.browse("q", ascending=True).jobs]
    pushed = [(job.id, job.payload, job.state, job.options) for job in other.browse("q", ascending=True).jobs]
    first, pushed_first = min(job[0] for job in shown), min(job[0] for job in pushed)
    assert [(job[0] - first, *job[1:]) for job in shown] == [(job[0] - pushed_first, *job[1:]) for job in pushed]
    other.broker.close()


def test_jobs_with_keys_are_looked_at_one_by_one(place: Place):
    """They may be duplicates by now: their payloads go with them."""
    each = [Options(unique_key=str(number // 2)) for number in range(10)]
    place.client.stage("t", "s", "q", PAYLOADS[:10], each=each)
    assert place.client.publish("t", ["s"]).created == 5
    place.reopen()
    assert place.payloads() == PAYLOADS[:10:2]


def test_a_limit_that_was_lowered_meanwhile_holds(tmp_path: Path):
    place = Place(tmp_path / "data")
    place.client.stage("t", "s", "q", [b"x" * 10, b"x" * 900])
    place.settings = msgspec.structs.replace(ONE_SHARD, limits=Limits(payload_bytes_max=500))
    place.reopen()
    assert place.client.publish("t", ["s"]).created == 1
    assert place.payloads() == [b"x" * 10]
    place.close()


def test_a_backup_has_them(place: Place, tmp_path: Path):
    staged_and_published(place.client)
    place.forget()
    assert isinstance(place.broker.store, DirectoryStore)
    target = DirectoryTarget(tmp_path / "backups")
    place.upkeep.work_lock.release()
    with place.broker.store.snapshot() as snapshot:
        name = backup(snapshot, target).name
    place.upkeep.work_lock.acquire()
    restore(target, name, tmp_path / "restored")
    restored = Place(tmp_path / "restored")
    assert restored.payloads() == PAYLOADS
    restored.close()


# --- memory ------------------------------------------------------------------------------------------


def test_staged_payloads_count_and_leave_memory_when_there_are_many(tmp_path: Path):
    settings = msgspec.structs.replace(ONE_SHARD, memory_bytes_max=400_000)
    place = Place(tmp_path / "data", settings)
    shard = place.broker.runtime.shards[0]
    payloads = [os.urandom(1_000) for _ in range(2_000)]
    for part in range(20):
        place.client.stage("t", "s", "q", payloads[part * 100 : (part + 1) * 100], part=part)
        assert shard.index.bytes < 300_000
    assert shard.index.bytes >= 100_000
    assert place.client.publish("t", ["s"]).created == 2_000
    assert shard.index.bytes < 300_000
    assert [job.payload for _ in range(20) for job in place.client.pull("q", 100)] == payloads
    place.close()


def test_jobs_whose_payloads_left_memory_before_they_were_published_are_delivered_whole(tmp_path: Path):
    place = Place(tmp_path / "data", msgspec.structs.replace(ONE_SHARD, memory_bytes_max=100_000))
    payloads = [os.urandom(1_000) for _ in range(100)]
    place.client.stage("t", "s", "q", payloads)
    place.client.publish("t", ["s"])
    assert place.payloads() == payloads
    assert [job.payload for job in place.client.pull("q", 100)] == payloads
    place.close()


@pytest.mark.parametrize("end", [lambda client: client.abort("t"), lambda client: client.publish("t", [])])
def test_what_is_dropped_takes_no_memory(place: Place, end: Callable[[Client], object]):
    shard = place.broker.runtime.shards[0]
    before = shard.index.bytes
    place.client.stage("t", "s", "q", PAYLOADS)
    assert shard.index.bytes > before
    end(place.client)
    assert shard.index.bytes == before


# --- readers of events -------------------------------------------------------------------------------


def pushes(client: Client, bytes_max: int = 1 << 20) -> list[rec.JobsPushed | rec.PartPublished]:
    found: list[rec.JobsPushed | rec.PartPublished] = []
    after = 0
    while True:
        page = client.read_records(0, after, kinds=["pushed"], payloads=True, queues=["q"], bytes_max=bytes_max)
        for record in page.records:
            opened = open_record(record.sequence, record.head, record.body)
            assert isinstance(opened, rec.JobsPushed | rec.PartPublished)
            found.append(opened)
        if page.next_after >= page.last:
            return found
        after = page.next_after


def test_events_tell_of_them_as_of_any_push(place: Place):
    staged_and_published(place.client)
    told = [event for event in place.client.read_events(queue="q").events if event.kind is EventKind.PUSHED]
    assert [event.payload_bytes for event in told] == list(map(len, PAYLOADS))
    story = place.client.story(told[30].job)
    assert [event.kind for event in story.events] == [EventKind.PUSHED]


@pytest.mark.parametrize("bytes_max", [1, 1 << 20])
def test_readers_get_the_payloads_in_pages_of_bounded_size(place: Place, bytes_max: int):
    staged_and_published(place.client)
    assert [payload for push in pushes(place.client, bytes_max) for payload in push.payloads] == PAYLOADS


def test_payloads_that_retention_has_taken_are_left_out(tmp_path: Path):
    """They were staged before the oldest record that is kept, and the jobs are gone; what is kept tells their sizes."""
    longer = msgspec.structs.replace(SMALL, events_bytes_max=300_000)
    place = Place(tmp_path / "data", LocalSettings(shards=1, journal=longer))
    journal = place.broker.runtime.journal
    place.client.stage("t", "s", "q", PAYLOADS)
    staged = journal.last(0)
    place.forget()
    place.client.publish("t", ["s"])
    place.client.obliterate("q")
    while journal.body(0, staged) is not None:
        place.fill()
    (push,) = pushes(place.client)
    assert isinstance(push, rec.PartPublished)
    assert [len(payload) for payload in push.payloads] == list(map(len, PAYLOADS))
    place.close()
