"""Writes rows as Parquet files, one directory for each date, and says what is in each file. It runs in executors.

Arrow batches go into the files as they are; the JVM never sees them. A file counts only when the driver commits its
name (`table.py`): files of tasks that failed or were overtaken are litter that `vacuum` removes.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stoker.spark.lake.files import Files

DATE = "date"
"""The column by which all tables are partitioned: the date (UTC) of the event."""
MOMENTS = ("time", "minute")
"""The column that has the moment of a row: the first of these that a table has."""
WITH_STATISTICS = (*MOMENTS, "tenant", "queue", "event")
DAY_US = 86_400_000_000
GROUP_BYTES = 64 * 2**20
"""Arrow memory of rows that are written together."""
FILE_BYTES = 128 * 2**20
"""A file that has become this large is followed by another."""
EPOCH = date(1970, 1, 1)

RESULT = "path string, size long, date string, rows long, statistics string"
"""The rows that a task returns for the files it has written, in Spark's notation."""


@dataclass(frozen=True)
class DataFile:
    """A file that was written and does not count yet. The path is relative to its table."""

    path: str
    size: int
    date: str
    rows: int
    statistics: str


@dataclass
class OpenFile:
    """A file that is being written."""

    path: str
    stream: Any
    writer: pq.ParquetWriter
    footers: list[pq.FileMetaData]


@dataclass
class Day:
    """The rows of one date: those in memory, and the file that they go to."""

    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    file: OpenFile | None = None


@dataclass(frozen=True)
class FileWriter:
    """Writes the files of one table. `label` begins the name of each file."""

    files: Files
    table: str
    label: str

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """Write all rows; the files, as they are finished."""
        days: dict[int, Day] = {}
        for batch in batches:
            if not batch.num_rows:
                continue
            for number, rows in by_day(batch):
                day = days.setdefault(number, Day())
                day.waiting.append(rows)
                day.waiting_bytes += rows.nbytes
            if sum(day.waiting_bytes for day in days.values()) >= GROUP_BYTES:
                for number, day in days.items():
                    yield from self._flush(number, day)
        for number, day in days.items():
            yield from self._flush(number, day)
            if day.file is not None:
                yield self._close(number, day.file)

    def _flush(self, number: int, day: Day) -> Iterator[DataFile]:
        if not day.waiting:
            return
        rows = pa.Table.from_batches(day.waiting)
        day.waiting, day.waiting_bytes = [], 0
        if day.file is None:
            day.file = self._open(number, rows.schema)
        day.file.writer.write_table(rows)
        if day.file.stream.tell() >= FILE_BYTES:
            yield self._close(number, day.file)
            day.file = None

    def _open(self, number: int, schema: pa.Schema) -> OpenFile:
        path = f"{DATE}={EPOCH + timedelta(days=number)}/{self.label}-{uuid4().hex}.parquet"
        stream = self.files.open_new(f"{self.table}/{path}")
        footers: list[pq.FileMetaData] = []
        writer = pq.ParquetWriter(stream, schema, compression="zstd", store_schema=False, metadata_collector=footers)
        return OpenFile(path, stream, writer, footers)

    def _close(self, number: int, file: OpenFile) -> DataFile:
        file.writer.close()
        size = file.stream.tell()
        file.stream.close()
        (footer,) = file.footers
        return DataFile(file.path, size, str(EPOCH + timedelta(days=number)), footer.num_rows, statistics_of(footer))


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each date, without that column; a batch of one date as it is."""
    if DATE in batch.schema.names:
        batch = batch.drop_columns([DATE])
    times = batch.column(moment_of(batch.schema))
    if times.null_count:
        raise ValueError(f"a row has no {moment_of(batch.schema)}: the date of its partition is not known")
    days = times.cast(pa.int64()).to_numpy() // DAY_US
    found = np.unique(days).tolist()
    if len(found) == 1:
        yield found[0], batch
        return
    for number in found:
        yield number, batch.filter(pa.array(days == number))


def moment_of(schema: pa.Schema) -> str:
    return next(name for name in MOMENTS if name in schema.names)


def statistics_of(footer: pq.FileMetaData) -> str:
    """The statistics of a file in Delta's form, from its footer: rows, and the least and greatest values."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    names = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    for name in WITH_STATISTICS:
        if name not in names:
            continue
        found = [footer.row_group(group).column(names[name]).statistics for group in range(footer.num_row_groups)]
        if not all(one is not None and one.has_null_count for one in found):
            continue
        nulls[name] = sum(one.null_count for one in found)
        known = [one for one in found if one.num_values]
        if known and all(one.has_min_max for one in known):
            low[name] = as_text(min(one.min for one in known), timedelta(0))
            high[name] = as_text(max(one.max for one in known), timedelta(microseconds=999))
    return json.dumps({"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def as_text(value: Any, up: timedelta) -> Any:
    """A value as Delta keeps it: times in whole milliseconds, cut or rounded up."""
    if not isinstance(value, datetime):
        return value
    moment = (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)) + up
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def as_batch(files: Iterable[DataFile]) -> pa.RecordBatch:
    """What a task returns to the driver."""
    types = [("path", pa.string()), ("size", pa.int64()), ("date", pa.string()), ("rows", pa.int64())]
    schema = pa.schema([*types, ("statistics", pa.string())])
    return pa.RecordBatch.from_pylist([asdict(one) for one in files], schema=schema)


def read_rows(files: Files, table: str, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the date of its directory. Columns that it lacks are null."""
    import pyarrow.dataset as ds

    parts = ds.partitioning(pa.schema([(DATE, pa.date32())]), flavor="hive")
    found = ds.dataset(f"{table}/{path}", schema=schema, filesystem=files.system, format="parquet", partitioning=parts)
    yield from found.to_batches()
