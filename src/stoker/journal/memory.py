"""A journal that survives nothing: it keeps the latest records for readers of events, up to a number of bytes."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from stoker.journal.contract import Turn
from stoker.model.replies import Level
from stoker.records.codec import Row, encode_row
from stoker.records.records import (
    Answered,
    Completed,
    Ended,
    Failed,
    KvWritten,
    Logged,
    PartialAdded,
    PayloadUpdated,
    Pushed,
    Record,
    Released,
    RequestRemembered,
    Retrying,
    ScheduleChanged,
    ScheduledPush,
    Staged,
    Started,
)

RECORD_BYTES = 256
"""What a record weighs besides its payloads, roughly."""
JOB_BYTES = 64

ROW_RECORDS = 64
"""Written as one row for readers of records."""

SEGMENT_RECORDS = 1024
"""Records leave by segments of so many: dropping one by one would cost as much as adding."""


class MemoryJournal:
    """The latest records of each shard."""

    level: Level = "memory"
    is_full = False
    room = 1 << 62

    def __init__(self, shards: int, bytes_max: int) -> None:
        self._logs = [_Log(bytes_max // shards) for _ in range(shards)]

    def append(self, turn: Turn, *, defer: bool = False) -> None:
        for shard, records in turn:
            self._append(shard, records)

    def flush(self) -> int:
        return 0

    def ticket(self) -> int:
        return 0

    def when_flushed(self, ticket: int, tell: Callable[[], object]) -> bool:
        return False

    @property
    def has_failed(self) -> bool:
        return False

    def reached(self, ticket: int) -> bool:
        return True

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        raise AssertionError("nothing lies in a journal that keeps nothing")

    def body(self, shard: int, sequence: int) -> bytes | None:
        raise AssertionError("nothing lies in a journal that keeps nothing")

    def expect(self, shard: int, coming: Sequence[int], gone: Sequence[int], now: int) -> None:
        pass

    def close(self) -> None:
        self._logs.clear()

    def _append(self, shard: int, records: Sequence[Record]) -> None:
        log = self._logs[shard]
        tail = log.tail
        kept = tail.records
        kept += records
        for record in records:
            if type(record) is Pushed and len(record.payloads) == 1:
                tail.payload_bytes += len(record.payloads[0])  # the most common record, without a call
            elif type(record) in BULK and not is_light(record):
                tail.payload_bytes += BULK[type(record)](record)
        if len(kept) >= SEGMENT_RECORDS or tail.payload_bytes > log.segment_bytes:
            log.roll()

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        found: list[tuple[int, Record]] = []
        for segment in self._logs[shard].segments:
            if after < segment.last:
                skip = max(0, after + 1 - segment.first)
                records = segment.records[skip : skip + limit - len(found)]
                found += enumerate(records, segment.first + skip)
            if len(found) >= limit:
                break
        return found

    def rows(self, shard: int, after: int, bytes_max: int) -> list[Row]:
        found: list[Row] = []
        while bytes_max > 0 and (records := self.read(shard, after, ROW_RECORDS)):
            found.append(Row(encode_row([record for _, record in records]), records[0][0]))
            after = records[-1][0]
            bytes_max -= found[-1].size
        return found

    def lowest(self, shard: int) -> int:
        return self._logs[shard].segments[0].first

    def last(self, shard: int) -> int:
        return self._logs[shard].tail.last


def is_light(record: Record) -> bool:
    """Whether `RECORD_BYTES` says it all: one delivery, started or done without a result."""
    if type(record) is Started:
        return len(record.runs) == 1
    return type(record) is Completed and record.results is None and len(record.runs) == abs(record.runs[0].count) == 1


def _payloads(record: Pushed | Staged | ScheduledPush) -> int:
    return sum(map(len, record.payloads)) + len(record.payloads) * JOB_BYTES


def _completed(record: Completed) -> int:
    size = sum(len(run.sizes) * 8 for run in record.runs if type(run.sizes) is list) + len(record.runs) * JOB_BYTES
    if record.results is not None:
        size += sum(len(result) for result in record.results if result is not None) + len(record.results) * 8
    return size


def _failure(record: Retrying | Failed) -> int:
    return len(record.error) + len(record.stack)


BULK: dict[type[Record], Callable[[Any], int]] = {
    Pushed: _payloads,
    Staged: _payloads,
    ScheduledPush: _payloads,
    ScheduleChanged: lambda record: len(record.schedule.payload),
    Started: lambda record: len(record.runs) * JOB_BYTES,
    Completed: _completed,
    Retrying: _failure,
    Failed: _failure,
    PartialAdded: lambda record: len(record.data),
    PayloadUpdated: lambda record: len(record.payload),
    KvWritten: lambda record: sum(len(key) + len(value) for key, value, _, _ in record.entries),
    Logged: lambda record: len(record.message),
    RequestRemembered: lambda record: (len(record.runs) + len(record.refused)) * JOB_BYTES,
    Answered: lambda record: (len(record.runs) + len(record.refused)) * JOB_BYTES,
    Ended: lambda record: len(record.runs) * JOB_BYTES,
    Released: lambda record: len(record.runs) * JOB_BYTES,
}
"""What a record weighs beyond `RECORD_BYTES`, for those that can be large."""


class _Segment:
    __slots__ = ("first", "payload_bytes", "records")

    def __init__(self, first: int) -> None:
        self.first = first
        """The sequence number of its first record."""
        self.records: list[Record] = []
        self.payload_bytes = 0

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    @property
    def bytes(self) -> int:
        return len(self.records) * RECORD_BYTES + self.payload_bytes


class _Log:
    __slots__ = ("bytes_max", "segment_bytes", "segments", "tail")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.segment_bytes = bytes_max // 16
        self.tail = _Segment(1)
        self.segments = deque([self.tail])

    def roll(self) -> None:
        """Begin a new segment, and let the oldest go while there is too much."""
        self.tail = _Segment(self.tail.last + 1)
        self.segments.append(self.tail)
        size = sum(segment.bytes for segment in self.segments)
        while size > self.bytes_max and len(self.segments) > 1:
            size -= self.segments.popleft().bytes
