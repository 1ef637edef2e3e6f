"""A lake is filled once, whole, and only where it belongs."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stoker.cli.main import stoker
from stoker.client.sync import Client
from stoker.model.errors import NewerFormat
from stoker.spark.lake import reading, running
from stoker.spark.lake.layout import SOURCE, Lake, NoLake
from tests.spark.conftest import Past
from tests.spark.life import TENANTS, counters
from tests.spark_cluster.plain_lake import all_contents


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


def forget_commit(lake: Path) -> int:
    """Let Spark forget that the last batch is done, as if the driver had died before. Returns its number."""
    commits = lake / "_checkpoint" / "commits"
    number = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (str(number), f".{number}.crc"):
        (commits / name).unlink(missing_ok=True)
    return number


def undo(lake: Path, layer: str, versions: int = 1) -> None:
    """Take the newest versions of a table back, as if they had never been committed."""
    log = sorted((lake / layer / "_delta_log").glob("[0-9]*.json"))
    for path in log[-versions:]:
        path.unlink()


def check_counts(lake: Lake, queue: Client) -> None:
    """Each event is in bronze once, and gold and silver count what the queue has counted."""
    bronze, gold, jobs = lake.read("bronze"), reading.summary(lake, "day"), reading.jobs(lake)
    assert bronze is not None
    assert gold is not None
    assert jobs is not None
    assert bronze.select("shard", "sequence", "index").distinct().count() == bronze.count()
    told = counters(queue).values()
    names = ("pushed", "started", "completed", "failed")
    found = gold.agg(*[F.sum(name).alias(name) for name in names]).first()
    assert found is not None
    assert tuple(found) == tuple(sum(counted[name] for counted in told) for name in names)


def test_a_batch_that_was_interrupted_is_made_whole_and_not_doubled(spark: SparkSession, past: Past, tmp_path: Path):
    """The driver dies after bronze and before the rest, and before Spark knows that the batch is done."""
    path = tmp_path / "lake"
    shutil.copytree(past.path, path)
    number = forget_commit(path)
    for layer in ("bronze", "jobs", "minutes"):  # of bronze, only the mark that the batch is whole
        undo(path, layer)
    lake = Lake(spark, str(path))
    assert [batch.number for batch in lake.unfinished()] == [number]
    bronze = lake.read("bronze")
    whole = past.lake.read("bronze")
    assert bronze is not None
    assert whole is not None
    assert bronze.count() < whole.count(), "the batch does not count before all tables have it"
    running.run(spark, str(path), {"url": past.url, "tenants": ",".join(TENANTS)})
    assert lake.unfinished() == []
    check_counts(lake, past.queue)
    for layer in ("bronze", *running.STEPS):
        assert lake.table(layer).open().version() == past.lake.table(layer).open().version(), layer


def test_a_lake_whose_checkpoint_is_lost_goes_on_from_where_it_ends(spark: SparkSession, past: Past, tmp_path: Path):
    """The newest batch was in bronze alone: it is finished first."""
    path = tmp_path / "lake"
    shutil.copytree(past.path, path)
    for layer in ("bronze", "minutes"):
        undo(path, layer)
    shutil.rmtree(path / "_checkpoint")
    done = running.run(spark, str(path), {"url": past.url, "tenants": ",".join(TENANTS)})
    assert done.events == 0
    check_counts(Lake(spark, str(path)), past.queue)


def test_a_checkpoint_of_another_lake_is_refused(spark: SparkSession, past: Past, tmp_path: Path):
    path = tmp_path / "lake"
    shutil.copytree(past.path, path)
    shutil.rmtree(path / "_checkpoint" / "commits")
    for place in (path / "_checkpoint" / "offsets").glob("*"):
        if place.name not in ("0", ".0.crc"):
            place.unlink()
    (path / "_checkpoint" / "metadata").write_text('{"id":"ffff0000-0000-0000-0000-000000000000"}')
    (path / "_checkpoint" / ".metadata.crc").unlink(missing_ok=True)
    with pytest.raises(PySparkException, match=r"LakeElsewhere: the lake ends at record"):
        running.run(spark, str(path), {"url": past.url, "tenants": ",".join(TENANTS)})


def test_other_engines_see_the_same_rows(past: Past):
    bronze = past.lake.read("bronze")
    assert bronze is not None
    rows = bronze.count()
    assert polars.scan_delta(str(past.path / "bronze")).select(polars.len()).collect().item() == rows
    assert DeltaTable(str(past.path / "bronze")).to_pyarrow_dataset().count_rows() == rows
    assert sum(all_contents(past.path, "bronze").values()) == rows


def test_a_period_reads_only_its_files(past: Past):
    """Days of a queue are in files of their own; also where only the table's list of files says so."""
    whole = past.lake.read("bronze")
    assert whole is not None
    first = whole.agg(F.min("time")).collect()[0][0].replace(tzinfo=None)
    begin = datetime(first.year, first.month, first.day, tzinfo=UTC) + timedelta(days=1)
    day = past.lake.read("bronze", since=begin, until=begin + timedelta(hours=24))
    assert day is not None
    files = {Path(name).parent.name for name in day.inputFiles()}
    assert files == {f"date={begin:%Y-%m-%d}"}
    assert len(day.inputFiles()) < len(whole.inputFiles())
    assert day.count() == whole.where(f"date = '{begin:%Y-%m-%d}'").count() > 0
    unknown = past.lake.read("bronze", tenant="zoe")
    assert unknown is not None
    assert (unknown.inputFiles(), unknown.count()) == ([], 0)


def test_a_lake_of_a_later_release_is_left_alone(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
    queue.push("mail", b"x")
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.files.write_json(SOURCE, {"version": 99})
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
    (tmp_path / SOURCE).write_text("{")
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


def test_the_column_has_the_fingerprints_of_the_engine(spark: SparkSession):
    from stoker.model.fingerprints import fingerprint_of
    from stoker.spark.lake.silver import fingerprint
    from tests.unit.test_fingerprints import HOSTILE

    columns = "error_class string, error string"
    rows = spark.createDataFrame(list(HOSTILE), columns).select(fingerprint().alias("f")).collect()
    expected = [fingerprint_of(error_class or "", error or "") for error_class, error in HOSTILE]
    assert [row["f"] for row in rows] == [
        found if error_class or error else None for found, (error_class, error) in zip(expected, HOSTILE, strict=True)
    ]
