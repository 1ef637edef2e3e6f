"""Turns runs of events into Arrow columns, in the executors that read a log.

Values that the jobs of a run share are written once and spread by Arrow; only ids, indexes and sizes that differ are
made for each job. A batch of a thousand pushes costs little more than a single one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stoker.model.event_table import ENDS_DELIVERY
from stoker.model.ids import STEP
from stoker.model.options import DEFAULT_OPTIONS
from stoker.records import records as rec
from stoker.records.record_table import PUSHES
from stoker.records.runs import EventRun, runs_of
from stoker.records.stored import StoredRun
from stoker.spark.tables import MOMENT, TEXTS, Column

Spread = Callable[[Any], Any]

LABELS = rec.Labels.__struct_fields__


class BufferedRuns:
    """Runs of one shard that will become one batch of rows."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._places: list[tuple[int, int, int, str, str]] = []
        """Sequence, first index, time, tenant and queue of each run."""
        self._runs: list[EventRun] = []
        self._payloads: list[Any] = []
        self.rows = 0

    def add(self, sequence: int, record: rec.Record) -> None:
        index = 0
        at, tenant, queue = record.at, record.tenant, getattr(record, "queue", "")  # type: ignore[attr-defined]
        payloads = record.payloads if type(record) in PUSHES else None  # type: ignore[attr-defined]
        for run in runs_of(record):
            self._places.append((sequence, index, at, tenant, queue))
            self._runs.append(run)
            self._payloads.append(payloads)
            index += abs(run.jobs)
        self.rows += index

    def batch(self, columns: Sequence[Column], kinds: Iterable[str] | None = None) -> pa.RecordBatch:
        """The rows as Arrow, with these columns in this order."""
        made = _ColumnBatch(self._shard, self._places, self._runs, self._payloads)
        arrays = [made.column(column) for column in columns]
        schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return batch if kinds is None else batch.filter(made.chosen(frozenset(kinds)))


class _ColumnBatch:
    """Makes the columns of gathered runs, each on first use."""

    def __init__(
        self, shard: int, places: list[tuple[int, int, int, str, str]], runs: list[EventRun], payloads: list[Any]
    ) -> None:
        self._shard, self._runs, self._payloads = shard, runs, payloads
        sequences, indexes, times, tenants, queues = zip(*places, strict=True) if places else ((),) * 5
        self._fields: dict[str, Sequence[Any]] = {
            "sequence": sequences,
            "index": indexes,
            "time": times,
            "tenant": tenants,
            "queue": queues,
        }
        if runs:
            self._fields |= dict(zip(EventRun._fields, zip(*runs, strict=True), strict=True))
        else:
            self._fields |= dict.fromkeys(EventRun._fields, ())
        self._counts = np.array([abs(count) for count in self._fields["jobs"]], dtype=np.int64)
        self._rows = int(self._counts.sum())
        self._is_spread = self._rows == len(runs)
        self._owners = np.repeat(np.arange(len(runs)), self._counts)
        starts = np.cumsum(self._counts) - self._counts
        self._offsets = np.arange(self._rows) - np.repeat(starts, self._counts)

    def column(self, column: Column) -> pa.Array:
        make = _MAKE.get(column.name)
        if make is not None:
            return make(self)
        if column.name in LABELS:
            return self._label(column)
        values = self._fields[column.name]
        if column.type == MOMENT:
            return self._moments(values)
        if column.type in (pa.string(), pa.binary()):
            return self._spread(pa.array([value or None for value in values], column.type))
        return self._spread(pa.array(values, column.type))

    def chosen(self, kinds: frozenset[str]) -> pa.Array:
        """A mask of the rows of these kinds."""
        return pa.array(np.array([event in kinds for event in self._fields["event"]], dtype=bool)[self._owners])

    def _spread(self, array: pa.Array) -> pa.Array:
        return array if self._is_spread else array.take(pa.array(self._owners))

    def _moments(self, values: Sequence[int]) -> pa.Array:
        """Milliseconds as timestamps; 0 becomes null."""
        numbers = np.array(values, dtype=np.int64)
        return self._spread(pa.array(numbers * 1000, mask=numbers == 0).cast(MOMENT))

    def _label(self, column: Column) -> pa.Array:
        name, default = column.name, getattr(DEFAULT_OPTIONS, column.name, None)
        values = [
            getattr(labels, name, default) if labels is not None else default for labels in self._fields["labels"]
        ]
        if column.type == MOMENT:
            return self._moments([value or 0 for value in values])
        if column.type == TEXTS:
            values = [list(value) if value else [] for value in values]
        return self._spread(pa.array(values, column.type))

    # --- what differs from job to job ----------------------------------------------------------------

    def _jobs(self) -> pa.Array:
        firsts = np.array(self._fields["first"], dtype=np.int64)
        steps = np.where(np.array(self._fields["jobs"], dtype=np.int64) < 0, -STEP, STEP)
        return pa.array(firsts[self._owners] + steps[self._owners] * self._offsets)

    def _indexes(self) -> pa.Array:
        firsts = np.array(self._fields["index"], dtype=np.int64)
        return pa.array((firsts[self._owners] + self._offsets).astype(np.int32))

    def _shards(self) -> pa.Array:
        return pa.array(np.full(self._rows, self._shard, dtype=np.int32))

    def _sizes(self, name: str) -> pa.Array:
        values = self._fields[name]
        if not any(type(value) is list for value in values):
            return self._spread(pa.array(values, pa.int64()))
        found: list[int] = []
        for value, count in zip(values, self._counts.tolist(), strict=True):
            found += value if type(value) is list else [value] * count
        return pa.array(found, pa.int64())

    def _payload(self) -> pa.Array:
        found: list[bytes | None] = []
        for payloads, count in zip(self._payloads, self._counts.tolist(), strict=True):
            is_here = payloads is not None and type(payloads) is not StoredRun
            found += payloads if is_here else [None] * count
        return pa.array(found, pa.binary())

    # --- how long it took ----------------------------------------------------------------------------

    def _between(self, later: str, earlier: str, *, only_ends: bool = True) -> pa.Array:
        ends = np.array(self._fields[later], dtype=np.int64)
        starts = np.array(self._fields[earlier], dtype=np.int64)
        mask = (ends == 0) | (starts == 0)
        if only_ends:
            mask |= np.array([event not in ENDS_DELIVERY for event in self._fields["event"]], dtype=bool)
        return self._spread(pa.array(ends - starts, mask=mask))


_MAKE: dict[str, Callable[[_ColumnBatch], pa.Array]] = {
    "job": _ColumnBatch._jobs,
    "index": _ColumnBatch._indexes,
    "shard": _ColumnBatch._shards,
    "payload_bytes": lambda batch: batch._sizes("payload_bytes"),
    "result_bytes": lambda batch: batch._sizes("result_bytes"),
    "payload": _ColumnBatch._payload,
    "wait_ms": lambda batch: batch._between("started_at", "pushed_at", only_ends=False),
    "run_ms": lambda batch: batch._between("finished_at", "started_at"),
    "total_ms": lambda batch: batch._between("finished_at", "pushed_at"),
    "ready_ms": lambda batch: batch._between("started_at", "ready_at", only_ends=False),
    "latency_ms": lambda batch: batch._between("finished_at", "ready_at"),
}
