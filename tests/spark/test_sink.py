"""A DataFrame becomes jobs, each row exactly once, whatever Spark runs again."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stoker.client.sync import Client


def pulled(queue: Client, name: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    while len(delivery := queue.pull(name, 1_000)):
        found.update(delivery.payloads)
        queue.ack_batch(delivery.ids, delivery.token)
    return found


def rows(spark: SparkSession, count: int = 1_000) -> DataFrame:
    return spark.range(count, numPartitions=3).select(F.col("id").cast("string").alias("payload"))


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


def test_a_task_that_dies_half_way_leaves_nothing_behind(spark: SparkSession, url: str, queue: Client):
    def once(batches):
        task = TaskContext.get()
        assert task is not None
        yield from batches
        if task.attemptNumber() == 0 and task.partitionId() == 1:
            raise RuntimeError("this attempt was never meant to end well")

    frame = rows(spark).mapInArrow(once, "payload string")
    with pytest.raises(PySparkException, match="never meant to end well"):
        write(frame, url, queue="mail")  # local Spark does not try again
    assert queue.get_counts("mail").waiting == 0
    write(rows(spark), url, queue="mail")
    assert pulled(queue, "mail") == numbers()


def test_a_stream_pushes_each_batch_once_even_if_it_is_run_again(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path
):
    for number in range(3):
        numbers_in = spark.range(number * 10, number * 10 + 10).selectExpr("cast(id as string) as payload")
        numbers_in.coalesce(1).write.parquet(str(tmp_path / "in" / str(number)))

    def take_in() -> None:
        source = spark.readStream.schema("payload string").option("maxFilesPerTrigger", 1)
        stream = source.parquet(str(tmp_path / "in" / "*"))
        writer = stream.writeStream.format("stoker").option("url", url).option("queue", "mail")
        writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start().awaitTermination()

    take_in()
    newest = max((tmp_path / "at" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # as if the driver had died after the push and before Spark wrote it down
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    take_in()
    assert pulled(queue, "mail") == numbers(30)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no queue"),
        ({"queue": "mail", "txnAppId": "a"}, "belong together"),
        ({"queue": "mail", "que": "x"}, "did you mean queue"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_row_moves(
    spark: SparkSession, url: str, queue: Client, options: dict[str, str], said: str
):
    with pytest.raises(PySparkException, match=said):
        write(rows(spark, 10), url, **options)
    assert queue.list_queues() == []


def test_a_queue_cannot_be_overwritten(spark: SparkSession, url: str):
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        rows(spark, 1).write.format("stoker").mode("overwrite").option("url", url).option("queue", "q").save()
