"""A DataFrame becomes jobs, each row exactly once, whatever Spark runs again."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import stoker.spark
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.sink import BatchWriter, write_options
from stoker.spark.staging import StageResult, WriteFailed


def pulled(queue: Client, name: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while len(delivery := queue.pull(name, 1_000)):
        found.update(delivery.payloads)
        queue.ack_batch(delivery.ids, delivery.token)
    return found


def rows(spark: SparkSession, count: int = 1_000) -> DataFrame:
    return spark.range(count, numPartitions=2).select(F.col("id").cast("string").alias("payload"))


def write(frame: DataFrame, url: str, **options: str) -> None:
    writer = frame.write.format("stoker").mode("append").option("url", url)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def numbers(count: int = 1_000) -> Counter[bytes]:
    return Counter(str(number).encode() for number in range(count))


def test_every_row_is_a_job(spark: SparkSession, url: str, queue: Client):
    write(rows(spark), url, queue="mail")
    assert pulled(queue, "mail") == numbers()


def test_rows_with_the_same_key_are_told(
    spark: SparkSession, url: str, queue: Client, caplog: pytest.LogCaptureFixture
):
    frame = rows(spark).selectExpr("payload", "cast(cast(payload as int) % 10 as string) as unique_key")
    with caplog.at_level("WARNING", "stoker.spark.staging"):
        done = stoker.spark.push(frame, "mail", url=url)
    assert (done.created, done.duplicates, queue.get_counts("mail").waiting) == (10, 990, 10)
    assert "990 of 1000 rows made no new job" in caplog.text


def test_columns_are_options_of_the_jobs(spark: SparkSession, url: str, queue: Client):
    frame = spark.createDataFrame([("a", 1, "high"), ("b", 9, "low")], "user string, priority long, queue string")
    write(frame, url)
    (run,) = queue.pull("low").runs
    assert (run.options.priority, run.options.codec, run.payloads[0]) == (9, "msgpack", b"\x81\xa4user\xa1b")
    assert queue.get_counts("high").waiting == 1


def test_a_write_under_the_same_name_changes_nothing(spark: SparkSession, url: str, queue: Client):
    for _ in range(2):
        write(rows(spark, 100), url, queue="mail", txnAppId="nightly", txnVersion="7")
    assert pulled(queue, "mail") == numbers(100)
    write(rows(spark, 100), url, queue="mail", txnAppId="nightly", txnVersion="8")
    assert pulled(queue, "mail") == numbers(100)


def test_a_write_under_a_finished_name_does_not_ask_for_rows(spark: SparkSession, url: str, queue: Client):
    given = {"url": url, "queue": "mail", "txnAppId": "nightly", "txnVersion": "7"}
    write(rows(spark, 10), **given)
    asked: list[str] = []

    def computed() -> Iterator[pa.RecordBatch]:
        asked.append("for rows")
        yield from ()

    done = BatchWriter(write_options(given), StructType().add("payload", "string")).write(computed())
    assert isinstance(done, StageResult)
    assert (done.stage, asked) == (None, [])


def failing(frame: DataFrame, attempts: int) -> DataFrame:
    """The same rows, but one task fails this often after it has handed on everything."""

    def handed_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        yield from batches
        if task.partitionId() == 1 and task.attemptNumber() < attempts:
            raise RuntimeError("this attempt was never meant to end well")

    return frame.mapInArrow(handed_on, frame.schema)


def test_a_task_that_is_tried_again_pushes_its_rows_once(spark: SparkSession, url: str, queue: Client):
    write(failing(rows(spark), attempts=1), url, queue="mail")
    assert pulled(queue, "mail") == numbers()


def test_a_call_that_is_made_again_pushes_its_rows_once(spark: SparkSession, url: str, queue: Client):
    first = stoker.spark.push(failing(rows(spark), attempts=1), "mail", url=url, transaction="import")
    again = stoker.spark.push(failing(rows(spark), attempts=100), "mail", url=url, transaction="import")
    assert (first.created, first.rejected.count(), again.created) == (1_000, 0, 1_000)  # the rows were not computed
    assert pulled(queue, "mail") == numbers()


def test_a_task_that_fails_for_good_leaves_nothing_behind(spark: SparkSession, url: str, queue: Client):
    with pytest.raises(PySparkException, match="never meant to end well"):
        write(failing(rows(spark), attempts=100), url, queue="mail")
    assert queue.list_queues() == []
    write(rows(spark), url, queue="mail")
    assert pulled(queue, "mail") == numbers()


MIXED = [
    ("good", "mail", 0, "1"),
    (None, "mail", 0, "2"),
    ("nowhere", None, 0, "3"),
    ("yesterday", "mail", -86_400_000, "4"),
    ("odd", "no such name!", 0, "5"),
    ("fine", "mail", None, "6"),
]
"""Rows of which two can be jobs."""
REASONS = {"2": "no payload", "3": "no queue", "4": "invalid delay_ms", "5": "invalid queue name"}


def mixed(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(MIXED, "payload string, queue string, delay_ms long, custom_id string").coalesce(1)


def test_a_row_that_cannot_be_a_job_fails_the_write_and_nothing_is_pushed(spark: SparkSession, url: str, queue: Client):
    with pytest.raises(PySparkException, match=r"has no payload.* The row is \(payload=None, queue='mail'"):
        write(mixed(spark), url)
    with pytest.raises(WriteFailed) as refused:
        stoker.spark.push(mixed(spark).where("custom_id in (1, 4)"), url=url)
    said = str(refused.value)
    assert "\n" not in said
    assert "item" not in said
    assert "invalid delay_ms" in said
    assert "payload='yesterday', queue='mail', delay_ms=-86400000, custom_id='4'" in said
    assert queue.list_queues() == []


def test_rows_that_cannot_be_jobs_come_back_with_reasons(spark: SparkSession, url: str, queue: Client):
    done = stoker.spark.push(mixed(spark), url=url, on_rejected="return")
    assert done.created == 2
    assert pulled(queue, "mail") == Counter([b"good", b"fine"])
    rejected = {row["custom_id"]: row for row in done.rejected.collect()}
    assert rejected.keys() == REASONS.keys()
    assert all(REASONS[name] in row["rejection"] for name, row in rejected.items())
    assert rejected["4"].asDict() | {"rejection": ""} == {
        "payload": "yesterday",
        "queue": "mail",
        "delay_ms": -86_400_000,
        "custom_id": "4",
        "rejection": "",
    }


def test_rows_that_cannot_be_jobs_go_into_a_folder_once(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    for _ in range(2):
        write(mixed(spark), url, txnAppId="import", txnVersion="1", rejectedPath=f"{tmp_path}/rejected")
    assert pulled(queue, "mail") == Counter([b"good", b"fine"])
    rejected = spark.read.parquet(f"{tmp_path}/rejected")
    assert {row["custom_id"] for row in rejected.collect()} == REASONS.keys()
    assert rejected.count() == 4


def test_a_reason_has_a_column_of_its_own(spark: SparkSession, url: str):
    frame = rows(spark, 1).selectExpr("payload as text", "'x' as rejection")
    with pytest.raises(InvalidRequest, match="has a column rejection"):
        stoker.spark.push(frame, "mail", url=url, on_rejected="return")


def test_a_stream_pushes_each_batch_once_even_if_it_is_run_again(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path
):
    (tmp_path / "in").mkdir()
    for number in range(2):
        payloads = [str(one) for one in range(number * 10, number * 10 + 10)]
        pq.write_table(pa.table({"payload": payloads}), tmp_path / "in" / f"{number}.parquet")

    def take_in() -> None:
        source = spark.readStream.schema("payload string").option("maxFilesPerTrigger", 1)
        stream = source.parquet(str(tmp_path / "in"))
        writer = stream.writeStream.format("stoker").option("url", url).option("queue", "mail")
        writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()

    take_in()
    newest = max((tmp_path / "at" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # as if the driver had died after the push and before Spark wrote it down
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    take_in()
    assert pulled(queue, "mail") == numbers(20)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no queue"),
        ({"queue": "mail", "txnAppId": "a"}, "belong together"),
        ({"queue": "mail", "que": "x"}, "did you mean queue"),
        ({"queue": "mail", "rejectedPath": " "}, "rejectedPath is empty"),
    ],
)
def test_what_cannot_be_written_is_refused(url: str, queue: Client, options: dict[str, str], said: str):
    """Without Spark."""
    with pytest.raises(InvalidRequest, match=said):
        BatchWriter(write_options({"url": url} | options), StructType().add("payload", "string"))


def test_a_refusal_comes_before_any_row_moves(spark: SparkSession, url: str, queue: Client):
    with pytest.raises(PySparkException, match="no queue"):
        write(failing(rows(spark, 10), attempts=100), url)
    assert queue.list_queues() == []


def test_a_queue_cannot_be_overwritten(spark: SparkSession, url: str):
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        rows(spark, 1).write.format("stoker").mode("overwrite").option("url", url).option("queue", "q").save()
