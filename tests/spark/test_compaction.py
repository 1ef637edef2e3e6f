"""Few directories of many, and the same numbers before, meanwhile and afterwards."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stoker.cli.main import stoker
from stoker.client.sync import Client
from stoker.spark.lake import gold, reading, running
from stoker.spark.lake.compaction import chosen, compact, compact_layer
from stoker.spark.lake.layout import BatchStretch, Lake
from tests.spark.conftest import Past


def told(lake: Lake) -> dict[str, Any]:
    """What a lake says: events by their places, ended jobs, and gold."""
    events, jobs, hours = lake.read("bronze"), reading.jobs(lake), reading.summary(lake, "hour")
    assert events is not None
    assert jobs is not None
    assert hours is not None
    sums = hours.selectExpr("sum(pushed)", "sum(started)", "sum(completed)", "sum(total_ms_sum)", "max(total_ms_p99)")
    return {
        "events": sorted(map(tuple, events.select("shard", "sequence", "index").collect())),
        "jobs": jobs.count(),
        "gold": [tuple(row) for row in sums.collect()],
    }


def test_a_compaction_changes_no_number_and_its_second_run_nothing(spark: SparkSession, past: Past, tmp_path: Path):
    path = tmp_path / "lake"
    shutil.copytree(past.path, path)
    lake = Lake(spark, str(path))
    before, batches = told(lake), lake.stretches("bronze")
    assert len(batches) > 2
    done = compact(lake)
    assert {one.layer for one in done} == set(running.STEPS) | {"bronze"}
    assert told(lake) == before
    assert lake.stretches("bronze") == [BatchStretch(0, batches[-2].last), batches[-1]]
    plain = ds.dataset(path / "bronze", format="parquet", partitioning="hive")
    assert plain.count_rows() == len(before["events"])
    again = CliRunner().invoke(stoker, ["pipeline", "compact", "--lake", str(path)])
    assert again.stdout == "nothing to compact\n"

    bronze = lake.read("bronze")
    assert bronze is not None
    later = bronze.drop("batch").where("event = 'pushed'").limit(1).withColumn("sequence", F.lit(2**40))
    newest = batches[-1].last + 1  # the stream goes on, and so do compactions
    lake.write("bronze", lake.batch(newest), later)
    lake.write("minutes", lake.batch(newest), gold.minutes(later))
    before = told(lake)
    for layer in ("bronze", "minutes"):
        compact_layer(lake, layer, newest)
    assert told(lake) == before
    assert lake.stretches("minutes") == [BatchStretch(0, newest - 1), BatchStretch(newest, newest)]


def test_a_compaction_that_is_interrupted_anywhere_leaves_the_lake_whole_and_the_next_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Before the move, before the manifest and before the removal: each finds what the one before has left."""
    lake = Lake(spark, str(tmp_path / "lake"))
    for number in range(3):
        lake.write("bronze", lake.batch(number), spark.range(number * 10, number * 10 + 10))

    remove = lake.files.remove

    def die(*args: Any) -> None:
        raise KeyboardInterrupt

    def die_at_the_first_batch(name: str) -> None:
        return die() if name.endswith(lake.batch(0)) else remove(name)

    exists = lake.files.exists

    def die_before_the_manifest_counts(name: str) -> bool:
        if name.endswith(".json"):
            die()
        return exists(name)

    def ids() -> list[int]:
        rows = lake.read("bronze")
        assert rows is not None
        return sorted(row["id"] for row in rows.collect())

    points: list[tuple[object, str, Any]] = [
        (lake.files, "move", die),
        (lake, "replace", die),
        (lake.files, "exists", die_before_the_manifest_counts),
        (lake.files, "remove", die_at_the_first_batch),
    ]
    for where, what, dying in points:
        with monkeypatch.context() as patch:
            patch.setattr(where, what, dying)
            with pytest.raises(KeyboardInterrupt):
                compact(lake)
        assert ids() == list(range(30)), what
    under_way = [
        f"bronze-{lake.name(BatchStretch(0, last))}" for last in (0, 7)
    ]  # of a stream, and of a compaction that died
    for name in under_way:
        spark.range(1).write.parquet(lake.files / f"_new/{name}")
    compact(lake)
    assert lake.files.names("_new") == under_way[:1]
    assert sorted(os.listdir(tmp_path / "lake")) == [".lake.json.crc", "_new", "bronze", "lake.json"]
    assert sorted(lake.files.names("bronze")) == [lake.name(BatchStretch(0, 1)), lake.batch(2)]
    lake.write("bronze", lake.batch(1), spark.range(5))  # a batch that is in there already
    assert ids() == list(range(30))


def test_what_is_large_already_is_left_alone():
    large, small = BatchStretch(0, 9), BatchStretch(10, 14)
    singles = [BatchStretch(number, number) for number in (15, 16, 17)]
    sizes = {large: 100 * 2**20, small: 2**20} | dict.fromkeys(singles, 2**20)
    assert chosen([large, small, *singles], sizes) == [small, *singles]
    assert chosen([large, small], sizes) == []
    assert chosen([large, singles[0]], sizes) == []
    assert chosen([singles[0], singles[2]], sizes) == []


@pytest.fixture
def bronze_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake without silver and gold: for claims that are about bronze, because they cost seconds."""
    monkeypatch.setattr(running, "STEPS", {})


@pytest.mark.usefixtures("bronze_alone")
def test_a_backfill_begins_where_it_is_told_and_only_a_new_lake(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path
):
    from datetime import UTC, datetime

    queue.push_batch("mail", [b"x"] * 3)
    path = str(tmp_path / "lake")
    given = ["pipeline", "backfill", "--from", "2020-01-01", "--lake", path, "--url", url, "--json"]
    done = json.loads(CliRunner().invoke(stoker, given).stdout)
    assert (done["from"], done["events"]) == ("2020-01-01T00:00:00+00:00", 3)
    with pytest.raises(running.LakeBegun, match="continues it"):
        running.backfill(spark, path, {"url": url}, datetime(2020, 1, 1, tzinfo=UTC))
    queue.push_batch("mail", [b"x"] * 2)
    assert running.run(spark, path, {"url": url}).events == 2


@pytest.mark.usefixtures("bronze_alone")
def test_a_backfill_that_dies_in_its_first_batch_goes_on_from_where_it_was_told(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Spark has planned the batch, and asks the source again where its beginning is."""
    from datetime import UTC, datetime

    job = queue.push("mail", b"x").id
    first = since = queue.get_job(job).pushed_at
    while since == first:  # until the clock of the queue has moved
        job = queue.push("mail", b"x").id
        since = queue.get_job(job).pushed_at
    path, whole = str(tmp_path / "lake"), running.fill
    monkeypatch.setattr(running, "fill", None)
    with pytest.raises(PySparkException):
        running.backfill(spark, path, {"url": url}, datetime.fromtimestamp(since / 1000, UTC))
    assert (tmp_path / "lake" / "_checkpoint" / "offsets" / "0").exists()
    monkeypatch.setattr(running, "fill", whole)
    running.run(spark, path, {"url": url})
    bronze = Lake(spark, path).read("bronze")
    assert bronze is not None
    assert [row.job for row in bronze.select("job").collect()] == [job]
