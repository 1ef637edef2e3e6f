"""`spark-submit` of the packaged pipeline to a cluster: where Stoker is installed, and where it comes in a zip."""

import subprocess
import sys
import venv
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stoker.client.sync import Client
from stoker.spark.lake import reading
from stoker.spark.lake.layout import Lake
from stoker.spark.packing import pack
from tests.spark.story import live
from tests.spark_cluster.cluster import PATIENCE_S, SETTINGS, Cluster, environment


def test_a_cluster_where_stoker_is_installed_finds_the_source_by_itself(spark: SparkSession, url: str, queue: Client):
    queue.push_batch("mail", [b""] * 10)
    strange = spark.newSession()  # in which nobody has registered anything
    pushed = strange.read.format("stoker").option("url", url).option("events", "pushed").load()
    assert pushed.count() == 10


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with everything that this one has, but no Stoker."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    for entry in Path(pyspark.__file__).parents[1].iterdir():
        if "stoker" not in entry.name and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    python = home / "bin" / "python"
    found = subprocess.run([python, "-c", "import pyspark, stoker"], capture_output=True, text=True, env=environment())
    assert "No module named 'stoker'" in found.stderr
    return python


def submitted(cluster: Cluster, python: Path, folder: Path, *arguments: str) -> str:
    """Run a program on the cluster, with this Python for the driver and the executors; what it printed."""
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    command = ["spark-submit", "--master", cluster.url, *settings, *arguments]
    variables = environment(PYSPARK_PYTHON=str(python), PYSPARK_DRIVER_PYTHON=str(python))
    command[0] = f"{variables['SPARK_HOME']}/bin/spark-submit"
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_lake_is_filled_by_a_cluster_to_which_stoker_comes_in_a_zip(
    cluster: Cluster, spark: SparkSession, bare: Path, url: str, queue: Client, tmp_path: Path
):
    live(queue, rounds=30)
    packed, path = pack(tmp_path / "packed"), f"file://{tmp_path}/lake"
    program = ["--py-files", str(packed.archive), str(packed.program)]
    told = submitted(cluster, bare, tmp_path, *program, "run", "--lake", path, "--url", url, "--json")
    check(Lake(spark, path), queue)
    assert '"batches":' in told


def check(lake: Lake, queue: Client) -> None:
    """Every layer counts what the queue itself counts."""
    totals = queue.get_stats().totals
    bronze, gold, jobs = lake.read("bronze"), reading.summary(lake, "day"), reading.jobs(lake)
    assert bronze is not None
    assert gold is not None
    assert jobs is not None
    counted = {row.event: row["count"] for row in bronze.groupBy("event").count().collect()}
    names = ("pushed", "started", "completed", "failed")
    own = {name: getattr(totals, name) for name in names}
    assert {name: counted[name] for name in names} == own
    found = gold.agg(*[F.sum(name).alias(name) for name in names]).first()
    assert found is not None
    assert found.asDict() == own
    assert jobs.count() == totals.completed + totals.failed + totals.cancelled
