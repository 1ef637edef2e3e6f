"""Fills a lake: a stream of events, batch by batch, through all layers.

The stream keeps its position in a checkpoint beside the lake. An interrupted batch is run again under the same number;
tables that have it already stay as they are, so every event is in each layer once, whatever was killed when.

Executors read the log and write the files of bronze themselves, in one step: the events never go through the JVM.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from stoker.model.errors import InvalidRequest, StokerError
from stoker.spark.lake import gold, quarantine, silver
from stoker.spark.lake.layout import SOURCE, VERSION, Lake, Tables, checkpoint_of, taken
from stoker.spark.lake.table import Change, LakeBatch
from stoker.spark.lake.writing import DataFile, FileWriter
from stoker.spark.logs import OffsetsOutOfRange
from stoker.spark.options import read_options
from stoker.spark.source import StokerSource
from stoker.spark.stream import StreamReader, read_back, written

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
BATCH_EVENTS = 1_000_000
"""Events in one batch, unless the options say otherwise."""
WIDE_BYTES = 16 * 1024 * 1024
"""Bytes of bronze for which the other layers write one file more."""

TASK_RECORDS = 100
"""Fewer records go into one file. A record has one event, or as many as its batch has jobs."""
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


class LogSpan(NamedTuple):
    """The part of the logs that a batch covers: the last record before it, and its own last one, in each shard."""

    begin: dict[int, int]
    end: dict[int, int]


def fill(lake: Lake, events: DataFrame, batch: LakeBatch, files: int = 1) -> None:
    """Write one batch of events to all layers."""
    lake.write("bronze", batch, events, files)
    derive(lake, batch, files)


@dataclass(frozen=True)
class Intake:
    """Takes events from a queue into bronze."""

    lake: Lake
    source: DataSourceStreamReader
    schema: StructType
    tasks_max: int
    may_skip: bool
    """Whether events that the queue has dropped may be missing."""

    def span_of(self, number: int) -> LogSpan:
        """What a batch covers, as the checkpoint says; the beginning of the first one is only known to the source."""

        def ends(number: int) -> dict[int, int]:
            return read_back(self.lake.checkpoint.read_text(f"offsets/{number}").splitlines()[-1])

        return LogSpan(ends(number - 1) if number else read_back(self.source.initialOffset()), ends(number))

    def take(self, batch: LakeBatch, span: LogSpan) -> int:
        """Write the events of a batch to bronze. Returns how many there are."""
        table = self.lake.table("bronze")
        if self.lake.has("bronze", batch):
            return sum(file.rows for file in self.lake.files_of(batch))
        files = self._stored(batch, span)
        if not files and not table.exists():
            return 0
        table.create(self.schema.jsonValue())
        rows = sum(file.rows for file in files)
        about = {"operation": "batch", "batch": batch.number, "stream": batch.stream, "rows": rows}
        about |= {"from": written(span.begin), "to": written(span.end)}
        place = self.lake.checkpoint.root
        claim = taken(batch, *span, is_empty=not files, may_skip=self.may_skip, checkpoint=place)
        table.commit(Change(files, about=about), claim)
        return rows

    def _stored(self, batch: LakeBatch, span: LogSpan) -> list[DataFile]:
        """Write the events to files that do not count yet. The paths are those of the attempts that Spark counts."""
        pieces = list(self.source.partitions(written(span.begin), written(span.end)))
        if not pieces:
            return []
        source, writer = self.source, FileWriter(self.lake.files, "bronze", batch.label)

        def step(pieces: Iterable[InputPartition]) -> Iterator[DataFile]:
            return writer.write(chain.from_iterable(source.read(piece) for piece in pieces))

        records = sum(last - span.begin.get(shard, 0) for shard, last in span.end.items())
        tasks = min(self.tasks_max, len(pieces), max(1, records // TASK_RECORDS))
        return self.lake.spark.sparkContext.parallelize(pieces, tasks).mapPartitions(step).collect()


def derive(lake: Lake, batch: LakeBatch, files: int) -> int:
    """Write the other layers of a batch, from its files in bronze, and mark it as whole. Returns corrupt payloads.

    They are made at the same time, because most are too small to keep all cores busy. Each reads only its columns from
    the files, which costs a fraction of keeping all of them in memory.
    """
    found = lake.files_of(batch)
    schema = lake.schema("bronze")
    assert schema is not None
    events = lake.frame("bronze", [file.path for file in found], schema)
    wide = min(files, 1 + sum(file.size for file in found) // WIDE_BYTES)
    steps = STEPS | {quarantine.LAYER: quarantine.corrupt} if quarantine.is_told(events) else STEPS
    counts = dict.fromkeys([quarantine.LAYER], 0)

    def step(layer: str) -> None:
        counts[layer] = lake.write(layer, batch, steps[layer](events), wide)

    inherited = inheritable_thread_target(lake.spark)(step)
    if found:
        with ThreadPoolExecutor(AT_ONCE, "stoker-lake") as pool:
            for made in [pool.submit(inherited, layer) for layer in steps]:
                made.result()
    lake.finish(batch)
    return counts[quarantine.LAYER]


def lake_for(
    spark: SparkSession,
    path: str,
    options: dict[str, str],
    *,
    checkpoint: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Lake:
    """The lake at a path. It is not created for invalid options."""
    read_options(options, streaming=True)
    return Lake(spark, path, checkpoint=checkpoint, storage_options=storage_options)


def start(
    spark: SparkSession,
    lake: Lake,
    options: dict[str, str],
    trigger: dict[str, Any],
    done: Filled | None = None,
    starting: str = "earliest",
) -> StreamingQuery:
    """Begin to fill a lake from a queue. `trigger` is Spark's: availableNow, or processingTime."""
    if getattr(spark, "_jsparkSession", None) is None:
        raise InvalidRequest(
            "a lake is filled by a session with a JVM of its own, and this is one of Spark Connect: use"
            " stoker.spark.session(), or `stoker pipeline`"
        )
    checkpoint = lake.checkpoint.root
    keep_to_its_own(lake, options)
    cores = spark.sparkContext.defaultParallelism
    wanted = {"maxRecordsPerTrigger": str(BATCH_EVENTS), "minPartitions": str(cores)}
    wanted |= beginning(lake, starting, cores) | options
    reader = spark.readStream.format("stoker")
    for name, value in wanted.items():
        reader = reader.option(name, value)
    rows = reader.load()
    quarantine.check_fields(lake, rows)
    may_skip = not read_options(wanted, streaming=True).fail_on_data_loss
    intake = Intake(lake, StokerSource(wanted).streamReader(rows.schema), rows.schema, cores, may_skip)

    def step(events: DataFrame, number: int) -> None:
        batch = lake.batch(number)
        count = intake.take(batch, intake.span_of(number))
        corrupt = derive(lake, batch, cores) if count else 0
        if done is not None and count:  # Spark makes a first batch even of nothing
            done.batches += 1
            done.events += count
            done.quarantined += corrupt

    writer = rows.writeStream.foreachBatch(step).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


