"""One file of the log: an SQLite database with one table.

`log(position, data)`: a row is what one turn brought about in one shard (`records/codec.py`), and its position is
`shard << 48 | sequence` of its first record. All rows of a turn are one transaction. The file that is written to keeps
everything in its write-ahead log; when that has grown, the file is *sealed*: checkpointed with every flush that SQLite
knows, closed, and from then on immutable.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from stoker.journal.disk import Disk
from stoker.journal.transient_errors import is_no_room_for_index, is_not_opened
from stoker.model.errors import Busy, Damaged, NewerFormat
from stoker.records.codec import LogRow, NewerRecord, UnreadableRecord

SEQUENCE_BITS = 48
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1

PAGE_BYTES = 4096

BEGIN = -1
"""The position of the row that says what a file follows."""

INSERT = "INSERT INTO log VALUES (?, ?)"

KEEP_WAL = apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE
"""Closing is no time to move rows about: SQLite would do it without a flush, and remove the log that was flushed."""


def position_of(shard: int, sequence: int) -> int:
    return shard << SEQUENCE_BITS | sequence


def is_accessible(path: Path) -> bool:
    """Whether the file itself could be opened. If SQLite could not open it, there were no descriptors left."""
    return os.access(path, os.R_OK)


LOCKED_MS = 10_000
"""How long to wait for a lock of a process that is dying: it lets the directory go a moment before its files."""


class LogFile:
    """A file of the log, for writing or for reading."""

    def __init__(self, path: Path, connection: apsw.Connection | None, vfs: str = "") -> None:
        self.path = path
        self._vfs = vfs
        self._opened = connection
        self._cursor = connection.cursor() if connection is not None else None
        self._wal: int | None = None
        self._begin: tuple[int, bytes] | None = None
        """The row that goes in with the first turn."""
        self.wal_bytes = 0
        """How much was added to the write-ahead log, roughly."""

    @classmethod
    def create(cls, path: Path, disk: Disk, vfs: str = "") -> "LogFile":
        """A new, empty file, on disk and ready to be written to."""
        file = cls(path, apsw.Connection(str(path), vfs=vfs or None))
        try:
            connection = file._connection
            connection.config(KEEP_WAL, True)
            connection.pragma("page_size", PAGE_BYTES)
            connection.pragma("journal_mode", "wal")
            connection.pragma("wal_autocheckpoint", 0)
            connection.pragma("synchronous", 0)
            connection.execute("CREATE TABLE log (position INTEGER PRIMARY KEY, data BLOB NOT NULL)")
            file.write_on()
            disk.fsync(file.wal, file.wal_path)
            disk.sync_directory(path.parent)
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def reopen(cls, path: Path, vfs: str = "") -> "LogFile":
        """A file that was written to by a process that is gone: SQLite takes what was committed."""
        if not path.exists():
            raise Damaged(f"{path} is missing: restore the directory from a backup")
        if path.stat().st_size < PAGE_BYTES:  # SQLite would take it for new, and remove the write-ahead log beside it
            raise Damaged(f"{path} is cut off: restore the directory from a backup")
        connection: apsw.Connection | None = None
        try:
            connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs or None)
            connection.config(KEEP_WAL, True)
            connection.pragma("synchronous", 2)
            connection.pragma("wal_autocheckpoint", 0)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except apsw.Error as error:
            if connection is not None:
                connection.close()
            if is_no_room_for_index(error) or (is_not_opened(error) and is_accessible(path)):
                raise
            raise Damaged(f"{path} cannot be opened ({error}): restore the directory from a backup") from error
        return cls(path, connection)

    @classmethod
    def sealed(cls, path: Path, vfs: str = "") -> "LogFile":
        """A file that is never written again."""
        if not path.exists():
            raise Damaged(f"{path} is missing: restore the directory from a backup")
        return cls(path, None, vfs)

    @property
    def _connection(self) -> apsw.Connection:
        """A finished file is opened when it is read for the first time: there may be hundreds of them."""
        if self._opened is None:
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            name = f"file:{quote(str(self.path))}?immutable=1"
            try:
                self._opened = apsw.Connection(name, flags=flags, vfs=self._vfs or None)
            except apsw.CantOpenError as error:
                if not is_accessible(self.path):
                    raise
                raise Busy(
                    f"{self.path} cannot be opened now: the process has no descriptors left; raise its limit of open"
                    " files (ulimit -n), or have fewer connections"
                ) from error
        return self._opened

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def open(self) -> None:
        """Open a finished file, ahead of the first read."""
        assert self._connection is not None

    def _execute(self, query: str, values: tuple[int, ...]) -> Any:
        """A cursor, whose rows have the types that the table says: apsw's annotations cannot know them."""
        return self._connection.execute(query, values)

    @property
    def wal_path(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    @property
    def wal(self) -> int:
        """A descriptor of the write-ahead log, for flushing; open as long as the file is."""
        assert self._wal is not None
        return self._wal

    # --- writing ---------------------------------------------------------------------------------

    def write_on(self) -> None:
        """Make it the file that is written to. Nothing in it changes by that."""
        self._connection.pragma("synchronous", 0)
        self._connection.set_busy_timeout(LOCKED_MS)
        self._connection.pragma("locking_mode", "exclusive")  # six calls of fcntl a turn, half the time of an insert
        self._wal = os.open(self.wal_path, os.O_RDONLY | os.O_CLOEXEC)
        self.wal_bytes = os.fstat(self._wal).st_size

    def append(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """The rows of a turn, all or none."""
        assert self._cursor is not None
        if self._begin is not None:
            rows = [self._begin, *rows]
        if len(rows) == 1:
            self._cursor.execute(INSERT, rows[0])
        else:
            with self._connection:
                self._cursor.executemany(INSERT, rows)
        self._begin = None
        for _, data in rows:
            self.wal_bytes += len(data) + PAGE_BYTES + PAGE_BYTES // 2

    def begin(self, last: Sequence[int]) -> None:
        """Its first turn follows these sequence numbers, one for each shard: with it, that is written down.

        Files are flushed one by one. Should the power fail in between, the end of the one before may be lost and this
        one not; recovery must be able to tell.
        """
        self._begin = (BEGIN, b"".join(sequence.to_bytes(8, "little") for sequence in last))

    def began_at(self) -> list[int] | None:
        """What its first turn followed; None if it has none."""
        try:
            found = self._execute("SELECT data FROM log WHERE position = ?", (BEGIN,)).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._damaged("its beginning", error) from error
        if not found:
            return None
        data = found[0][0]
        return [int.from_bytes(data[place : place + 8], "little") for place in range(0, len(data), 8)]

    def share(self) -> None:
        """It is not written any more: let another connection in, which seals it."""
        self._connection.pragma("locking_mode", "normal")
        self._execute("SELECT position FROM log LIMIT 1", ()).fetchall()  # the lock goes with the next access

    def seal(self) -> None:
        """Move everything out of the write-ahead log, with every flush on the way. May be repeated."""
        self._connection.pragma("synchronous", 2)
        self._connection.set_busy_timeout(LOCKED_MS)
        self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.config(KEEP_WAL, False)

    # --- reading ---------------------------------------------------------------------------------

    def rows(self, shard: int, after: int, most: int = 1 << 30) -> Iterator[LogRow]:
        """The rows of a shard that hold records above a sequence number, in order."""
        low, high = position_of(shard, after + 1), position_of(shard, SEQUENCE_MASK)
        try:
            found = self._execute(
                "SELECT position, data FROM log WHERE position BETWEEN coalesce("
                "(SELECT max(position) FROM log WHERE position BETWEEN ? AND ?), ?) AND ? ORDER BY position LIMIT ?",
                (position_of(shard, 0), low, low, high, most),
            )
            for position, data in found:
                row = self._row(position, data)
                if row.first + len(row) > after + 1:
                    yield row
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._damaged(f"shard {shard} after sequence {after}", error) from error

    def row(self, shard: int, sequence: int) -> LogRow | None:
        """The row that holds this record."""
        query = "SELECT position, data FROM log WHERE position BETWEEN ? AND ? ORDER BY position DESC LIMIT 1"
        try:
            found = self._execute(query, (position_of(shard, 0), position_of(shard, sequence))).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._damaged(f"shard {shard} sequence {sequence}", error) from error
        if not found:
            return None
        row = self._row(*found[0])
        return row if row.first <= sequence < row.first + len(row) else None  # a damaged tree may lead astray

    def place_of(self, shard: int, sequence: int) -> tuple[int, int]:
        """The position of the row that holds this record, and its size."""
        query = "SELECT position, length(data) FROM log WHERE position BETWEEN ? AND ? ORDER BY position DESC LIMIT 1"
        found = self._execute(query, (position_of(shard, 0), position_of(shard, sequence))).fetchall()
        if not found or found[0][0] > position_of(shard, sequence):
            raise Damaged(f"{self.path} lacks record {sequence} of shard {shard}: restore the directory from a backup")
        position, size = found[0]
        return position, size

    def data_at(self, position: int) -> bytes:
        """A row as it is, found in order."""
        data: bytes = self._execute("SELECT data FROM log WHERE position = ?", (position,)).fetchall()[0][0]
        self._row(position, data)
        return data

    def plain_rows(self, shard: int) -> Iterator[tuple[int, bytes]]:
        """All rows of a shard as they are, each found in order."""
        query = "SELECT position, data FROM log WHERE position BETWEEN ? AND ? ORDER BY position"
        try:
            for position, data in self._execute(query, (position_of(shard, 0), position_of(shard, SEQUENCE_MASK))):
                self._row(position, data)
                yield position, data
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._damaged(f"shard {shard}", error) from error

    def last(self, shard: int) -> int:
        """The last sequence number of a shard in here; 0 if it has none."""
        row = self.last_row(shard)
        return 0 if row is None else row.first + len(row) - 1

    def last_row(self, shard: int) -> LogRow | None:
        query = "SELECT position, data FROM log WHERE position BETWEEN ? AND ? ORDER BY position DESC LIMIT 1"
        try:
            found = self._execute(query, (position_of(shard, 0), position_of(shard, SEQUENCE_MASK))).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._damaged(f"the end of shard {shard}", error) from error
        return self._row(*found[0]) if found else None

    def _row(self, position: int, data: bytes) -> LogRow:
        try:
            return LogRow(data, position & SEQUENCE_MASK, position)
        except NewerRecord as error:
            raise NewerFormat(f"{self.path}: {error}") from error
        except UnreadableRecord as error:
            where = f"shard {position >> SEQUENCE_BITS} sequence {position & SEQUENCE_MASK}"
            raise self._damaged(where, error) from error

    def _damaged(self, where: str, error: Exception) -> Damaged:
        return Damaged(f"{self.path} is damaged at {where} ({error}): restore the directory from a backup")

    def close(self, finished: bool = False) -> None:
        """`finished` says that the write-ahead log is empty, and may go."""
        if self._opened is not None:
            if finished:
                self._opened.config(KEEP_WAL, False)
            self._opened.close()
        if self._wal is not None:
            os.close(self._wal)
            self._wal = None
