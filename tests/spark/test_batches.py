"""When a stream makes a batch, and how much is in it: rows that come out count, and nothing else. Without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.client.sync import Client
from stoker.spark import stream
from stoker.spark.logs import reaches
from stoker.spark.options import read_options
from stoker.spark.stream import StreamReader

STARTING = {"startingOffsets": "earliest"}


class Driver:
    """Does what Spark's driver does with a reader, and keeps the rows of each batch."""

    def __init__(self, url: str, **options: str) -> None:
        self.url, self.options = url, options
        self.at: dict[str, int] | None = None
        self.batches: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.restart()

    def restart(self) -> None:
        self.reader = StreamReader(read_options({"url": self.url} | STARTING | self.options, streaming=True), None)

    def trigger(self) -> bool:
        """Whether there was a batch."""
        start = self.at or self.reader.initialOffset()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if end == start:
            return False
        found = [
            row
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in zip(*(batch[name].to_pylist() for name in ("shard", "sequence", "index", "queue")), strict=True)
        ]
        self.at = end
        self.batches.append(len(found))
        self.rows += found
        return True

    def available_now(self) -> list[int]:
        """The sizes of the batches until everything is there."""
        before = len(self.batches)
        self.restart()
        self.reader.prepareForTriggerAvailableNow()
        while self.trigger():
            assert len(self.batches) < 1_000
        return self.batches[before:]


@pytest.fixture
def other(url: str) -> Iterator[Client]:
    with stoker.connect(url, tenant="other") as client:
        yield client


def test_no_batch_where_nothing_is_new_for_this_reader(url: str, queue: Client, other: Client):
    driver = Driver(url, queues="mail", events="pushed")
    assert not driver.trigger()
    queue.push_batch("mail", [b"x"] * 3)
    assert driver.trigger()
    other.push_batch("mail", [b"x"] * 5)
    queue.push_batch("sms", [b"x"] * 5)
    queue.pull("mail")
    assert not driver.trigger()
    driver.restart()
    assert not driver.trigger()
    assert driver.available_now() == []
    queue.push("mail", b"y")
    assert driver.available_now() == [1]
    assert driver.batches == [3, 1]


@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_a_batch_has_as_many_rows_as_asked_for(most: int, url: str, queue: Client, other: Client):
    """Those of one request stay together; records of others do not count, and the stream ends."""
    for number in range(12):
        queue.push(f"mail-{number % 5}", b"x")
        other.push_batch(f"mail-{number % 5}", [b"x"] * 20)
    queue.push_batch("news", [b"x"] * 5)
    sizes = Driver(url, maxRecordsPerTrigger=str(most)).available_now()
    assert sum(sizes) == 17
    assert all(size <= most or size == 5 for size in sizes)
    assert len(sizes) <= -(-17 // most) + 5


def test_every_row_comes_once_whatever_the_batches(url: str, queue: Client, other: Client):
    for number in range(30):
        (queue, other)[number % 3 == 0].push_batch(f"mail-{number % 7}", [b"x"] * (1 + number % 4))
    whole = Driver(url)
    assert len(whole.available_now()) == 1
    for options in ({"maxRecordsPerTrigger": "3"}, {"maxBytesPerTrigger": "150"}):
        cut = Driver(url, **options)
        assert len(cut.available_now()) > 3
        assert sorted(cut.rows) == sorted(whole.rows)
        assert len(set(cut.rows)) == len(cut.rows)


def test_bytes_of_payloads_count_when_they_are_read(url: str, queue: Client):
    for _ in range(8):
        queue.push("mail", b"x" * 1_000)
    assert Driver(url, maxBytesPerTrigger="2500").available_now() == [8]
    assert Driver(url, maxBytesPerTrigger="2500", includePayload="true").available_now() == [3, 3, 2]


def test_a_stream_waits_for_enough_rows_but_not_forever(url: str, queue: Client):
    hours, moment = (Driver(url, minRecordsPerTrigger="5", maxTriggerDelay=delay) for delay in ("9h", "0s"))
    queue.push_batch("mail", [b"x"] * 2)
    assert not hours.trigger()
    assert moment.trigger()
    queue.push_batch("sms", [b"x"] * 3)
    assert hours.trigger()
    queue.push("mail", b"y")
    assert hours.available_now() == [1]  # which never waits
    assert (hours.batches, moment.batches) == ([5, 1], [2])


def test_a_record_that_does_not_fit_is_no_reason_to_wait(url: str, queue: Client):
    driver = Driver(url, minRecordsPerTrigger="5", maxRecordsPerTrigger="6", maxTriggerDelay="9h")
    queue.push_batch("mail", [b"x"] * 2)
    queue.push_batch("mail", [b"x"] * 20)
    assert driver.trigger()
    assert driver.trigger()
    assert driver.batches == [2, 20]


def test_queues_of_later_are_found_by_a_pattern(url: str, queue: Client):
    driver = Driver(url, subscribePattern=r"mail-(eu|us)\d*", maxRecordsPerTrigger="2")
    for name in ("mail-eu", "mail-asia", "mail-eu2", "sms"):
        queue.push(name, b"x")
    assert sum(driver.available_now()) == 2
    queue.push("mail-asia", b"x")
    assert not driver.trigger()
    queue.push_batch("mail-us9", [b"x"] * 2)
    driver.restart()
    assert driver.trigger()
    assert {row[-1] for row in driver.rows} == {"mail-eu", "mail-eu2", "mail-us9"}


@pytest.mark.parametrize(
    ("pattern", "beginning"),
    [
        ("mail.*", "mail"),
        ("mails?", "mail"),
        ("mail+", "mail"),
        ("a{2}", ""),
        ("mail|sms", ""),
        ("(?i)m", ""),
        ("", ""),
    ],
)
def test_the_server_knows_how_a_pattern_begins(pattern: str, beginning: str):
    assert read_options({"subscribePattern": pattern}).prefixes == (beginning,)


def test_a_position_is_kept_before_what_was_skipped_becomes_long(
    url: str, queue: Client, other: Client, monkeypatch: pytest.MonkeyPatch
):
    """Or a restart would look through it again, and find it dropped one day."""
    monkeypatch.setattr(stream, "SKIPPED_MOST", 10)
    driver = Driver(url)
    other.push_batch("mail", [b"x"])
    assert not driver.trigger()
    for _ in range(40):
        other.push("mail", b"x")
    assert driver.trigger()
    assert not driver.trigger()
    assert driver.batches == [0]
    assert driver.at is not None
    assert sum(driver.at.values()) == sum(reach.last for reach in reaches(queue).values())


def test_several_tenants_are_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = f"sqlite:///{tmp_path}/queue?shards=1"
    for tenant in ("a", "b", "c"):
        with stoker.connect(url, tenant=tenant) as client:
            client.push_batch("mail", [b"x"] * 2)
    asked: list[Any] = []
    real = Client.read_records

    def noted(self: Client, *given: Any, **more: Any) -> Any:
        asked.append(more)
        return real(self, *given, **more)

    monkeypatch.setattr(Client, "read_records", noted)
    driver = Driver(url, tenants="a,b")
    assert driver.trigger()
    assert driver.batches == [4]
    assert len([more for more in asked if "payloads" in more and "counted" not in more]) == 1
