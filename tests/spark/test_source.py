"""The log of a queue as a table, read by Spark itself."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.spark.logs import position_before, reaches
from stoker.spark.options import read_options
from stoker.spark.source import BatchReader
from tests.ports import kept_port
from tests.spark.story import live


def events_of(queue: Client) -> Counter[tuple[str, str]]:
    """What the queue says that happened: queue and kind of every event."""
    found: Counter[tuple[str, str]] = Counter()
    for shard in reaches(queue):
        after = 0
        while (page := queue.read_events(shard, after)).events:
            found.update((event.queue, str(event.kind)) for event in page.events)
            after = page.next_after
    return found


def counted(rows: Iterable[Row]) -> Counter[tuple[str, str]]:
    return Counter((row["queue"], row["event"]) for row in rows)


def places(rows: Iterable[Row]) -> set[tuple[int, int, int]]:
    """Where the log tells of the events."""
    return {(row["shard"], row["sequence"], row["index"]) for row in rows}


def table(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    reader = spark.read.format("stoker").option("url", url)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def test_every_event_is_a_row_whatever_the_partitions(spark: SparkSession, url: str, queue: Client):
    live(queue)
    wanted = events_of(queue)
    table_of_five = table(spark, url, minPartitions=5)
    rows = table_of_five.collect()
    assert counted(rows) == wanted
    assert len(places(rows)) == len(rows)
    assert table_of_five.rdd.getNumPartitions() >= 5


def test_queues_events_and_columns_are_chosen_before_bytes_leave(spark: SparkSession, url: str, queue: Client):
    live(queue)
    wanted = {key: count for key, count in events_of(queue).items() if key[0] == "mail" and key[1] == "completed"}
    rows = table(spark, url, queues="mail", events="completed", columns="queue,event,job")
    assert rows.columns == ["queue", "event", "job"]
    assert counted(rows.collect()) == wanted


def test_a_stream_brings_every_event_once_over_restarts(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    live(queue, seed=2, rounds=12)

    def take_in() -> list[int]:
        """The numbers of rows in the batches."""
        source = spark.readStream.format("stoker").option("url", url).option("startingOffsets", "earliest")
        rows = source.option("maxRecordsPerTrigger", 60).load()
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    first = take_in()
    assert len(first) > 1
    assert 0 < min(first) <= max(first) <= 60
    assert take_in() == []
    live(queue, seed=3, rounds=4)
    assert sum(first) + sum(take_in()) == sum(events_of(queue).values())
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert counted(rows) == events_of(queue)
    assert len(places(rows)) == len(rows)


def test_reading_can_begin_at_a_moment(spark: SparkSession, url: str, queue: Client):
    queue.push_batch("mail", [b"before"] * 3)
    time.sleep(0.02)  # the moment in between is what this is about
    moment = round(time.time() * 1000)
    time.sleep(0.02)
    queue.push_batch("mail", [b"after"] * 5)
    assert table(spark, url, startingTimestamp=str(moment)).count() == 5
    assert table(spark, url, endingTimestamp=str(moment)).count() == 3


def test_a_moment_is_found_in_any_log(queue: Client):
    """Without Spark: the first record at or after a moment is the one behind the position."""
    times = []
    for _ in range(30):
        queue.push("mail", b"x")
        times.append(queue.get_job(queue.push("sms", b"y").id).pushed_at)
    for shard, reach in reaches(queue).items():
        records = list(queue.read_events(shard, limit=1_000).events)
        for moment in (times[0] - 1, *times, times[-1] + 1):
            position = position_before(queue, shard, moment, reach)
            assert all(event.at < moment for event in records if event.sequence <= position)
            assert all(event.at >= moment for event in records if event.sequence > position)


def test_positions_by_shard_bound_what_is_read(url: str, queue: Client):
    """Without Spark. A shard that is not named is read as a whole."""
    live(queue)

    def sequences(**options: str) -> dict[int, set[int]]:
        reader = BatchReader(read_options({"url": url} | options), None)
        found: dict[int, set[int]] = {shard: set() for shard in range(4)}
        for partition in reader.partitions():
            for batch in reader.read(partition):
                for shard, sequence in zip(batch["shard"].to_pylist(), batch["sequence"].to_pylist(), strict=True):
                    found[shard].add(sequence)
        return found

    everything = sequences()
    nothing: dict[int, set[int]] = {shard: set() for shard in everything}
    shard = max(everything, key=lambda each: len(everything[each]))
    bounds = {"startingOffsets": f'{{"{shard}": 5}}', "endingOffsets": f'{{"{shard}": 9}}'}
    assert sequences(**bounds) == everything | {shard: {at for at in everything[shard] if 5 < at <= 9}}
    assert sequences(startingOffsets="latest") == nothing
    assert sequences(endingOffsets="earliest") == nothing


def test_batches_are_as_long_as_was_asked_for(url: str, queue: Client):
    """A record is never torn, so they may be longer by what one tells."""
    for _ in range(20):
        queue.push("mail", b"x")
    reader = BatchReader(read_options({"url": url, "batchRows": "7"}), None)
    assert [batch.num_rows for each in reader.partitions() for batch in reader.read(each)] == [7, 7, 6]


def test_spark_finds_the_sources_by_itself(spark: SparkSession, url: str, queue: Client):
    """In a session where nobody has registered them."""
    queue.push("mail", b"x")
    other = spark.newSession()
    assert table(other, url).where("event = 'pushed'").count() == 1
    assert "token" in other.readStream.format("stoker_jobs").option("url", url).option("settle", "rows").load().columns


def test_a_server_that_is_away_is_named_before_any_data_moves(spark: SparkSession):
    with kept_port() as port, pytest.raises(PySparkException, match=rf"127\.0\.0\.1:{port}"):
        table(spark, f"tcp://127.0.0.1:{port}?retry_s=0").count()


def test_a_schema_of_somebody_elses_is_refused(spark: SparkSession, url: str, queue: Client):
    with pytest.raises(PySparkException, match="has `job string`, which the table does not have"):
        spark.read.format("stoker").schema("job string").option("url", url).load().count()
    with pytest.raises(PySparkException, match="expected true or false"):
        table(spark, url, failOnDataLoss="perhaps")


def test_an_unknown_option_is_refused_with_the_right_one(spark: SparkSession, url: str, queue: Client):
    with pytest.raises(PySparkException, match="did you mean maxRecordsPerTrigger"):
        table(spark, url, maxRecordPerTrigger=5)


@pytest.mark.parametrize(
    ("asked", "said"),
    [('{"0": 99999}', "says 99999 of shard 0: its log ends at"), ('{"9": 0}', "the shards are 0 to 3")],
)
def test_offsets_outside_of_the_log_are_refused(url: str, queue: Client, asked: str, said: str):
    """Without Spark: before it knows of any task."""
    queue.push("mail", b"x")
    with pytest.raises(StokerError, match=said):
        BatchReader(read_options({"url": url, "startingOffsets": asked}), None).partitions()
