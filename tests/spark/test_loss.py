"""`--allow-loss`: a lake whose queue has dropped events goes on only with this flag."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stoker.cli import exit_codes
from stoker.cli.main import run
from stoker.spark.lake import running
from stoker.spark.lake.layout import Lake
from tests.spark.test_retention import SHARD, Forgetful, pushed_since


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Forgetful]:
    made = Forgetful(tmp_path)
    yield made
    made.close()


def test_a_lake_goes_on_without_what_was_dropped_only_if_it_may(
    spark: SparkSession,
    forgetful: Forgetful,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(running, "STEPS", {})  # silver and gold are made of bronze, and cost seconds
    words = ["pipeline", "run", "--url", forgetful.url, "--lake", str(tmp_path / "lake")]

    def taken() -> list[int]:
        bronze = Lake(spark, str(tmp_path / "lake")).read("bronze")
        assert bronze is not None
        rows = bronze.where(f"shard = {SHARD}").select("sequence").distinct().collect()
        return sorted(row["sequence"] for row in rows)

    assert run(words) == exit_codes.OK
    before = taken()
    reach = forgetful.forget()
    capfd.readouterr()
    assert run(words) == exit_codes.FAILED
    said = capfd.readouterr().err
    assert f"the oldest one that is kept is {reach.lowest}" in said
    assert "failOnDataLoss" not in said
    assert "--allow-loss" in said
    assert said.count("\n") == 1
    assert taken() == before
    assert run([*words, "--allow-loss"]) == exit_codes.OK
    assert taken() == before + pushed_since(forgetful, reach.lowest)
