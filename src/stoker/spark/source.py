"""`spark.read.format("stoker")` and `spark.readStream`: the log of a queue as a table; `df.write` is in `sink.py`.

A shard of the queue is a partition of the source, a sequence number an offset. Executors fetch records and turn them
into Arrow themselves; the driver only asks how far the logs reach. Reading changes nothing, so Spark may do it twice.
"""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from stoker.model.errors import InvalidRequest
from stoker.spark.listing import listed, shares
from stoker.spark.logs import check_kept, connect, reaches, resolved, rows
from stoker.spark.options import Offsets, ReadOptions, read_options
from stoker.spark.payloads import decoded
from stoker.spark.sink import BatchWriter, StreamWriter, write_options
from stoker.spark.tables import spark_schema

PIECE_RECORDS = 20_000
"""A partition of fewer records is not worth a task of its own: Spark needs some 30 ms for each."""


def register(spark: SparkSession) -> None:
    """Make the source known to a session. Sessions of `stoker.spark.session()` know it already."""
    spark.dataSource.register(StokerSource)


class Stretch(InputPartition):
    """Pieces of logs that one task reads: shard, after, until."""

    def __init__(self, pieces: tuple[tuple[int, int, int], ...]) -> None:
        super().__init__(None)
        self.pieces = pieces


class Share(InputPartition):
    """Queues whose jobs one task lists."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        super().__init__(None)
        self.queues = queues


class StokerSource(DataSource):
    """The data source. Its options are in docs/reference/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "stoker"

    def schema(self) -> str:
        options = read_options(self.options)
        return spark_schema(options.columns, options.payload_schema)

    def reader(self, schema: Any) -> DataSourceReader:
        options = read_options(self.options)
        if options.table == "events":
            return BatchReader(options, schema)
        return ListReader(options, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise InvalidRequest('mode("overwrite"): a queue cannot be overwritten; use mode("append")')
        return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(write_options(self.options), schema)


def exact_schema(schema: Any) -> pa.Schema:
    """The Arrow schema that Spark will compare batches with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


class Reader:
    """What all ways of reading share: the part that runs in executors."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        self.options = options
        self._decoded = None if options.payload_schema is None else exact_schema(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in self._read(partition):
            yield batch if self._decoded is None else decoded(batch, self._decoded)

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        pieces = partition.pieces if isinstance(partition, Stretch) else ()
        with connect(self.options.connection) as client:
            for shard, after, until in pieces:
                yield from rows(client, self.options, shard, after, until)


class BatchReader(Reader, DataSourceReader):
    """One look at the log as it is when the first action begins."""

    def partitions(self) -> Sequence[InputPartition]:
        with connect(self.options.connection) as client:
            known = reaches(client)
            start = resolved(client, self.options.starting, known)
            end = resolved(client, self.options.ending, known)
        for shard, after in start.items():
            if end[shard] > after:
                check_kept(self.options, shard, after, known[shard].lowest)
        return stretches(start, end, self.options.min_partitions)


class ListReader(Reader, DataSourceReader):
    """A table of what there is now."""

    def partitions(self) -> Sequence[InputPartition]:
        with connect(self.options.connection) as client:
            return [Share(queues) for queues in shares(client, self.options)]

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Share):
            with connect(self.options.connection) as client:
                yield from listed(client, self.options, partition.queues)


class StreamReader(Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows. It lives in the driver; its copies read in executors."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None
        """Where to stop, once `availableNow` has said that there is an end."""

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def initialOffset(self) -> dict[str, int]:
        with connect(self.options.connection) as client:
            return written(resolved(client, self.options.starting, reaches(client)))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_records_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int]:
        return written(self._ends())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begun = read_back(start)
        ends = self._target if self._target is not None else self._ends()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        return written(advanced(begun, ends, most))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return stretches(read_back(start), read_back(end), self.options.min_partitions)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to tell: the log is kept by its retention, not for its readers."""

    def _ends(self) -> Offsets:
        with connect(self.options.connection) as client:
            return {shard: reach.last for shard, reach in reaches(client).items()}


def advanced(start: Offsets, ends: Offsets, most: int) -> Offsets:
    """How far the next batch goes: at most so many records, from each shard in proportion to what waits there."""
    lags = {shard: max(0, end - start.get(shard, 0)) for shard, end in ends.items()}
    total = sum(lags.values())
    if not most or total <= most:
        return {shard: max(start.get(shard, 0), end) for shard, end in ends.items()}
    left = most
    found: Offsets = {}
    for shard, lag in sorted(lags.items()):
        share = min(left, lag, max(1, most * lag // total)) if lag else 0
        left -= share
        found[shard] = start.get(shard, 0) + share
    return found


def stretches(start: Offsets, end: Offsets, least: int) -> list[Stretch]:
    """Pieces of about the same size, as many as there is work for; small logs share a task."""
    lags = {shard: end[shard] - start.get(shard, 0) for shard in sorted(end) if end[shard] > start.get(shard, 0)}
    total = sum(lags.values())
    wanted = max(least, min(2 * (os.cpu_count() or 1), -(-total // PIECE_RECORDS)), 1)
    size = max(1, -(-total // wanted))
    found: list[Stretch] = []
    pieces: list[tuple[int, int, int]] = []
    room = size
    for shard, lag in lags.items():
        after = start.get(shard, 0)
        while lag:
            step = min(lag, room)
            pieces.append((shard, after, after + step))
            after, lag, room = after + step, lag - step, room - step
            if not room:
                found.append(Stretch(tuple(pieces)))
                pieces, room = [], size
    if pieces:
        found.append(Stretch(tuple(pieces)))
    return found


def written(offsets: Offsets) -> dict[str, int]:
    """As Spark keeps it: it compares offsets as text, so their order never changes."""
    return {f"{shard:02d}": offsets[shard] for shard in sorted(offsets)}


def read_back(offsets: dict[str, int] | str) -> Offsets:
    found: dict[str, int] = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {int(shard): position for shard, position in found.items()}
