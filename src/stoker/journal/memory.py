"""A journal that survives nothing: it keeps the latest records for readers of events, up to a number of bytes."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from stoker.model.replies import Level
from stoker.records.records import Pushed, Record, Staged

RECORD_BYTES = 256
"""What a record weighs besides its payloads, roughly."""
JOB_BYTES = 64


class MemoryJournal:
    """The latest records of each shard."""

    level: Level = "memory"

    def __init__(self, shards: int, bytes_max: int) -> None:
        self._logs = [_Log(bytes_max // shards) for _ in range(shards)]

    def append(self, shard: int, records: Sequence[Record]) -> None:
        log = self._logs[shard]
        for record in records:
            log.records.append(record)
            log.bytes += weight(record) if type(record) in HEAVY else RECORD_BYTES
        if log.bytes > log.bytes_max:
            log.trim()

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        log = self._logs[shard]
        skip = max(0, after + 1 - log.lowest)
        start = log.lowest + skip
        return list(enumerate(islice(log.records, skip, skip + limit), start))

    def lowest(self, shard: int) -> int:
        return self._logs[shard].lowest

    def last(self, shard: int) -> int:
        log = self._logs[shard]
        return log.lowest + len(log.records) - 1


class _Log:
    __slots__ = ("bytes", "bytes_max", "lowest", "records")

    def __init__(self, bytes_max: int) -> None:
        self.records: deque[Record] = deque()
        self.lowest = 1
        self.bytes = 0
        self.bytes_max = bytes_max

    def trim(self) -> None:
        while self.bytes > self.bytes_max and len(self.records) > 1:
            self.bytes -= weight(self.records.popleft())
            self.lowest += 1


HEAVY = (Pushed, Staged)
"""Records with payloads in them."""


def weight(record: Record) -> int:
    if type(record) in HEAVY:
        payloads: list[bytes] = record.payloads  # type: ignore[attr-defined]
        return RECORD_BYTES + len(payloads) * JOB_BYTES + sum(map(len, payloads))
    return RECORD_BYTES
