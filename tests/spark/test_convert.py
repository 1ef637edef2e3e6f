"""A lake of an earlier release becomes tables, in its place, with the same rows; also if it is killed on the way."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from stoker.cli.main import stoker
from stoker.spark.lake import running, writing
from stoker.spark.lake.convert import convert
from stoker.spark.lake.files import Files
from stoker.spark.lake.layout import LAYERS, Lake, NoLake, OldLake, Tables
from tests.spark.conftest import Past
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


class Killed(BaseException):
    """The process ends here."""


class Countdown:
    """Ends a conversion at its nth step: before or after a file is written, moved or removed, or a commit is made."""

    def __init__(self, patch: pytest.MonkeyPatch, steps: int) -> None:
        self.left = steps
        for place, name in (
            (Files, "move"),
            (Files, "remove"),
            (Files, "write_json"),
            (Files, "open_new"),
            (DeltaTable, "create_write_transaction"),
            (DeltaTable, "create"),
        ):
            patch.setattr(place, name, self.counted(getattr(place, name)))
        patch.setattr(writing.FileWriter, "_close", self.counted(writing.FileWriter._close))

    def counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            self.tick()
            result = method(*given, **named)
            self.tick()
            return result

        return step

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def test_a_conversion_that_is_killed_anywhere_and_run_again_gives_an_equal_lake(
    past: Past, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In one lake, the nth run is killed at its nth step, until one comes to its end; another is killed at all steps of
    the last part, where names change.
    """
    wanted = rows_of(past.path)
    path = tmp_path / "lake"
    shutil.copytree(old, path)
    kills = 0
    while (path / "lake.json").exists():
        kills += 3
        with monkeypatch.context() as patch:
            Countdown(patch, kills)
            try:
                convert(str(path))
            except Killed:
                pass
    assert kills > 15
    assert rows_of(path) == wanted
    assert newest(path / "bronze").applications["stoker/convert/end"] == 1
