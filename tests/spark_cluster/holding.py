"""Points at which a pipeline waits to be killed: sources, writers, lakes and handlers that stop there, once.

A point is reached when a file of its name appears, with the process that waits there. Whoever comes to it later goes
on: what runs again after a kill is not held again.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition, WriterCommitMessage

import stoker.spark
from stoker.spark.lake import running
from stoker.spark.lake.layout import Lake
from stoker.spark.lake.table import LakeBatch
from stoker.spark.options import read_options
from stoker.spark.sink import BatchWriter, StreamWriter, write_options
from stoker.spark.source import StokerSource
from stoker.spark.stream import StreamReader
from stoker.spark.stretches import LogStretch

HELD_S = 3600.0
"""Longer than anybody waits for a point to be reached: who is held ends with the process that it works for."""


@dataclass(frozen=True)
class Points:
    """The points that count, and the folder of their files."""

    folder: str
    names: tuple[str, ...]

    def hold(self, name: str) -> None:
        if name not in self.names:
            return
        own = Path(self.folder) / f"{name}.{os.getpid()}.{threading.get_ident()}"
        own.write_text(str(os.getpid()))
        try:
            os.link(own, Path(self.folder) / name)  # with its text from the first moment on, and only one of them
        except FileExistsError:
            return
        finally:
            own.unlink()
        threading.Event().wait(HELD_S)
        raise TimeoutError(f"nobody has killed what waits at {name}")

    def reached(self, name: str) -> bool:
        return (Path(self.folder) / name).exists()

    def all_reached(self) -> bool:
        return all(self.reached(name) for name in self.names)

    def process_at(self, name: str) -> int:
        return int((Path(self.folder) / name).read_text())


def hold_source(spark: SparkSession, points: Points) -> None:
    """Let this session, and the lakes that this process fills, use the held source. `release_source` ends it."""
    held = held_source(points)
    spark.dataSource.register(held)
    vars(running)["StokerSource"] = held


def release_source(spark: SparkSession) -> None:
    stoker.spark.register(spark)
    vars(running)["StokerSource"] = StokerSource


def held_source(points: Points) -> type[StokerSource]:
    """The source and the sink as they are, but for the points: reading, staged, publishing, published."""

    class Reading(StreamReader):
        """Held in an executor, in the second batch of a stream that reads all queues: rows are on their way."""

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            later = isinstance(partition, LogStretch) and any(after > 0 for _, after, _ in partition.pieces)
            for batch in super().read(partition):
                if later and self.options.queues is None:
                    points.hold("reading")
                yield batch

    class Staging(BatchWriter):
        """Held in an executor: a task has staged its rows, and Spark does not know yet."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            message = super().write(iterator)
            points.hold("staged")
            return message

    class Publishing(StreamWriter):
        """Held in the driver: all is staged, nothing published; or all published, and Spark does not know yet."""

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            if batchId > 0:
                points.hold("publishing")
            super().commit(messages, batchId)
            if batchId > 0:
                points.hold("published")

    class Held(StokerSource):
        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return Reading(read_options(self.options, streaming=True), schema)

        def writer(self, schema: Any, overwrite: bool) -> Staging:
            return Staging(write_options(self.options), schema)

        def streamWriter(self, schema: Any, overwrite: bool) -> Publishing:
            return Publishing(write_options(self.options), schema)

    return Held


class HeldLake(Lake):
    """A lake that is held when a batch is in bronze and silver, and not yet in gold."""

    def __init__(self, spark: SparkSession, path: str, points: Points) -> None:
        super().__init__(spark, path)
        self._points = points

    def write(self, layer: str, batch: LakeBatch, rows: DataFrame, files: int = 1) -> int:
        if layer == "minutes":
            self._points.hold("layer")
        return super().write(layer, batch, rows, files)


def doubled(points: Points, held_from: int = 0) -> Callable[[list[int]], Sequence[int]]:
    """A handler: numbers times two. Held when it has done its work and has told nobody."""

    def handler(numbers: list[int]) -> Sequence[int]:
        results = [2 * number for number in numbers]
        if max(numbers) >= held_from:
            points.hold("handled")
        return results

    return handler
