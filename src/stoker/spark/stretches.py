"""Ranges of logs as partitions of Spark: how they are cut, and how a task reads one."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stoker.spark.logs import connected, rows
from stoker.spark.options import Offsets, ReadOptions
from stoker.spark.payloads import decoded

PIECE_RECORDS = 20_000
"""Fewer records are not worth a task: Spark needs some 30 ms for each."""
PIECE_RECORDS_MAX = 200_000
"""More records take half a second or longer; a cluster may have more cores than the machine that plans this."""


class LogStretch(InputPartition):
    """Pieces of logs that one task reads: shard, after, until."""

    def __init__(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


def exact_schema(schema: Any) -> pa.Schema:
    """The Arrow schema that Spark will compare batches with."""
    from stoker.spark.schemas import arrow_schema

    return arrow_schema(schema)


class LogReader:
    """What all ways of reading share: the part that runs in executors."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self.options = options
        self._decoded = None if options.payload_schema is None else exact_schema(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in without_collector(self._read(partition)):
            yield batch if self._decoded is None else decoded(batch, self._decoded, fail_fast=self.options.fail_fast)

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        pieces = partition.pieces if isinstance(partition, LogStretch) else ()
        if not pieces:  # Spark's placeholder for no partitions
            return
        with connected(self.options) as client:
            for shard, after, until in pieces:
                yield from rows(client, self.options, shard, after, until)


def without_collector(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make each batch while the garbage collector is off.

    Records and runs refer to nothing that refers to them, so they go by themselves; looking for cycles among them took
    a third of the time where each record has one event. The collector is on again while others use the batch.
    """
    while True:
        was_on = gc.isenabled()
        gc.disable()
        try:
            batch = next(batches, None)
        finally:
            if was_on:
                gc.enable()
        if batch is None:
            return
        yield batch


def stretches(start: Offsets, end: Offsets, least: int) -> list[LogStretch]:
    """Pieces of about the same size, as many as there is work for; small logs share a task."""
    lags = {shard: end[shard] - start.get(shard, 0) for shard in sorted(end) if end[shard] > start.get(shard, 0)}
    total = sum(lags.values())
    here = min(2 * (os.cpu_count() or 1), -(-total // PIECE_RECORDS))
    wanted = max(least, here, -(-total // PIECE_RECORDS_MAX), 1)
    size = max(1, -(-total // wanted))
    found: list[LogStretch] = []
    pieces: list[tuple[int, int, int]] = []
    room = size
    for shard, lag in lags.items():
        after = start.get(shard, 0)
        while lag:
            step = min(lag, room)
            pieces.append((shard, after, after + step))
            after, lag, room = after + step, lag - step, room - step
            if not room:
                found.append(LogStretch(tuple(pieces)))
                pieces, room = [], size
    if pieces:
        found.append(LogStretch(tuple(pieces)))
    return found
