"""A lake of an earlier release becomes tables, in its place, with the same rows; also if it is killed on the way."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from stoker.cli.main import stoker
from stoker.spark.lake import running
from stoker.spark.lake.convert import convert
from stoker.spark.lake.layout import LAYERS, Lake, NoLake, OldLake, Tables
from tests.soaking import SOAKS
from tests.spark.conftest import Past
from tests.spark.killing import killed_at, traced_to
from tests.spark.life import TENANTS
from tests.spark.old_lake import write_old_lake
from tests.spark_cluster.plain_lake import newest


def rows_of(lake: Path) -> dict[str, Counter[str]]:
    """All rows of all tables."""
    found = {}
    for layer in LAYERS:
        if (lake / layer / "_delta_log").exists():
            rows = DeltaTable(str(lake / layer)).to_pyarrow_table()
            found[layer] = Counter(str(sorted(row.items())) for row in rows.to_pylist())
    return found


@pytest.fixture(scope="module")
def old(past: Past, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Look at it, and change nothing."""
    place = tmp_path_factory.mktemp("old") / "lake"
    write_old_lake(past.path, place)
    return place


def test_an_old_lake_is_refused_with_the_command_that_converts_it(spark: SparkSession, old: Path):
    for look in (lambda: Lake(spark, str(old)), lambda: Tables(str(old))):
        with pytest.raises(OldLake, match=f"stoker pipeline convert --lake {old}"):
            look()


def test_a_converted_lake_has_the_same_rows_and_goes_on(spark: SparkSession, past: Past, old: Path, tmp_path: Path):
    path = tmp_path / "lake"
    shutil.copytree(old, path)
    done = CliRunner().invoke(stoker, ["pipeline", "convert", "--lake", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert {one["layer"] for one in json.loads(done.stdout)} == set(rows_of(past.path))
    assert rows_of(path) == rows_of(past.path)
    assert sorted(one.name for one in path.iterdir() if not one.name.startswith("_")) == sorted(rows_of(past.path))
    assert Tables(str(path)).positions() == past.lake.positions()
    again = running.run(spark, str(path), {"url": past.url, "tenants": ",".join(TENANTS)})
    assert again.events == 0
    with pytest.raises(NoLake, match="nothing to convert"):
        convert(str(path))


def test_a_batch_that_only_bronze_had_is_made_whole_after_the_conversion(
    spark: SparkSession, past: Past, old: Path, tmp_path: Path
):
    path = tmp_path / "lake"
    shutil.copytree(old, path)
    commits = path / "_checkpoint" / "commits"
    last = max(int(one.name) for one in commits.glob("[0-9]*"))
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    for layer in ("jobs", "minutes"):
        shutil.rmtree(next((path / layer).glob(f"batch=*-{last:010d}")))
    convert(str(path))
    assert [batch.number for batch in Tables(str(path)).unfinished()] == [last]
    running.run(spark, str(path), {"url": past.url, "tenants": ",".join(TENANTS)})
    found, wanted = rows_of(path), rows_of(past.path)
    assert {layer: sum(rows.values()) for layer, rows in found.items()} == {
        layer: sum(rows.values()) for layer, rows in wanted.items()
    }
    assert found["jobs"] == wanted["jobs"]


def test_a_lake_without_its_checkpoint_goes_on_after_its_last_events(past: Past, old: Path, tmp_path: Path):
    path = tmp_path / "lake"
    shutil.copytree(old, path)
    shutil.rmtree(path / "_checkpoint")
    convert(str(path))
    assert rows_of(path) == rows_of(past.path)
    ends = past.lake.positions()
    found = Tables(str(path)).positions()
    assert found
    assert all(found[shard] <= ends[shard] for shard in found)


def test_a_conversion_that_is_killed_anywhere_and_run_again_gives_an_equal_lake(past: Past, old: Path, tmp_path: Path):
    """In one lake, each run is killed some steps later than the one before, until one comes to its end."""
    kills = check_kills(killed_at, 3, past, old, tmp_path / "lake")
    assert kills > 5


if SOAKS:

    def test_a_conversion_that_is_killed_between_any_two_requests_to_the_system(past: Past, old: Path, tmp_path: Path):
        """Also inside of delta-rs."""
        shutil.copytree(old, tmp_path / "whole")
        total = traced_to(0, "convert", tmp_path / "whole")
        assert total is not None
        assert check_kills(traced_to, 1 + total // 1_000, past, old, tmp_path / "lake") > 20


def check_kills(kill: Callable[..., int | None], more: int, past: Past, old: Path, path: Path) -> int:
    """How often it was killed."""
    shutil.copytree(old, path)
    kills = 0
    while kill((kills + 1) * more, "convert", path) is None:
        kills += 1
        if not (path / "lake.json").exists():  # everything is done, and it could not say so
            break
    assert not (path / "lake.json").exists()
    assert rows_of(path) == rows_of(past.path)
    assert newest(path / "bronze").applications["stoker/convert/end"] == 1
    return kills
