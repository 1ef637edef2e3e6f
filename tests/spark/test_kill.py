"""A driver that is killed with kill -9 in the middle of filling a lake: the next run makes the lake whole."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stoker.client.sync import Client
from stoker.spark.lake import reading, running
from stoker.spark.lake.layout import Lake
from tests.spark.story import live
from tests.spark_cluster.plain_lake import newest

PATIENCE_S = 240.0
SOAK = os.environ.get("STOKER_SOAK") == "1"
"""A minute of Spark: `make soak` has it. That an interrupted batch is made whole is also a test of `test_lake.py`."""


def killed_after(batches: int, url: str, lake: Path) -> None:
    """Run the pipeline in a process of its own, and kill it, and its JVM, when so many batches are in bronze."""
    command = [sys.executable, "-m", "stoker", "pipeline", "run", "--url", url, "--lake", str(lake), "--most", "30"]
    with subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as driver:
        until = time.monotonic() + PATIENCE_S
        while newest(lake / "bronze").batch + 1 < batches:
            assert driver.poll() is None, (
                f"it ended before it could be killed: {driver.stderr and driver.stderr.read()}"
            )
            assert time.monotonic() < until, "no batch came"
            time.sleep(0.01)
        os.killpg(driver.pid, signal.SIGKILL)


if SOAK:

    def test_a_lake_is_whole_after_its_driver_was_killed(spark: SparkSession, url: str, queue: Client, tmp_path: Path):
        live(queue, rounds=60)
        path = tmp_path / "lake"
        killed_after(2, url, path)
        running.run(spark, str(path), {"url": url, "maxRecordsPerTrigger": "30"})
        lake = Lake(spark, str(path))
        bronze, gold, jobs = lake.read("bronze"), reading.summary(lake, "day"), reading.jobs(lake)
        assert bronze is not None
        assert gold is not None
        assert jobs is not None
        assert bronze.select("shard", "sequence", "index").distinct().count() == bronze.count()
        totals = queue.get_stats().totals
        found = gold.agg(*[F.sum(name).alias(name) for name in ("pushed", "started", "completed", "failed")]).first()
        assert found is not None
        assert tuple(found) == (totals.pushed, totals.started, totals.completed, totals.failed)
        assert jobs.count() == totals.completed + totals.failed + totals.cancelled
        assert lake.unfinished() == []
