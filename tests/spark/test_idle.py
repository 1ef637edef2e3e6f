"""A run that finds nothing new changes nothing: no batch, no file."""

from pathlib import Path

from pyspark.sql import SparkSession

import stoker
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


def test_a_layer_without_rows_of_a_batch_writes_nothing(spark: SparkSession, tmp_path: Path):
    """Most batches have nothing to say of schedules, or of failures."""
    lake = Lake(spark, str(tmp_path / "lake"))
    finished(lake, 0)
    rows = lake.read("jobs")
    assert rows is not None
    before = files(tmp_path / "lake")
    assert lake.write("jobs", LakeBatch(STREAM, 1), rows.where("false")) == 0
    assert files(tmp_path / "lake") == before
