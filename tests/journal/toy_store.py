"""The smallest store: the rows of all shards in one plain file, which a thread writes after `append` has returned.

So `commit` is answered by ticket, and reads wait for the newest one. There are no checkpoints: it recovers from all
rows. `docs/development/journal.md` uses it as its example.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from struct import Struct
from zlib import crc32

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.brokers.local.opening import open_over
from stoker.journal.contract import NotWritten, Owner, Turn
from stoker.journal.recovery import left_out, recover, reopened
from stoker.journal.room_watch import RoomWatch
from stoker.journal.tickets import Tickets
from stoker.model.errors import Damaged
from stoker.model.replies import Level
from stoker.records.codec import LogRow, encode_row
from stoker.records.records import Record
from stoker.runtime.clock import Clock

FRAME = Struct("<II")
"""Before the rows of a turn: their length, and a checksum."""

Rows = list[tuple[int, int, bytes]]
"""Shard, first sequence number, data."""


class ToyJournal(RoomWatch):
    """The rows of all shards: in memory for readers, and on their way to the file."""

    levels: tuple[Level, ...] = ("memory", "commit")
    at_once: tuple[Level, ...] = ("memory",)
    reads_wait = True
    is_out = False

    def __init__(self, path: Path, logs: list[list[LogRow]]) -> None:
        super().__init__()
        self._path = path
        self._logs = logs
        self._turns = 0
        self._safe = [end(log) for log in logs]
        self._tickets = Tickets()
        self._coming: SimpleQueue[Rows | None] = SimpleQueue()
        self.when_failed: Callable[[Exception], object] = lambda error: None
        self.may_commit = threading.Event()
        """Tests clear it to see what happens between `append` and the commit."""
        self.may_commit.set()
        self._writer = threading.Thread(target=self._write, name="toy-writer", daemon=True)
        self._writer.start()

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        if self.has_failed:
            raise NotWritten("the journal has failed before")
        rows: Rows = []
        for shard, records in turn:
            first = self.last(shard) + 1
            rows.append((shard, first, encode_row(records)))
            self._logs[shard].append(LogRow(rows[-1][2], first))
        self._turns += 1
        self._coming.put(rows)

    def _write(self) -> None:
        try:
            with self._path.open("ab", buffering=0) as file:
                while (rows := self._coming.get()) is not None and self.may_commit.wait() and not self.has_failed:
                    file.write(framed(rows))
                    for shard, first, data in rows:
                        self._safe[shard] = first + len(LogRow(data, first)) - 1
                    self._tickets.reach(self._tickets.reached + 1)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Nothing more is committed."""
        self._tickets.end()
        self.when_failed(error)

    def ticket(self) -> int:
        return self._turns

    def when_flushed(self, ticket: int, tell: Callable[[], object]) -> bool:
        return self._tickets.when(ticket, tell)

    def reached(self, ticket: int) -> bool:
        return self._tickets.reached >= ticket

    @property
    def has_failed(self) -> bool:
        return self._tickets.is_over

    # --- reading: all that was appended ---------------------------------------------------------------

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        found = ((row.first + n, row.record(n)) for row in above(self._logs[shard], after) for n in range(len(row)))
        return [(sequence, record) for sequence, record in found if sequence > after][:limit]

    def rows(self, shard: int, after: int, bytes_max: int) -> list[LogRow]:
        return above(self._logs[shard], after)

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        return above(self._logs[shard], sequence - 1)[0].payloads(sequence)

    def read_together(self, places: Iterable[tuple[int, int]]) -> None:
        """It lies in memory anyway."""

    def body(self, shard: int, sequence: int) -> bytes | None:
        row = above(self._logs[shard], sequence - 1)[0]
        return row.parts(sequence - row.first)[1]

    def expect(self, shard: int, coming: Sequence[int], gone: Sequence[int], now: int) -> None:
        """It lies in memory anyway."""

    def lowest(self, shard: int) -> int:
        return 1

    def last(self, shard: int) -> int:
        return end(self._logs[shard])

    def safe(self, shard: int) -> int:
        return self._safe[shard]

    def close(self) -> None:
        self._coming.put(None)
        self._writer.join()


class ToyStore:
    """The shards in a file, recovered."""

    data_directory = None

    def __init__(self, path: Path, settings: LocalSettings, now: int) -> None:
        self._path = path
        self.total = settings.shards or 1
        self._logs: list[list[LogRow]] = [[] for _ in range(self.total)]
        for shard, first, data in written(path):
            self._logs[shard].append(LogRow(data, first))
        found = recover(range(self.total), self.total, (), [self], stored_from=2)
        self.shards, self.at = found.shards, max(found.at, now)
        gap = left_out(same_boot=True) if any(self._logs) else 0
        self.journal = ToyJournal(path, self._logs)
        self.journal.append(reopened(found, self.at, self.shards[0].epoch + 1, gap, settings.engine, settings.limits))

    # --- a part of a log, for recovery ----------------------------------------------------------------

    def ends_at(self, shard: int) -> int | None:
        return None

    def rows(self, shard: int, after: int) -> list[LogRow]:
        return above(self._logs[shard], after)

    def damaged(self, what: str) -> Damaged:
        return Damaged(f"{self._path} {what}")

    # --- in use ---------------------------------------------------------------------------------------

    def start(self, owner: Owner) -> None:
        self.journal.when_failed = owner.stop

    def leave_to_parent(self) -> None:
        """Nothing is locked."""

    def close(self) -> None:
        self.journal.close()


def open_toy(path: Path, settings: LocalSettings | None = None, clock: Clock | None = None) -> LocalBroker:
    """The one line that a new journal needs."""
    settings = settings or LocalSettings()
    return open_over(lambda now: ToyStore(path, settings, now), settings, clock)


def end(log: list[LogRow]) -> int:
    return log[-1].first + len(log[-1]) - 1 if log else 0


def above(log: list[LogRow], after: int) -> list[LogRow]:
    """The rows with records above a sequence number."""
    return [] if after >= end(log) else log[bisect_right(log, after + 1, key=lambda row: row.first) - 1 :]


def framed(rows: Rows) -> bytes:
    data = msgspec.msgpack.encode(rows)
    return FRAME.pack(len(data), crc32(data)) + data


def written(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Every row of every turn that is whole; what was torn off at the end is cut."""
    data, at = path.read_bytes() if path.exists() else b"", 0
    while len(data) - at >= FRAME.size:
        size, checksum = FRAME.unpack_from(data, at)
        rows = data[at + FRAME.size : at + FRAME.size + size]
        if len(rows) < size or crc32(rows) != checksum:
            break
        yield from msgspec.msgpack.decode(rows, type=Rows)
        at += FRAME.size + size
    if at < len(data):
        with path.open("r+b") as file:
            file.truncate(at)
