"""`spark.readStream.format("stoker")`: the log as it grows, in batches that have something new for this reader.

Before each batch the driver asks the server to count events, so that limits are about rows that come out, and traffic
of other tenants and queues makes no batch.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stoker.client.sync import Client
from stoker.spark.backlog import Limit, LogBacklog
from stoker.spark.logs import Reach, connected, reaches_for, readable_start, resolved
from stoker.spark.options import STARTING, Offsets, ReadOptions
from stoker.spark.stretches import LogReader, stretches

SKIPPED_MOST = 1_000_000
"""After this many records without an event for this reader, a batch without rows keeps the position."""


class StreamReader(LogReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows. It lives in the driver; its copies read in executors."""

    def __init__(self, options: ReadOptions, schema: Any) -> None:
        super().__init__(options, schema)
        self._target: Offsets | None = None
        """Where to stop, with `availableNow`."""
        self._known: dict[int, Reach] | None = None
        """How far the logs reached when the next batch was planned."""
        self._backlog = LogBacklog(options)
        self._batch_at = time.monotonic()
        """When the last batch was planned."""

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def initialOffset(self) -> dict[str, int]:
        with connected(self.options) as client:
            known = reaches_for(client, self.options)
            start = resolved(client, self.options, self.options.starting, known, STARTING)
            return written(readable_start(self.options, start, known))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self.options
        if options.max_records_per_trigger:
            return ReadMaxRows(options.max_records_per_trigger)
        return ReadMaxBytes(options.max_bytes_per_trigger) if options.max_bytes_per_trigger else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int]:
        return written(self._ends())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of the next batch; its beginning if there shall be none."""
        with connected(self.options) as client:
            self._known = reaches_for(client, self.options)
            begun = self._begin(read_back(start), tell=False)
            ends = self._target if self._target is not None else lasts(self._known)
            end = self._end(client, ends, self._limit(limit))
        if end is None:
            is_shorter = any(begun[shard] < position for shard, position in read_back(start).items() if shard in begun)
            return written(begun) if is_shorter else start
        self._batch_at = time.monotonic()
        return written({shard: max(position, end.get(shard, 0)) for shard, position in begun.items()})

    def _limit(self, limit: ReadLimit) -> Limit:
        if isinstance(limit, ReadAllAvailable):
            return Limit()
        return Limit(limit.max_rows if isinstance(limit, ReadMaxRows) else 0, self.options.max_bytes_per_trigger)

    def _end(self, client: Client, ends: Offsets, limit: Limit) -> Offsets | None:
        backlog = self._backlog
        least = 1 if self._target is not None else max(1, self.options.min_records_per_trigger)
        backlog.count(client, ends, limit if any(limit) else Limit(least))
        reached = backlog.reached()
        has_more = any(reached[shard] < end for shard, end in ends.items())
        if backlog.events >= least or (backlog.events and (has_more or self._is_late())):
            return reached if any(limit) else ends
        return reached if not backlog.events and self._is_far() else None

    def _is_late(self) -> bool:
        return (time.monotonic() - self._batch_at) * 1000 >= self.options.max_trigger_delay_ms

    def _is_far(self) -> bool:
        """Whether so much was skipped that a restart would take long to skip it again, or find it dropped."""
        assert self._known is not None
        for shard, skipped in self._backlog.skipped().items():
            reach = self._known[shard]
            if skipped >= SKIPPED_MOST or (skipped and reach.lowest > 1 and 2 * skipped > reach.last - reach.lowest):
                return True
        return False

    def _begin(self, start: Offsets, *, tell: bool) -> Offsets:
        """Where reading can begin."""
        assert self._known is not None
        said = {shard: start.get(shard, 0) for shard in self._known}
        begun = readable_start(self.options, self._backlog.begun(said), self._known, tell=tell)
        self._backlog.begin(said, begun)
        return begun

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._known = self._known or self._reaches()
        begun = self._begin(read_back(start), tell=True)
        self._known = None
        return stretches(begun, read_back(end), self.options.min_partitions)

    def commit(self, end: dict[str, int]) -> None:
        """Does nothing: the log is kept by its retention, not for its readers."""

    def _ends(self) -> Offsets:
        return lasts(self._reaches())

    def _reaches(self) -> dict[int, Reach]:
        with connected(self.options) as client:
            return reaches_for(client, self.options)


def lasts(known: dict[int, Reach]) -> Offsets:
    return {shard: reach.last for shard, reach in known.items()}


def written(offsets: Offsets) -> dict[str, int]:
    """In a fixed order: Spark compares offsets as text."""
    return {f"{shard:02d}": offsets[shard] for shard in sorted(offsets)}


def read_back(offsets: dict[str, int] | str) -> Offsets:
    found: dict[str, int] = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {int(shard): position for shard, position in found.items()}
