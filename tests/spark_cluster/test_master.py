"""`stoker pipeline --master`: the driver is the command itself, and the executors are a cluster's."""

import json
import subprocess
import sys
from pathlib import Path

from stoker.client.sync import Client
from tests.spark_cluster.cluster import PATIENCE_S, SETTINGS, Cluster, environment


def test_a_command_fills_a_lake_with_the_executors_of_a_cluster(
    cluster: Cluster, url: str, queue: Client, tmp_path: Path
):
    """Nobody has told Spark which Python and Java to use: they are those of the command. Settings are the cluster's."""
    queue.push_batch("mail", [b"x"] * 10)
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir()
    defaults.write_text("".join(f"{name} {value}\n" for name, value in SETTINGS.items()))
    variables = environment(SPARK_CONF_DIR=str(defaults.parent))
    for name in ("PYSPARK_PYTHON", "SPARK_HOME", "JAVA_HOME"):
        del variables[name]
    words = ["run", "--master", cluster.url, "--url", url, "--lake", f"{tmp_path}/lake", "--json"]
    command = [sys.executable, "-m", "stoker", "pipeline", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 10
    assert "WARN" not in done.stderr
