"""A lake that cannot be reached, read or written says so in one line, and nothing is made."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stoker.model.errors import InvalidRequest
from stoker.spark.lake import running
from stoker.spark.lake.files import FilesFailed
from stoker.spark.lake.layout import SOURCE, Lake, NoLake


def test_a_place_that_cannot_be_is_told_without_a_stack(spark: SparkSession, tmp_path: Path):
    (tmp_path / "letter").write_text("dear all")
    for place, why in ((f"{tmp_path}/letter/lake", "is not a directory"), ("abc://host/lake", "abc")):
        with pytest.raises(FilesFailed, match=rf"the lake at {place} cannot be .*{why}") as told:
            Lake(spark, place)
        assert "\n" not in told.value.message


def test_a_file_of_a_lake_that_is_damaged_is_named(spark: SparkSession, tmp_path: Path):
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.files.write_json(SOURCE, {"version": 2, "tenants": ["default"]})
    with pytest.raises(NoLake, match=r"_source\.json is damaged"):
        running.keep_to_its_own(lake, {"url": "tcp://127.0.0.1:1"})
    (tmp_path / "lake" / SOURCE).unlink()
    lake.files.write_json(running.BEGINNING, {})
    with pytest.raises(NoLake, match=r"_beginning\.json is damaged"):
        running.start(spark, lake, {"url": "tcp://127.0.0.1:1"}, {"availableNow": True})
    lake.files.write_json(SOURCE, {"version": "first"})
    with pytest.raises(NoLake, match=r"_source\.json is damaged"):
        Lake(spark, str(tmp_path / "lake"))


def test_no_lake_is_made_for_options_that_cannot_be_meant(spark: SparkSession, tmp_path: Path):
    with pytest.raises(InvalidRequest, match="payloadSchema"):
        running.lake_for(spark, str(tmp_path / "lake"), {"payloadSchema": "user_id bigiint"})
    assert not (tmp_path / "lake").exists()
