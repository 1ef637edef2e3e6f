"""Spark runs a slow task a second time beside the first: whichever ends first, its rows are pushed once.

Only `make soak` has it: it needs a cluster of its own, because Spark puts the second attempt at another host, and a
driver of its own, because an application speculates from its beginning or never.

`python -m tests.spark_cluster.test_speculation MASTER URL FOLDER` is that driver.
"""

import os
import subprocess
import sys
from pathlib import Path

import stoker.spark
from stoker.client.sync import Client
from tests.spark_cluster.cluster import INSTALLED, PATIENCE_S, SETTINGS, Cluster, environment, numbers_in
from tests.spark_cluster.holding import Points, held_source

SOAK = os.environ.get("STOKER_SOAK") == "1"
ROWS = 600
SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.executorEnv.PYTHONPATH": INSTALLED,
}


def main(master: str, url: str, folder: str) -> None:
    """Write a DataFrame. The task that comes to it first has staged its rows and does not go on."""
    spark = stoker.spark.session(master, name="speculating", settings=SETTINGS | SPECULATING)
    spark.dataSource.register(held_source(Points(folder, ("staged",))))
    rows = spark.range(ROWS, numPartitions=4).selectExpr("cast(id as string) as payload")
    rows.write.format("stoker").mode("append").option("url", url).option("queue", "rows").save()
    spark.stop()


if SOAK:

    def test_rows_are_pushed_once_when_a_second_attempt_overtakes_one_that_has_staged_them(
        url: str, queue: Client, tmp_path: Path
    ):
        cluster = Cluster(tmp_path, hosts=("127.0.0.1", "127.0.0.2"))
        try:
            command = [sys.executable, "-m", "tests.spark_cluster.test_speculation", cluster.url, url, str(tmp_path)]
            variables = environment(PYTHONPATH=INSTALLED)
            done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=PATIENCE_S)
        finally:
            cluster.close()
        assert done.returncode == 0, done.stderr
        assert Points(str(tmp_path), ()).reached("staged")
        assert numbers_in(queue, "rows") == list(range(ROWS))


if __name__ == "__main__":
    main(*sys.argv[1:])