def beginning(lake: Lake, starting: str, cores: int) -> dict[str, str]:
    """The option that says where a stream without a checkpoint begins.

    If the checkpoint of a lake is lost, that is where its tables end. Its newest batch may be in bronze alone; it is
    finished first, because no later batch will do that.
    """
    ends = {} if lake.checkpoint.names("offsets") else lake.positions()
    if ends:
        for batch in lake.unfinished():
            derive(lake, batch, cores)
        return {"startingOffsets": json.dumps({str(shard): last for shard, last in ends.items()})}
    if lake.files.exists(BEGINNING):
        return lake.told(BEGINNING, startingTimestamp=str)
    return {"startingOffsets": starting}


def keep_to_its_own(lake: Tables, options: dict[str, str]) -> None:
    """Refuse other tenants, queues or events than before: those older than the checkpoint would be missing silently."""
    asked = read_options(options, streaming=True)
    found = {"tenants": asked.tenants, "queues": asked.queues or (), "events": asked.events or ()}
    about = {name: sorted(values) for name, values in found.items()}
    if not lake.files.exists(SOURCE):
        lake.files.write_json(SOURCE, {"version": VERSION, **about})
        return
    known = lake.told(SOURCE, **dict.fromkeys(about, list))
    for name, values in about.items():
        if values != known[name]:
            before, now = (", ".join(listed) or "all" for listed in (known[name], values))
            raise LakeOfOthers(
                f"the lake at {lake.files.root} was begun with {name} {before} and not {now}: keep those, or"
                " begin another lake"
            )


def run(
    spark: SparkSession,
    path: str,
    options: dict[str, str],
    *,
    checkpoint: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Filled:
    """Load everything that is there now, and end. `checkpoint` and `storage_options` are those of `Lake`."""
    return run_into(lake_for(spark, path, options, checkpoint=checkpoint, storage_options=storage_options), options)


def run_into(lake: Lake, options: dict[str, str]) -> Filled:
    done = Filled()
    start(lake.spark, lake, options, {"availableNow": True}, done).awaitTermination()
    return done


def has_nothing_new(
    path: str,
    options: dict[str, str],
    *,
    checkpoint: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> bool:
    """Whether `run` would find nothing to do, asked without Spark, which takes seconds to start.

    True only if the last batch is finished and the source, asked as Spark asks it, plans no batch. In doubt it is
    False: for a lake without a checkpoint, and with a schema of payloads, which only Spark can compare with the lake's.
    """
    asked = read_options(options, streaming=True)
    place = checkpoint_of(path, checkpoint)
    last = max((int(name) for name in place.names("offsets") if name.isdecimal()), default=-1)
    if not place.exists(f"commits/{last}") or asked.payload_schema is not None:
        return False
    keep_to_its_own(Tables(path, make=True, storage_options=storage_options, checkpoint=checkpoint), options)
    source = StreamReader(asked, None)
    try:
        begin: dict[str, int] = json.loads(place.read_text(f"offsets/{last}").splitlines()[-1])
        source.prepareForTriggerAvailableNow()
        found: dict[str, int] = source.latestOffset(begin, source.getDefaultReadLimit())
    except (ValueError, OffsetsOutOfRange):  # a damaged checkpoint, or dropped events: the run says what to do
        return False
    return found == begin


def backfill(
    spark: SparkSession,
    path: str,
    options: dict[str, str],
    since: datetime,
    *,
    checkpoint: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Filled:
    """Begin a lake with the events from a moment on; `run` and `start` continue from there."""
    lake = lake_for(spark, path, options, checkpoint=checkpoint, storage_options=storage_options)
    if (
        lake.checkpoint.names("offsets") or lake.positions()
    ):  # a lake that ended before its first batch has no beginning yet
        raise LakeBegun(
            f"the lake at {path} already exists: `stoker pipeline run` continues it; use another path to begin anew"
        )
    lake.files.write_json(BEGINNING, {"startingTimestamp": str(round(since.timestamp() * 1000))})
    return run_into(lake, options)
