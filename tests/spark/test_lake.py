"""A lake is filled once, whole, and only where it belongs."""

import json
import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stoker.cli.main import stoker
from stoker.client.sync import Client
from stoker.model.errors import NewerFormat
from stoker.spark.lake import reading, running
from stoker.spark.lake.layout import HEAD, Lake, NoLake
from tests.spark.conftest import Past
from tests.spark.life import TENANTS, counters


def test_a_run_with_nothing_new_changes_nothing(past: Past):
    before = written(past.path)
    words = ["pipeline", "run", "--lake", str(past.path), "--url", past.url, "--tenants", "other,default", "--json"]
    done = CliRunner().invoke(stoker, words)
    assert (json.loads(done.stdout)["batches"], json.loads(done.stdout)["events"]) == (0, 0)
    assert written(past.path) == before


def test_a_lake_keeps_to_what_it_was_begun_with(spark: SparkSession, past: Past):
    """Else the past of another tenant would be missing, and nobody would notice."""
    with pytest.raises(running.LakeOfOthers, match="begun with tenants default, other and not default"):
        running.run(spark, str(past.path), {"url": past.url})


def written(lake: Path) -> dict[str, int]:
    """The files of a lake's tables, and when each was written."""
    return {str(file): file.stat().st_mtime_ns for file in lake.glob("[!_]*/**/*") if file.is_file()}


def test_a_batch_that_was_interrupted_is_made_whole_and_not_doubled(spark: SparkSession, past: Past, tmp_path: Path):
    """The driver dies after bronze and before the rest, and before Spark knows that the batch is done."""
    shutil.copytree(past.path, tmp_path / "lake")
    lake = Lake(spark, str(tmp_path / "lake"))
    batch = lake.files.names("bronze")[-1]
    for layer in ("jobs", "minutes"):
        lake.files.remove(f"{layer}/{batch}")
    number = int(batch.rsplit("-", 1)[1])
    for name in (str(number), f".{number}.crc"):
        (tmp_path / "lake" / "_checkpoint" / "commits" / name).unlink(missing_ok=True)
    running.run(spark, str(tmp_path / "lake"), {"url": past.url, "tenants": ",".join(TENANTS)})
    assert lake.files.names("bronze") == lake.files.names("jobs") == past.lake.files.names("minutes")
    bronze, gold = lake.read("bronze"), reading.summary(lake, "day")
    assert bronze is not None
    assert gold is not None
    assert bronze.select("shard", "sequence", "index").distinct().count() == bronze.count()
    pushed = gold.agg(F.sum("pushed")).first()
    assert pushed is not None
    assert pushed[0] == sum(counted["pushed"] for counted in counters(past.queue).values())


def test_other_readers_of_the_files_see_the_same_rows(past: Past):
    bronze = past.lake.read("bronze")
    assert bronze is not None
    assert plain_rows(past.path / "bronze") == bronze.count()


def test_other_readers_see_a_batch_whole_or_not_at_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They look while the second batch is all written, and not yet moved in."""
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.write("bronze", lake.batch(0), spark.range(10))
    seen: list[int] = []
    move = lake.files.move

    def looked_at(name: str, to: str) -> None:
        assert list((tmp_path / "lake" / name).glob("*.parquet"))
        seen.append(plain_rows(tmp_path / "lake" / "bronze"))
        move(name, to)

    monkeypatch.setattr(lake.files, "move", looked_at)
    lake.write("bronze", lake.batch(1), spark.range(7))
    assert [*seen, plain_rows(tmp_path / "lake" / "bronze")] == [10, 17]


def plain_rows(directory: Path) -> int:
    """As somebody counts them who knows nothing of lakes."""
    return int(ds.dataset(directory, format="parquet", partitioning="hive").count_rows())


def test_a_lake_of_a_later_release_is_left_alone(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    queue.push("mail", b"x")
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.files.write_json(HEAD, {"version": 99, "epoch": "x"})
    before = sorted((tmp_path / "lake").rglob("*"))
    with pytest.raises(NewerFormat, match="use that release"):
        running.run(spark, str(tmp_path / "lake"), {"url": url})
    assert sorted((tmp_path / "lake").rglob("*")) == before


def test_a_lake_is_made_only_where_there_is_nothing(spark: SparkSession, tmp_path: Path):
    with pytest.raises(NoLake, match="stoker pipeline run"):
        Lake(spark, str(tmp_path / "lake"), make=False)
    assert not (tmp_path / "lake").exists()
    (tmp_path / "letter.txt").write_text("dear all")
    with pytest.raises(NoLake, match="other files"):
        Lake(spark, str(tmp_path))
    (tmp_path / HEAD).write_text("{")
    with pytest.raises(NoLake, match="damaged"):
        Lake(spark, str(tmp_path))


def test_errors_that_differ_in_numbers_have_one_fingerprint(spark: SparkSession):
    from stoker.spark.lake.silver import fingerprint

    errors = [
        ("OSError", "no route to host 10.0.0.7 after 30 s"),
        ("OSError", "no route to host 10.1.2.3 after 5 s"),
        ("KeyError", "'user-7'"),
        ("KeyError", "'user-8'"),
        (None, None),
    ]
    rows = spark.createDataFrame(errors, "error_class string, error string").select(fingerprint().alias("f")).collect()
    assert [row["f"] for row in rows] == [
        "OSError: no route to host #.#.#.# after # s",
        "OSError: no route to host #.#.#.# after # s",
        "KeyError: '…'",
        "KeyError: '…'",
        None,
    ]
