"""Every layer of the lake adds up to what the queue itself has counted."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stoker
from stoker.client.sync import Client
from stoker.model.errors import NewerFormat
from stoker.spark.lake import reading, running
from stoker.spark.lake.layout import HEAD, Lake
from tests.spark.story import live


def filled(spark: SparkSession, url: str, path: Path, **options: str) -> Lake:
    running.run(spark, str(path), {"url": url, **options})
    return Lake(spark, str(path))


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Lake, Path]]:
    """A queue with a past, and a lake that has taken it in: made once, and only looked at."""
    place = tmp_path_factory.mktemp("history")
    url = f"sqlite:///{place}/queue?shards=4"
    with stoker.connect(url) as queue:
        live(queue, rounds=60)
        yield queue, filled(spark, url, place / "lake", maxRecordsPerTrigger="200"), place / "lake"


def test_all_layers_add_up_to_the_queues_own_counters(history: tuple[Client, Lake, Path]):
    queue, lake, _ = history
    totals = queue.get_stats().totals
    gold = reading.summary(lake, "day")
    assert gold is not None
    names = ("pushed", "started", "completed", "failed", "cancelled", "retrying")
    found = gold.agg(*[F.sum(name).alias(name) for name in names]).first()
    assert found is not None
    assert found.asDict() == {
        "pushed": totals.pushed,
        "started": totals.started,
        "completed": totals.completed,
        "failed": totals.failed,
        "cancelled": totals.cancelled,
        "retrying": totals.retried,
    }
    attempts, jobs = lake.read("attempts"), reading.jobs(lake)
    assert attempts is not None
    assert jobs is not None
    assert attempts.where("outcome = 'completed'").count() == totals.completed
    assert jobs.count() == totals.completed + totals.failed + totals.cancelled
    backlog = (
        gold.groupBy("queue", "name").agg(F.max_by("backlog", "start").alias("backlog")).agg(F.sum("backlog")).first()
    )
    counts = queue.get_stats().counts
    assert backlog is not None
    assert backlog[0] == counts.waiting + counts.delayed + counts.active


def test_a_run_with_nothing_new_changes_nothing(spark: SparkSession, history: tuple[Client, Lake, Path]):
    _, lake, path = history
    before = {layer: lake.files.names(layer) for layer in ("bronze", "attempts", "jobs", "minutes")}
    filled(spark, f"sqlite:///{path.parent}/queue?shards=4", path)
    assert {layer: lake.files.names(layer) for layer in before} == before


def test_a_batch_that_was_interrupted_is_made_whole_and_not_doubled(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path
):
    """The driver dies after bronze and before the rest, and before Spark knows that the batch is done."""
    live(queue, rounds=10)
    lake = filled(spark, url, tmp_path / "lake")
    batch = lake.files.names("bronze")[-1]
    for layer in ("jobs", "minutes"):
        lake.files.remove(f"{layer}/{batch}")
    number = int(batch.rsplit("-", 1)[1])
    for name in (str(number), f".{number}.crc"):
        (tmp_path / "lake" / "_checkpoint" / "commits" / name).unlink(missing_ok=True)
    lake = filled(spark, url, tmp_path / "lake")
    bronze, gold = lake.read("bronze"), reading.summary(lake, "day")
    assert bronze is not None
    assert gold is not None
    assert bronze.select("shard", "sequence", "index").distinct().count() == bronze.count()
    pushed = gold.agg(F.sum("pushed")).first()
    assert pushed is not None
    assert pushed[0] == queue.get_stats().totals.pushed


def test_other_readers_of_the_files_see_the_same_rows(history: tuple[Client, Lake, Path]):
    _, lake, path = history
    bronze = lake.read("bronze")
    assert bronze is not None
    assert ds.dataset(path / "bronze", format="parquet", partitioning="hive").count_rows() == bronze.count()


def test_sketches_are_as_good_as_they_say(history: tuple[Client, Lake, Path]):
    _, lake, _ = history
    attempts = lake.read("attempts")
    gold = reading.summary(lake, "day")
    assert attempts is not None
    assert gold is not None
    exact = sorted(row["total_ms"] for row in attempts.where("outcome = 'completed' and queue = 'mail'").collect())
    merged = gold.where("queue = 'mail'").agg(F.kll_merge_agg_bigint("total_ms_sketch").alias("total_ms_sketch"))
    told = merged.select(reading.quantile("total_ms", 0.9).alias("p90")).first()
    assert told is not None
    share = sum(value <= told["p90"] for value in exact) / len(exact)
    assert 0.88 <= share <= 0.95 or exact.count(told["p90"]) > len(exact) * 0.05  # ties have no rank of their own


def test_a_lake_of_a_later_release_is_left_alone(spark: SparkSession, tmp_path: Path):
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.files.write_json(HEAD, {"version": 99, "epoch": "x"})
    with pytest.raises(NewerFormat, match="use that release"):
        Lake(spark, str(tmp_path / "lake"))


def test_errors_that_differ_in_numbers_have_one_fingerprint(spark: SparkSession):
    from stoker.spark.lake.silver import fingerprint

    errors = [
        ("OSError", "no route to host 10.0.0.7 after 30 s"),
        ("OSError", "no route to host 10.1.2.3 after 5 s"),
        ("KeyError", "'user-7'"),
        ("KeyError", "'user-8'"),
        (None, None),
    ]
    rows = spark.createDataFrame(errors, "error_class string, error string").select(fingerprint().alias("f")).collect()
    assert [row["f"] for row in rows] == [
        "OSError: no route to host #.#.#.# after # s",
        "OSError: no route to host #.#.#.# after # s",
        "KeyError: '…'",
        "KeyError: '…'",
        None,
    ]
