"""The newest rows of the log in memory: readers of what has just happened do not ask PostgreSQL."""

import threading
from bisect import bisect_right
from collections import deque

from stoker.journal.logfile import position_of
from stoker.records.codec import LogRow

BYTES_MAX = 16 << 20
COMPACT_ROWS = 1_024


class ShardTail:
    """The newest rows of one shard, without gaps, up to the last one."""

    __slots__ = ("data", "first", "gone", "last")

    def __init__(self, last: int) -> None:
        self.last = last
        self.first: list[int] = []
        self.data: list[bytes] = []
        self.gone = 0
        """How many at the beginning were dropped."""

    def drop(self) -> int:
        """Drop the oldest row; its size."""
        size = len(self.data[self.gone])
        self.data[self.gone] = b""
        self.gone += 1
        if self.gone > COMPACT_ROWS and self.gone * 2 > len(self.first):
            del self.first[: self.gone], self.data[: self.gone]
            self.gone = 0
        return size

    def place(self, sequence: int) -> int | None:
        """Where the row with this record lies; None if it is older than all."""
        place = bisect_right(self.first, sequence) - 1
        return place if place >= self.gone and sequence <= self.last else None


class Tail:
    """The newest rows of all shards of a seat. What is not committed is always among them."""

    def __init__(self, last: list[int]) -> None:
        self._shards = [ShardTail(end) for end in last]
        self._order: deque[tuple[int, int]] = deque()
        """Shard, and the last record of each row."""
        self._bytes = 0
        self._lock = threading.Lock()
        self.committed = list(last)
        """The last record of each shard that is safe."""

    def add(self, shard: int, first: int, last: int, data: bytes) -> None:
        with self._lock:
            own = self._shards[shard]
            own.first.append(first)
            own.data.append(data)
            own.last = last
            self._order.append((shard, last))
            self._bytes += len(data)

    def commit(self, ends: dict[int, int]) -> None:
        """These are safe. The oldest rows go, while there is too much."""
        with self._lock:
            for shard, end in ends.items():
                self.committed[shard] = end
            while self._bytes > BYTES_MAX and self._order[0][1] <= self.committed[self._order[0][0]]:
                self._bytes -= self._shards[self._order.popleft()[0]].drop()

    def last(self, shard: int) -> int:
        return self._shards[shard].last

    def has(self, shard: int, sequence: int) -> bool:
        """Whether a record is here, or still to come."""
        own = self._shards[shard]
        return sequence > own.last or own.place(sequence) is not None

    def row(self, shard: int, sequence: int) -> LogRow | None:
        found = self.rows(shard, sequence - 1, 1)
        return found[0] if found else None

    def rows(self, shard: int, after: int, bytes_max: int) -> list[LogRow] | None:
        """The rows with records above a number; None if they are not all here."""
        found: list[tuple[int, bytes]] = []
        with self._lock:
            own = self._shards[shard]
            if after >= own.last:
                return []
            place = own.place(after + 1)
            if place is None:
                return None
            while place < len(own.first) and bytes_max > 0:
                found.append((own.first[place], own.data[place]))
                bytes_max -= len(own.data[place])
                place += 1
        return [LogRow(data, first, position_of(shard, first)) for first, data in found]
