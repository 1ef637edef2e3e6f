"""Small tables of a lake without a queue and without Spark: each batch has ten events, one in each of ten minutes."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from stoker.spark.lake.layout import Positions, Tables, derived, taken
from stoker.spark.lake.table import Change, LakeBatch
from stoker.spark.lake.writing import DataFile, FileWriter

STREAM = "0123abcd-0000-0000-0000-000000000000"
ROWS = 10
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in {
            "time": "timestamp",
            "shard": "integer",
            "sequence": "long",
            "index": "integer",
            "tenant": "string",
            "queue": "string",
            "event": "string",
        }.items()
    ],
}


def events(number: int, at: datetime = NOON, tenant: str = "default") -> pa.RecordBatch:
    """The events of a batch. Of tenants with a comma between them each has every other event."""
    tenants = tenant.split(",")
    return pa.record_batch(
        {
            "time": pa.array([at + timedelta(minutes=row) for row in range(ROWS)], pa.timestamp("us", "UTC")),
            "shard": pa.array([0] * ROWS, pa.int32()),
            "sequence": pa.array(range(number * ROWS + 1, (number + 1) * ROWS + 1), pa.int64()),
            "index": pa.array([0] * ROWS, pa.int32()),
            "tenant": [tenants[row % len(tenants)] for row in range(ROWS)],
            "queue": ["mail"] * ROWS,
            "event": ["pushed"] * ROWS,
        }
    )


def stored(tables: Tables, layer: str, batch: LakeBatch, rows: Iterable[pa.RecordBatch]) -> list[DataFile]:
    tables.table(layer).create(SCHEMA)
    return list(FileWriter(tables.files, layer, batch.label).write(rows))


def span(number: int) -> tuple[Positions, Positions]:
    return {0: number * ROWS}, {0: (number + 1) * ROWS}


def put(tables: Tables, number: int, at: datetime = NOON, *, stream: str = STREAM, tenant: str = "default") -> bool:
    """Take a batch into bronze. False if it was there."""
    batch = LakeBatch(stream, number)
    files = stored(tables, "bronze", batch, [events(number, at, tenant)])
    change = Change(files, about={"operation": "batch", "batch": number})
    return tables.table("bronze").commit(change, taken(batch, *span(number), is_empty=False, may_skip=False))


def derive(tables: Tables, number: int, at: datetime = NOON, *, stream: str = STREAM, tenant: str = "default") -> bool:
    """The same events in `jobs`."""
    batch = LakeBatch(stream, number)
    files = stored(tables, "jobs", batch, [events(number, at, tenant)])
    return tables.table("jobs").commit(Change(files), derived(batch))


def finished(
    tables: Tables, number: int, at: datetime = NOON, *, stream: str = STREAM, tenant: str = "default"
) -> None:
    """A whole batch."""
    put(tables, number, at, stream=stream, tenant=tenant)
    derive(tables, number, at, stream=stream, tenant=tenant)
    tables.finish(LakeBatch(stream, number))


def count(tables: Tables, layer: str) -> int:
    """The rows of the newest version, as deltalake reads them."""
    return int(tables.table(layer).open().to_pyarrow_dataset().count_rows())
