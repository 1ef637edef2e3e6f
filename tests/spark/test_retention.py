"""Retention overtakes a slow reader: it gets an error that says what is lost, or goes on from the oldest kept
record.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import stoker
from stoker.brokers.local import LocalSettings
from stoker.brokers.shared_directory import SharedBroker
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.sqlite import JournalSettings
from stoker.model.ids import shard_for
from stoker.spark.logs import OffsetsOutOfRange, Reach, reaches
from stoker.spark.options import read_options
from stoker.spark.source import BatchReader
from stoker.spark.stream import StreamReader, read_back, written
from tests.spark.test_source import table

SHORT = LocalSettings(
    shards=2,
    journal=JournalSettings(
        wal_bytes_max=50_000,
        checkpoint_records=10,
        events_bytes_max=20_000,
        disk_reserve_bytes=4096,
        checkpoint_process=False,
    ),
)
"""A log of some ten records."""
SHARD = shard_for("default", "mail", 2)


class Forgetful:
    """A queue that drops the oldest records of its log, and only while somebody asks it to."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}/queue"
        self.queue = stoker.connect(self.url, settings=SHORT)
        broker = self.queue.broker
        assert isinstance(broker, SharedBroker)
        assert broker._owned is not None
        assert isinstance(broker._owned.store, DirectoryStore)
        assert broker._owned.store.upkeep is not None
        self._upkeep = broker._owned.store.upkeep
        self._upkeep.work_lock.acquire()
        self.queue.push_batch("mail", [b"first", b"second"])

    @property
    def reach(self) -> Reach:
        return reaches(self.queue)[SHARD]

    def forget(self) -> Reach:
        """All that is in the log now is dropped, and something newer is there."""
        last = self.reach.last
        while self.reach.lowest <= last + 1:
            self.queue.push("mail", b"x" * 5000)
            self._upkeep.work()
        self.queue.push("mail", b"newest")
        return self.reach

    def close(self) -> None:
        self._upkeep.work_lock.release()
        self.queue.close()

    def stream(self, **options: str) -> StreamReader:
        given = {"url": self.url, "startingOffsets": "earliest"} | options
        return StreamReader(read_options(given, streaming=True), None)

    def batch(self, **options: str) -> BatchReader:
        return BatchReader(read_options({"url": self.url} | options), None)


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Forgetful]:
    made = Forgetful(tmp_path)
    yield made
    made.close()


def sequences(reader: Any, *offsets: Any) -> list[int]:
    """What a reader brings of the shard, without Spark."""
    found: set[tuple[int, int]] = set()
    for partition in reader.partitions(*offsets):
        for batch in reader.read(partition):
            found |= set(zip(batch["shard"].to_pylist(), batch["sequence"].to_pylist(), strict=True))
    return sorted(sequence for shard, sequence in found if shard == SHARD)


def pushed_since(forgetful: Forgetful, lowest: int) -> list[int]:
    page = forgetful.queue.read_records(SHARD, lowest - 1)
    return [record.sequence for record in page.records]


def test_a_batch_from_before_the_oldest_record_is_an_error_or_goes_on(spark: SparkSession, forgetful: Forgetful):
    reach = forgetful.forget()
    asked = json.dumps({SHARD: 0})
    said = rf"shard {SHARD}: records from 1 on were asked for, and the oldest one that is kept is {reach.lowest}:"
    with pytest.raises(PySparkException, match=rf"{said} {reach.lowest - 1} are lost.*failOnDataLoss = false"):
        table(spark, forgetful.url, startingOffsets=asked).count()
    rows = table(spark, forgetful.url, startingOffsets=asked, failOnDataLoss="false").where(f"shard = {SHARD}")
    assert sorted({row["sequence"] for row in rows.collect()}) == pushed_since(forgetful, reach.lowest)


def test_a_stream_whose_checkpoint_is_too_old_fails_or_goes_on(
    spark: SparkSession, forgetful: Forgetful, tmp_path: Path
):
    def take_in(**options: str) -> None:
        source = spark.readStream.format("stoker").option("url", forgetful.url).options(**options)
        rows = source.option("startingOffsets", "earliest").load()
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()

    def taken() -> list[int]:
        rows = spark.read.parquet(str(tmp_path / "out")).where(f"shard = {SHARD}")
        return sorted(row["sequence"] for row in rows.select("sequence", "index").where("index = 0").collect())

    take_in()
    before = taken()
    reach = forgetful.forget()
    with pytest.raises(PySparkException, match=rf"shard {SHARD}: records from .* is kept is {reach.lowest}"):
        take_in()
    assert taken() == before
    take_in(failOnDataLoss="false")
    assert taken() == before + pushed_since(forgetful, reach.lowest)


