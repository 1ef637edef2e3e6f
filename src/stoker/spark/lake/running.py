"""Fills a lake: a stream of events, batch by batch, through all layers.

The stream keeps its position in a checkpoint beside the lake. An interrupted batch is run again under the same number;
parts that exist already stay, so every event is in each layer once, whatever was killed when.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stoker.model.errors import StokerError
from stoker.spark.lake import gold, quarantine, silver
from stoker.spark.lake.layout import Lake
from stoker.spark.options import read_options

STEPS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "minutes": gold.minutes,
    "attempts": silver.attempts,
    "jobs": silver.jobs,
    "failures": gold.failures,
    "workers": gold.workers,
    "schedules": gold.schedules,
}
"""The layers made from the events of a batch; the slowest is begun first."""

AT_ONCE = 3
"""Layers of a batch that are made at once: while one is being planned, others work."""
FILE_BYTES = 16 * 1024 * 1024
"""File size of bronze; other layers write one file."""

SOURCE = "_source.json"
"""The tenants, queues and kinds of events that a lake began with, if not all."""
BEGINNING = "_beginning.json"
"""Where a backfill begins. Spark asks for it again if the first batch was interrupted, and later runs read it."""


class LakeBegun(StokerError):
    """The lake already has a beginning."""

    code = "lake_begun"


class LakeOfOthers(StokerError):
    """The lake was begun with other tenants, queues or events."""

    code = "lake_of_others"


@dataclass
class Filled:
    """The outcome of a run."""

    batches: int = 0
    events: int = 0
    quarantined: int = 0
    """Payloads that could not be decoded, if a schema was given."""


def fill(lake: Lake, events: DataFrame, batch: str, files: int) -> None:
    """Write one batch to all layers. Bronze comes first, and the others are made from its files.

    They are made at the same time, because most are too small to keep all cores busy. Each reads only its columns from
    the files, which costs a fraction of keeping all of them in memory.
    """
    lake.write("bronze", batch, events, files)
    written = lake.spark.read.schema(events.schema).parquet(lake.files / f"bronze/{batch}")
    wide = min(files, 1 + lake.files.size(f"bronze/{batch}") // FILE_BYTES)
    steps = STEPS | {quarantine.LAYER: quarantine.corrupt} if quarantine.is_told(events) else STEPS

    def step(layer: str) -> None:
        lake.write(layer, batch, steps[layer](written), wide)

    inherited = inheritable_thread_target(lake.spark)(step)
    with ThreadPoolExecutor(AT_ONCE, "stoker-lake") as pool:
        for made in [pool.submit(inherited, layer) for layer in steps]:
            made.result()


def lake_for(spark: SparkSession, path: str, options: dict[str, str]) -> Lake:
    """The lake at a path. It is not created for invalid options."""
    read_options(options, streaming=True)
    return Lake(spark, path)


def start(
    spark: SparkSession,
    lake: Lake,
    options: dict[str, str],
    trigger: dict[str, Any],
    done: Filled | None = None,
    starting: str = "earliest",
) -> StreamingQuery:
    """Begin to fill a lake from a queue. `trigger` is Spark's: availableNow, or processingTime."""
    keep_to_its_own(lake, options)
    cores = spark.sparkContext.defaultParallelism
    wanted = {"maxRecordsPerTrigger": "200000", "minPartitions": str(cores), **options}
    if lake.files.exists(BEGINNING):
        wanted |= lake.told(BEGINNING, startingTimestamp=str)
    else:
        wanted.setdefault("startingOffsets", starting)
    reader = spark.readStream.format("stoker")
    for name, value in wanted.items():
        reader = reader.option(name, value)
    rows = reader.load()
    quarantine.check_fields(lake, rows)

    def step(events: DataFrame, number: int) -> None:
        fill(lake, events, lake.batch(number), cores)
        if done is not None:
            done.batches += 1
            done.events += lake.spark.read.parquet(lake.files / f"bronze/{lake.batch(number)}").count()
            if quarantine.is_told(events):
                done.quarantined += lake.spark.read.parquet(
                    lake.files / f"{quarantine.LAYER}/{lake.batch(number)}"
                ).count()

    writer = rows.writeStream.foreachBatch(step).option("checkpointLocation", lake.checkpoint)
    return writer.trigger(**trigger).start()


def keep_to_its_own(lake: Lake, options: dict[str, str]) -> None:
    """Refuse other tenants, queues or events than before: those older than the checkpoint would be missing silently."""
    asked = read_options(options, streaming=True)
    found = {"tenants": asked.tenants, "queues": asked.queues or (), "events": asked.events or ()}
    about = {name: sorted(values) for name, values in found.items()}
    if not lake.files.exists(SOURCE):
        lake.files.write_json(SOURCE, about)
        return
    known = lake.told(SOURCE, **dict.fromkeys(about, list))
    for name, values in about.items():
        if values != known[name]:
            before, now = (", ".join(listed) or "all" for listed in (known[name], values))
            raise LakeOfOthers(
                f"the lake at {lake.files.root} was begun with {name} {before} and not {now}: keep those, or"
                " begin another lake"
            )


def run(spark: SparkSession, path: str, options: dict[str, str]) -> Filled:
    """Load everything that is there now, and end."""
    done = Filled()
    query = start(spark, lake_for(spark, path, options), options, {"availableNow": True}, done)
    query.awaitTermination()
    return done


def backfill(spark: SparkSession, path: str, options: dict[str, str], since: datetime) -> Filled:
    """Begin a lake with the events from a moment on; `run` and `start` continue from there."""
    lake = lake_for(spark, path, options)
    if lake.files.names("_checkpoint/offsets"):  # a lake that ended before its first batch has no beginning yet
        raise LakeBegun(
            f"the lake at {path} already exists: `stoker pipeline run` continues it; use another path to begin anew"
        )
    lake.files.write_json(BEGINNING, {"startingTimestamp": str(round(since.timestamp() * 1000))})
    return run(spark, path, options)
