"""Few files of many, and the same numbers before, meanwhile and afterwards."""

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stoker.cli.main import stoker
from stoker.client.sync import Client
from stoker.spark.lake import reading, running, upkeep
from stoker.spark.lake.compaction import SMALL_BYTES, chosen, compact, compact_layer
from stoker.spark.lake.layout import Lake
from stoker.spark.lake.table import LakeBatch, LiveFile
from tests.spark.conftest import Past
from tests.spark.lake_rows import NOON, ROWS, STREAM, count, finished, put
from tests.spark_cluster.plain_lake import all_contents, snapshots

log = logging.getLogger(__name__)
SOAK = os.environ.get("STOKER_SOAK") == "1"


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
    before = told(lake)
    dates = {file.date for file in lake.view(["bronze"])["bronze"].files}
    words = ["pipeline", "compact", "--lake", str(path)]
    done = {one["layer"]: one for one in json.loads(CliRunner().invoke(stoker, [*words, "--json"]).stdout)}
    assert set(done) >= {"bronze", "attempts", "jobs", "minutes", "failures", "workers"}
    assert told(lake) == before
    files = lake.view(["bronze"])["bronze"].files
    assert sorted(file.date for file in files) == sorted(dates), "one file for each date"
    rows = pq.read_table(path / "bronze" / files[0].path, columns=["tenant", "queue", "time"]).to_pylist()
    order = [tuple(row.values()) for row in rows]
    assert order == sorted(order)
    assert DeltaTable(str(path / "bronze")).to_pyarrow_dataset().count_rows() == len(before["events"])
    gold = lake.read("minutes")
    assert gold is not None
    assert gold.groupBy("tenant", "queue", "name", "minute").count().where("count > 1").count() == 0
    assert CliRunner().invoke(stoker, words).stdout == "nothing to compact\n"


def test_a_compaction_leaves_a_batch_alone_that_a_table_lacks(spark: SparkSession, tmp_path: Path):
    lake = Lake(spark, str(tmp_path / "lake"))
    for number in range(2):
        finished(lake, number)
    put(lake, 2)
    assert [(one.layer, one.files, one.into) for one in compact(lake)] == [("bronze", 2, 1), ("jobs", 2, 1)]
    assert sum(file.rows for file in lake.files_of(LakeBatch(STREAM, 2))) == ROWS
    assert count(lake, "bronze") == 3 * ROWS


def test_a_compaction_that_dies_before_or_after_its_commit_leaves_the_table_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lake = Lake(spark, str(tmp_path / "lake"))
    for number in range(3):
        finished(lake, number)
    commit = DeltaTable.create_write_transaction

    def die(*args: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    def die_afterwards(*args: Any, **named: Any) -> None:
        commit(*args, **named)
        raise KeyboardInterrupt

    for dying in (die, die_afterwards):
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", dying)
            with pytest.raises(KeyboardInterrupt):
                compact_layer(lake, "bronze")
        assert count(lake, "bronze") == 3 * ROWS
    assert len(lake.view(["bronze"])["bronze"].files) == 1
    assert compact_layer(lake, "bronze") is None


def test_a_pinned_lake_stays_as_it_is(spark: SparkSession, tmp_path: Path):
    """A report reads several tables, one after the other, while a stream goes on and files are merged."""
    lake = Lake(spark, str(tmp_path / "lake"))
    for number in range(2):
        finished(lake, number)
    pinned = lake.pinned()
    finished(lake, 2)
    compact(lake)
    for layer in ("bronze", "jobs"):
        rows = [one.read(layer) for one in (pinned, lake)]
        assert [frame.count() for frame in rows if frame is not None] == [2 * ROWS, 3 * ROWS]


def test_what_is_large_already_is_left_alone():
    large = LiveFile("date=2026-11-18/merged-1.parquet", SMALL_BYTES, "2026-11-18", 9, {}, {})
    small = [large._replace(path=f"{number}.parquet", size=9) for number in range(2)]
    alone = small[0]._replace(date="2026-11-19")
    assert chosen([large, *small, alone]) == small
    assert chosen([large, small[0], alone]) == []


def test_readers_beside_a_stream_and_compactions_see_whole_batches(spark: SparkSession, tmp_path: Path):
    """deltalake, Polars and our own reader of the log count at any moment, and never see a part of a batch, a row twice
    or a file that is gone.
    """
    lake = Lake(spark, str(tmp_path / "lake"))
    finished(lake, 0)
    table = tmp_path / "lake" / "bronze"
    over = threading.Event()

    def plainly() -> int:
        return sum(all_contents(tmp_path / "lake", "bronze").values())

    def as_delta() -> int:
        return int(DeltaTable(str(table)).to_pyarrow_dataset().count_rows())

    def as_frame() -> int:
        return int(polars.scan_delta(str(table)).select(polars.col("sequence").n_unique()).collect().item())

    def stream() -> int:
        number = 0
        while not over.is_set():
            number += 1
            finished(lake, number)
        return number

    def read(rows: Callable[[], int]) -> list[int]:
        found = [rows()]
        while not over.is_set():
            found.append(rows())
        return found

    readers = (plainly, as_delta, as_frame)
    with ThreadPoolExecutor(len(readers) + 1) as pool:
        written = pool.submit(stream)
        counts = [pool.submit(read, rows) for rows in readers]
        try:
            until = time.monotonic() + (60 if SOAK else 3)
            compactions = 0
            while time.monotonic() < until or compactions < 2:
                compactions += compact_layer(lake, "bronze") is not None
                upkeep.expire(lake, timedelta(days=1), ["bronze"], NOON)  # nothing is as old
        finally:
            over.set()
        total = written.result() + 1
        reads = {rows.__name__: len(found.result()) for rows, found in zip(readers, counts, strict=True)}
        log.warning("%s reads beside %s batches and %s compactions", reads, total, compactions)
        for found in counts:
            assert all(rows % ROWS == 0 for rows in found.result())
            assert found.result() == sorted(found.result())
            assert found.result()[-1] <= total * ROWS
    assert [rows() for rows in readers] == [total * ROWS] * len(readers)
    versions = snapshots(table)
    log.warning("%s versions", len(versions))
    for one in versions:
        assert DeltaTable(str(table), version=one.version).to_pyarrow_dataset().count_rows() == ROWS * (one.batch + 1)


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
    path, whole = str(tmp_path / "lake"), running.Intake.take
    monkeypatch.setattr(running.Intake, "take", None)
    with pytest.raises(PySparkException):
        running.backfill(spark, path, {"url": url}, datetime.fromtimestamp(since / 1000, UTC))
    assert (tmp_path / "lake" / "_checkpoint" / "offsets" / "0").exists()
    monkeypatch.setattr(running.Intake, "take", whole)
    running.run(spark, path, {"url": url})
    bronze = Lake(spark, path).read("bronze")
    assert bronze is not None
    assert [row.job for row in bronze.select("job").collect()] == [job]
