"""`stoker pipeline forget`, and the commands that need no Spark, as they are typed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from stoker.cli.main import stoker
from stoker.spark.lake.forgetting import BatchUnderWay, forget
from stoker.spark.lake.layout import LAYERS, Lake
from stoker.spark.lake.table import LakeBatch
from tests.spark.conftest import Past
from tests.spark.lake_rows import NOON, ROWS, STREAM, derive, finished, put
from tests.spark.test_lake import undo
from tests.spark_cluster.plain_lake import all_contents


def said(*words: str) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(stoker, ["pipeline", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def rows_by_tenant(lake: Lake) -> dict[str, dict[str, int]]:
    found = {}
    for layer in LAYERS:
        rows = lake.read(layer)
        if rows is not None:
            found[layer] = {row["tenant"]: row["count"] for row in rows.groupBy("tenant").count().collect()}
    return found


def test_a_tenant_is_forgotten_with_a_receipt_and_its_bytes_go(spark: SparkSession, past: Past, tmp_path: Path):
    path = tmp_path / "lake"
    shutil.copytree(past.path, path)
    lake = Lake(spark, str(path))
    before = rows_by_tenant(lake)
    receipt = said("forget", "--tenant", "other", "--lake", str(path))
    assert receipt["rows"] == {layer: counts["other"] for layer, counts in before.items() if "other" in counts}
    assert rows_by_tenant(lake) == {
        layer: {tenant: count for tenant, count in counts.items() if tenant != "other"}
        for layer, counts in before.items()
    }
    assert said("vacuum", "--lake", str(path))[0]["files"] == 0, "readers of earlier versions need them for a day"
    assert said("forget", "--tenant", "other", "--now", "--lake", str(path))["deleted"] >= receipt["files"] > 0
    for layer in receipt["rows"]:
        listed = {file.path for file in lake.view([layer])[layer].files}
        there = {str(place.relative_to(path / layer)) for place in (path / layer).rglob("*.parquet")}
        assert there - {name for name in there if "_delta_log" in name} == listed


def test_a_tenant_is_not_half_forgotten_while_a_batch_is_under_way(spark: SparkSession, tmp_path: Path):
    lake = Lake(spark, str(tmp_path / "lake"))
    finished(lake, 0)
    put(lake, 1, tenant="acme")
    assert forget(lake, "unknown").rows == {}
    with pytest.raises(BatchUnderWay, match="may have rows of acme"):
        forget(lake, "acme")


def test_a_tenant_is_forgotten_by_the_next_run_after_one_that_died(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Before and after the commit of each table. Until then its rows are all there."""
    lake = Lake(spark, str(tmp_path / "lake"))
    for number, tenant in enumerate(("default", "acme")):
        put(lake, number, tenant=tenant)
        derive(lake, number, tenant=tenant)
        lake.finish(LakeBatch(STREAM, number))
    commit = DeltaTable.create_write_transaction
    for number, does_commit in enumerate((False, True, False, True)):

        def die(*given: Any, does_commit: bool = does_commit, **named: Any) -> None:
            if does_commit:
                commit(*given, **named)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", die)
            with pytest.raises(KeyboardInterrupt):
                forget(lake, "acme")
        done = (number + 1) // 2
        rows = [all_contents(tmp_path / "lake", layer).total() for layer in ("bronze", "jobs")]
        assert rows == [ROWS if table < done else 2 * ROWS for table in range(2)]
    assert forget(lake, "acme", now=True).rows == {}
    assert rows_by_tenant(lake) == {layer: {"default": ROWS} for layer in ("bronze", "jobs")}


def test_commands_without_spark_tell_of_the_tables(past: Past, tmp_path: Path):
    path = tmp_path / "lake"
    shutil.copytree(past.path, path)
    undo(path, "bronze")  # the mark of the last batch: it does not count
    status = said("status", "--lake", str(path))
    rows = {one["layer"]: one["rows"] for one in status["layers"]}
    whole = past.lake.read("bronze")
    assert whole is not None
    assert 0 < rows["bronze"] < whole.count()
    newest = said("history", "--lake", str(path), "--layer", "bronze", "--limit", "1")
    assert [(one["operation"], set(one["from"]) == set(one["to"])) for one in newest] == [("batch", True)]
    assert said("expire", "--keep", "1d", "--lake", str(path)) == [], "the events are of the year 2096"
    assert {one["files"] for one in said("vacuum", "--lake", str(path))} == {0}
    for words in (["status"], ["history"], ["vacuum"], ["expire", "--keep", "1d"]):
        done = CliRunner().invoke(stoker, ["pipeline", *words, "--lake", str(path)])
        assert done.exit_code == 0, done.output
        assert done.stdout.strip()


def test_days_expire_by_command(spark: SparkSession, tmp_path: Path):
    lake = Lake(spark, str(tmp_path / "lake"))
    finished(lake, 0, NOON.replace(year=2020))
    finished(lake, 1, NOON.replace(year=2090))
    words = ("expire", "--keep", "30d", "--lake", str(tmp_path / "lake"))
    assert [(one["layer"], one["days"], one["rows"]) for one in said(*words)] == [
        (layer, ["2020-11-18"], ROWS) for layer in ("bronze", "jobs")
    ]
    assert CliRunner().invoke(stoker, ["pipeline", *words]).stdout == "nothing to expire\n"
