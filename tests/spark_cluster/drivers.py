"""A driver that will be killed: a lake, a stream into a queue and a fleet, each held at the points that it is given.

`python -m tests.spark_cluster.drivers MASTER URL FOLDER POINT...`, in a process of its own. All three run at once, so
that one kill meets each of them at its point; whoever goes on takes the same checkpoints.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import stoker.spark
from stoker.spark.fleet.rounds import Round
from stoker.spark.lake import running
from stoker.spark.lake.layout import Lake
from tests.spark_cluster.holding import HeldLake, Points, doubled, hold_source

AT_ONCE = 100
"""Events in a batch of the lake: small, so that there are several while a driver is to be killed."""
ORDERS_AT_ONCE = 6
"""Orders in a batch of the copying stream."""
REST = 100_000
"""Events in a batch when no driver is: what was begun is ended as it was begun, and all else comes at once."""


def lake_path(folder: Path) -> str:
    return f"file://{folder}/lake"


def fill(spark: SparkSession, lake: Lake, url: str, at_once: int = AT_ONCE) -> StreamingQuery:
    """Everything that happens, into the lake."""
    return running.start(spark, lake, {"url": url, "maxRecordsPerTrigger": str(at_once)}, {"availableNow": True})


def copy(spark: SparkSession, folder: Path, url: str, at_once: int = ORDERS_AT_ONCE) -> StreamingQuery:
    """A job in `copies` for each job that was pushed to `orders`: its payload is the number of that."""
    options = {"url": url, "queues": "orders", "events": "pushed", "startingOffsets": "earliest"}
    pushed = spark.readStream.format("stoker").options(**options, maxRecordsPerTrigger=str(at_once)).load()
    writer = pushed.selectExpr("cast(job as string) as payload").writeStream.format("stoker")
    writer = writer.option("url", url).option("queue", "copies").option("checkpointLocation", f"file://{folder}/copied")
    return writer.trigger(availableNow=True).start()


def work(spark: SparkSession, url: str, handler: Callable[[list[int]], Sequence[int]], wait: str = "0s") -> Round:
    """The jobs of `numbers`, to their doubles."""
    return stoker.spark.process(spark, "numbers", handler, url=url, batch=20, slots=2, lease="5s", wait=wait)


def main(master: str, url: str, place: str, *names: str) -> None:
    folder, points = Path(place), Points(place, names)
    spark = stoker.spark.session(master, name="to be killed", settings={"spark.sql.shuffle.partitions": "1"})
    hold_source(spark, points)
    streams = [fill(spark, HeldLake(spark, lake_path(folder), points), url), copy(spark, folder, url)]
    fleet = threading.Thread(target=work, args=(spark, url, doubled(points, held_from=60)), daemon=True)
    fleet.start()
    for stream in streams:
        stream.awaitTermination()
    fleet.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
