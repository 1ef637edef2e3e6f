"""Through Spark Connect: a client without a JVM of its own, in a process of its own, reads, writes and works."""

import os
import subprocess
import sys
from pathlib import Path

import stoker

PROGRAM = """
import sys
import stoker.spark
from pyspark.sql import SparkSession
from stoker.model.errors import InvalidRequest
from stoker.spark.lake import running
from stoker.spark.starting import LOCAL, SETTINGS, prepare

url = sys.argv[1]
builder = SparkSession.builder.remote("local[2]")
for name, value in (SETTINGS | LOCAL | prepare(True) | {"spark.connect.grpc.binding.address": "127.0.0.1"}).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect."), type(spark)
stoker.spark.register(spark)
events = spark.read.format("stoker").option("url", url).load()
print("pushed", events.where("event = 'pushed' and queue = 'mail'").count())
rows = events.where("event = 'pushed'").selectExpr("job", "queue AS came_from")
rows.write.format("stoker").mode("append").option("url", url).option("queue", "copies").save()
print("worked", stoker.spark.process(spark, "sms", lambda texts: list(map(len, texts)), url=url, slots=1).completed)
try:
    running.run(spark, sys.argv[2], {"url": url})
except InvalidRequest as error:
    print("refused:", error.message)
spark.stop()
"""


def test_a_connect_session_reads_writes_and_works(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/queue?shards=2"
    with stoker.connect(url) as queue:
        queue.push_batch("mail", [b"x"] * 5)
        queue.push_batch("sms", [b"y"] * 2)
        free = os.environ | {"SPARK_TESTING": "1"}  # any free port, and not the one that everybody has
        command = [sys.executable, "-c", PROGRAM, url, str(tmp_path / "lake")]
        done = subprocess.run(command, env=free, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "pushed 5" in done.stdout
        assert "worked 2" in done.stdout
        assert "refused: a lake is filled by a session with a JVM of its own" in done.stdout
        assert not (tmp_path / "lake").exists()
        assert queue.get_counts("copies").waiting == 7