# --- the same without Spark ------------------------------------------------------------------------------


def test_a_reader_that_goes_on_says_how_much_is_lost(forgetful: Forgetful, caplog: pytest.LogCaptureFixture):
    start = forgetful.stream().initialOffset()
    reach = forgetful.forget()
    reader = forgetful.stream(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "stoker.spark.logs"):
        end = reader.latestOffset(start, ReadAllAvailable())
        assert sequences(reader, start, end) == pushed_since(forgetful, reach.lowest)
    (said,) = [record.getMessage() for record in caplog.records if f"shard {SHARD}:" in record.getMessage()]
    assert f"{reach.lowest - 1} are lost" in said


def test_what_is_lost_does_not_count_for_the_limit_of_a_batch(forgetful: Forgetful):
    start = forgetful.stream().initialOffset()
    reach = forgetful.forget()
    end = forgetful.stream(failOnDataLoss="false").latestOffset(start, ReadMaxRows(1))
    assert read_back(end)[SHARD] == reach.lowest


def test_retention_that_overtakes_between_planning_and_reading_is_noticed(forgetful: Forgetful):
    start = forgetful.stream().initialOffset()
    for options, is_lost in (({"failOnDataLoss": "true"}, True), ({"failOnDataLoss": "false"}, False)):
        reader = forgetful.stream(**options)
        start = written({0: 0, 1: 0} | {SHARD: forgetful.reach.lowest - 1})
        end = reader.latestOffset(start, ReadAllAvailable())
        planned = reader.partitions(start, end)
        forgetful.forget()
        if is_lost:
            with pytest.raises(OffsetsOutOfRange, match=f"shard {SHARD}: records from"):
                [list(reader.read(partition)) for partition in planned]
        else:
            assert [batch for partition in planned for batch in reader.read(partition)] == []


def test_a_batch_replayed_from_a_checkpoint_is_checked_too(forgetful: Forgetful):
    """Spark plans an unfinished batch again from its own log, without asking how far the queue is."""
    reader = forgetful.stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    forgetful.forget()
    with pytest.raises(OffsetsOutOfRange, match="are lost"):
        forgetful.stream().partitions(start, end)


def test_a_log_that_ends_before_what_was_read_is_another_log(forgetful: Forgetful, caplog: pytest.LogCaptureFixture):
    last = forgetful.reach.last
    start = written({0: 0, 1: 0, SHARD: last + 7})
    with pytest.raises(OffsetsOutOfRange, match=rf"up to {last + 7} were read already, and the log ends at {last}"):
        forgetful.stream().latestOffset(start, ReadAllAvailable())
    reader = forgetful.stream(failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read_back(end)[SHARD] == last
    assert sequences(reader, start, end) == []
    forgetful.queue.push("mail", b"new")
    assert sequences(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [last + 1]


def test_a_stream_that_begins_too_early_is_refused_before_its_first_batch(forgetful: Forgetful):
    forgetful.forget()
    asked = json.dumps({SHARD: 0})
    with pytest.raises(OffsetsOutOfRange, match="records from 1 on were asked for"):
        forgetful.stream(startingOffsets=asked).initialOffset()


def test_an_end_that_is_not_kept_is_refused(forgetful: Forgetful):
    reach = forgetful.forget()
    with pytest.raises(OffsetsOutOfRange, match=f"records from 1 on .* kept is {reach.lowest}"):
        forgetful.batch(endingOffsets=json.dumps({SHARD: 1})).partitions()
    assert sequences(forgetful.batch(endingOffsets=json.dumps({SHARD: 1}), failOnDataLoss="false")) == []
    swapped = {"startingOffsets": json.dumps({SHARD: reach.last}), "endingOffsets": json.dumps({SHARD: reach.last - 1})}
    with pytest.raises(OffsetsOutOfRange, match="swap them"):
        forgetful.batch(**swapped).partitions()
