"""A run that finds nothing new changes nothing: no batch, no file."""

from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import stoker
from stoker.cli.main import stoker as stoker_command
from stoker.client.sync import Client
from stoker.spark.lake import running
from stoker.spark.lake.layout import Lake
from stoker.spark.lake.table import LakeBatch
from tests.spark.lake_rows import STREAM, finished


def files(place: Path) -> set[Path]:
    return {path.relative_to(place) for path in place.rglob("*") if path.is_file()}


def test_an_idle_run_writes_nothing(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    """Neither of a queue without jobs, nor while only other tenants work."""
    lake = tmp_path / "lake"
    assert running.run(spark, str(lake), {"url": url}) == running.Filled()
    assert not list(lake.rglob("*.parquet"))
    before = files(lake)
    with stoker.connect(url, tenant="other") as other:
        other.push_batch("mail", [b"x"] * 5)
    assert running.run(spark, str(lake), {"url": url}) == running.Filled()
    assert files(lake) == before


def test_an_idle_run_does_not_start_spark(
    spark: SparkSession, url: str, queue: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It asks the queue first. Spark is started as soon as there is an event for this lake."""
    lake = str(tmp_path / "lake")
    queue.push_batch("mail", [b"x"] * 5)
    running.run(spark, lake, {"url": url})
    with stoker.connect(url, tenant="other") as other:
        other.push_batch("mail", [b"x"] * 5)
    monkeypatch.setattr("stoker.cli.pipeline.spark_at", started)
    command = ["pipeline", "run", "--url", url, "--lake", lake]
    done = CliRunner().invoke(stoker_command, command)
    assert (done.exit_code, done.stdout) == (0, f"0 new events in 0 batches: {lake}\n")
    queue.push("mail", b"x")
    assert isinstance(CliRunner().invoke(stoker_command, command).exception, SparkStarted)


class SparkStarted(Exception):
    """A command that should not need Spark started it."""


def started(*_: object) -> NoReturn:
    raise SparkStarted


def test_a_lake_is_not_taken_for_current_in_doubt(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    """Spark looks at an unfinished batch, another schema of payloads and a damaged checkpoint."""
    lake, checkpoint = tmp_path / "lake", tmp_path / "lake" / "_checkpoint"
    queue.push_batch("mail", [b"x"] * 5)
    assert not running.has_nothing_new(str(lake), {"url": url})
    running.run(spark, str(lake), {"url": url})
    assert running.has_nothing_new(str(lake), {"url": url})
    assert not running.has_nothing_new(str(lake), {"url": url, "payloadSchema": "a int"})
    with pytest.raises(running.LakeOfOthers):
        running.has_nothing_new(str(lake), {"url": url, "queues": "sms"})
    (checkpoint / "commits" / "0").rename(tmp_path / "kept")
    assert not running.has_nothing_new(str(lake), {"url": url})
    (tmp_path / "kept").rename(checkpoint / "commits" / "0")
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n{")
    assert not running.has_nothing_new(str(lake), {"url": url})


def test_a_layer_without_rows_of_a_batch_writes_nothing(spark: SparkSession, tmp_path: Path):
    """Most batches have nothing to say of schedules, or of failures."""
    lake = Lake(spark, str(tmp_path / "lake"))
    finished(lake, 0)
    rows = lake.read("jobs")
    assert rows is not None
    before = files(tmp_path / "lake")
    assert lake.write("jobs", LakeBatch(STREAM, 1), rows.where("false")) == 0
    assert files(tmp_path / "lake") == before
