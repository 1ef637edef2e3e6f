"""A bounded file with what happened in each queue minute by minute, apart from the log.

It is one table of SQLite, by tenant, queue and minute; the name "" stands for all queues of a tenant. Nothing depends
on it: it is written without waiting for the disk, it is no part of a backup, and a damaged file is replaced by an empty
one. Without a data directory it is in memory.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from stoker.model.histograms import Histogram
from stoker.model.history import MINUTE_MS, HistoryPoint, TrendPoint, together

NAME = "history.db"
FILES = (NAME, f"{NAME}-wal", f"{NAME}-shm")
KEPT_MS = 48 * 3_600_000
"""Two days, so that a day can be compared with the one before."""
ROWS_MAX = 500_000
"""About 50 MB. A server with more queues keeps fewer hours."""
ALL_QUEUES = ""

logger = logging.getLogger("stoker.journal")

TABLE = """
CREATE TABLE IF NOT EXISTS minutes (
    tenant TEXT, queue TEXT, minute INTEGER, point BLOB, PRIMARY KEY (tenant, queue, minute)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_minute ON minutes (minute);
"""

Sample = tuple[str, str, HistoryPoint]
"""A tenant, a queue or "", and what happened in a minute."""


class StoredPoint(msgspec.Struct, array_like=True, frozen=True):
    """A point as it is stored. A field may be added at the end, with a default."""

    pushed: int
    started: int
    completed: int
    failed: int
    dead: int
    backlog: int
    wait: tuple[tuple[int, ...], int] = ((), 0)
    run: tuple[tuple[int, ...], int] = ((), 0)


class StoredEnds(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The beginning of a `StoredPoint`: what follows is passed over."""

    pushed: int
    started: int
    completed: int
    failed: int
    dead: int


COUNTED = ("pushed", "started", "completed", "failed", "dead", "backlog")
_encode, _decoder = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(StoredPoint)
_decode_ends = msgspec.msgpack.Decoder(StoredEnds).decode

P = TypeVar("P")


class HistoryFile:
    """The file, or the same in memory. Any thread may use it."""

    def __init__(self, path: Path | None, rows_max: int = ROWS_MAX) -> None:
        self._path, self._rows_max = path, rows_max
        self._lock = threading.Lock()
        self._closed = False
        self._database: sqlite3.Connection | None = None
        self._rows = 0

    def add(self, samples: Sequence[Sample], minute: int) -> None:
        """Store the samples of a minute, and forget what is too old or too much. An error leaves a hole."""
        with self._lock, self._mended(), self._opened() as database, database:
            begun = {
                (tenant, queue): decoded(minute, point)
                for tenant, queue, point in database.execute(
                    "SELECT tenant, queue, point FROM minutes WHERE minute = ?", (minute,)
                )
            }  # by a server that was stopped in this minute
            rows = []
            for tenant, queue, point in samples:
                old = begun.get((tenant, queue))
                whole = point if old is None else together(0, [old, point], last=True)
                rows.append((tenant, queue, minute, encoded(whole)))
            database.executemany("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?)", rows)
            self._rows += sum((tenant, queue) not in begun for tenant, queue, _ in samples)
            self._forget(database, minute - KEPT_MS // MINUTE_MS)
            while self._rows > self._rows_max:
                oldest = database.execute("SELECT min(minute) FROM minutes").fetchone()[0]
                if oldest is None or oldest >= minute:
                    break
                self._forget(database, oldest + 1)

    def _forget(self, database: sqlite3.Connection, before: int) -> None:
        self._rows -= database.execute("DELETE FROM minutes WHERE minute < ?", (before,)).rowcount

    def read(self, tenant: str, queue: str, since: int, before: int) -> list[HistoryPoint]:
        """The points of these minutes, in order."""
        return self._read(decoded, tenant, queue, since, before)

    def read_trend(self, tenant: str, queue: str, since: int, before: int) -> list[TrendPoint]:
        """How many jobs ended in these minutes, in order. Reads a tenth of what `read` does."""
        return self._read(decoded_trend, tenant, queue, since, before)

    def _read(self, decode: Callable[[int, bytes], P], tenant: str, queue: str, since: int, before: int) -> list[P]:
        if self._database is None and (self._path is None or not self._path.exists()):
            return []  # looking makes no file
        points: list[P] = []
        with self._lock, self._mended(), self._opened() as database:
            found = database.execute(
                "SELECT minute, point FROM minutes WHERE tenant = ? AND queue = ? AND minute >= ? AND minute < ?"
                " ORDER BY minute",
                (tenant, queue, since, before),
            )
            points = [decode(minute, point) for minute, point in found]
        return points

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._database is not None:
                self._database.close()
                self._database = None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise sqlite3.ProgrammingError("the history is closed")
        if self._database is None:
            self._database = sqlite3.connect(self._path or ":memory:", check_same_thread=False, timeout=5)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.executescript(TABLE)
            self._rows = self._database.execute("SELECT count(*) FROM minutes").fetchone()[0]
        yield self._database

    @contextlib.contextmanager
    def _mended(self) -> Iterator[None]:
        """An error of the file is logged, and ends here. A damaged file is removed: the next call makes a new one."""
        try:
            yield
        except (sqlite3.Error, OSError, msgspec.MsgspecError) as error:
            if self._closed:
                return
            logger.warning("the history of the queues has a hole: %s: %s", self._path or "in memory", error)
            if self._database is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._database.close()
                self._database = None
            damaged = not isinstance(error, sqlite3.OperationalError | OSError)
            if self._path is not None and damaged:
                for name in FILES:
                    self._path.with_name(name).unlink(missing_ok=True)


def encoded(point: HistoryPoint) -> bytes:
    counts = {name: getattr(point, name) for name in COUNTED}
    wait, run = ((one.counts, one.sum_ms) for one in (point.wait, point.run))
    return _encode(StoredPoint(**counts, wait=wait, run=run))


def decoded(minute: int, point: bytes) -> HistoryPoint:
    stored = _decoder.decode(point)
    counts = {name: getattr(stored, name) for name in COUNTED}
    return HistoryPoint(at=minute * MINUTE_MS, wait=Histogram(*stored.wait), run=Histogram(*stored.run), **counts)


def decoded_trend(minute: int, point: bytes) -> TrendPoint:
    stored = _decode_ends(point)
    return TrendPoint(minute * MINUTE_MS, stored.completed, stored.dead)
