"""A journal that survives nothing: it keeps the latest records for readers of events, up to a number of bytes."""

from collections import deque
from collections.abc import Sequence

from stoker.model.replies import Level
from stoker.records.records import Pushed, Record, Staged

RECORD_BYTES = 256
"""What a record weighs besides its payloads, roughly."""
JOB_BYTES = 64

SEGMENT_RECORDS = 1024
"""Records leave by segments of so many: dropping one by one would cost as much as adding."""


class MemoryJournal:
    """The latest records of each shard."""

    level: Level = "memory"

    def __init__(self, shards: int, bytes_max: int) -> None:
        self._logs = [_Log(bytes_max // shards) for _ in range(shards)]

    def append(self, shard: int, records: Sequence[Record]) -> None:
        log = self._logs[shard]
        tail = log.tail
        tail.records.extend(records)
        for record in records:
            if type(record) is Pushed or type(record) is Staged:
                payloads = record.payloads
                tail.payload_bytes += sum(map(len, payloads)) + len(payloads) * JOB_BYTES
        if len(tail.records) >= SEGMENT_RECORDS or tail.payload_bytes > log.segment_bytes:
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

    def lowest(self, shard: int) -> int:
        return self._logs[shard].segments[0].first

    def last(self, shard: int) -> int:
        return self._logs[shard].tail.last


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
