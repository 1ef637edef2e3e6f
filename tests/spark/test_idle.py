"""A run that finds nothing new changes nothing: no batch, no file."""

from pathlib import Path

from pyspark.sql import SparkSession

import stoker
from stoker.client.sync import Client
from stoker.spark.lake import running


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
