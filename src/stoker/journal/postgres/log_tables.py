"""The log of a seat in PostgreSQL: partitions, each a table of its own, and the rows that say which of them count.

Whatever changes the list of partitions or the checkpoint in force does it in a transaction that begins with `changing`:
it locks the row of the seat in `checkpoints`, where a new owner puts its epoch before it reads anything. So a process
that has lost its seat changes nothing.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

import msgspec

from stoker.journal.checkpoint_files import read_chunks
from stoker.journal.contract import JournalFailed
from stoker.journal.logfile import position_of
from stoker.journal.postgres.database import Connection, Database
from stoker.journal.recovery import Saved
from stoker.model.errors import Damaged
from stoker.records.codec import LogRow, UnreadableRecord

PIECE_BYTES = 1 << 20
"""A checkpoint lies in pieces of this size: a row of 200 MB costs a backend four times as much memory."""
PAGE_ROWS = 5_000

PAGE = """
SELECT first, data FROM (
    SELECT first, data, sum(length(data)) OVER (ORDER BY first) - length(data) AS before FROM (
        SELECT first, data FROM {s}.{table}
        WHERE shard = %(shard)s AND last > %(after)s AND first >= coalesce(
            (SELECT max(first) FROM {s}.{table} WHERE shard = %(shard)s AND first <= %(after)s + 1), 0)
        ORDER BY first LIMIT %(rows)s
    ) AS near
) AS page WHERE before < %(bytes)s ORDER BY first
"""
"""Rows with records above a number: so many bytes, and at least one row. The length of a row is known without it."""
ROW = "SELECT first, last, data FROM {s}.{table} WHERE shard = %s AND first <= %s ORDER BY first DESC LIMIT 1"
ROWS = """
SELECT %s::int AS place, first, data FROM {s}.{table} WHERE shard = %s AND first IN (
    SELECT (SELECT max(first) FROM {s}.{table} WHERE shard = %s AND first <= asked.sequence)
    FROM unnest(%s::bigint[]) AS asked (sequence)
)
"""
"""The row that begins last before each of some records. If the record is kept here, this row holds it."""
INDEX = "SELECT first, last, length(data) FROM {s}.{table} WHERE shard = %s ORDER BY first"
ENDS = """
SELECT shard, coalesce((SELECT last FROM {s}.{table} WHERE shard = shards ORDER BY first DESC LIMIT 1), 0)
FROM unnest(%s::int[]) AS shards (shard)
"""
SIZE = "SELECT pg_total_relation_size('{s}.{table}')"
CLAIM = "UPDATE {s}.checkpoints SET epoch = %s WHERE seat = %s AND epoch < %s"
IN_FORCE = "SELECT number, position, lowest, made FROM {s}.checkpoints WHERE seat = %s"
LOCKED = IN_FORCE + " AND epoch = %s FOR UPDATE"
PARTS = "SELECT number, place, state, last, ended_at, bytes FROM {s}.parts WHERE seat = %s ORDER BY place"
HEADS = "SELECT shard, epoch, last FROM {s}.heads WHERE shard = ANY(%s) ORDER BY shard"
PIECE = "SELECT data FROM {s}.checkpoint_parts WHERE seat = %s AND number = %s AND place = %s"
GIVE_NUMBERS = "UPDATE {s}.checkpoints SET made = %s WHERE seat = %s"
NEW_TABLE = "CREATE TABLE {s}.{table} (LIKE {s}.log_model INCLUDING ALL)"
NEW_PART = "INSERT INTO {s}.parts (seat, number, place, state) VALUES (%s, %s, %s, 'open')"
SEAL = "UPDATE {s}.parts SET state = 'full', last = %s, ended_at = %s, bytes = %s WHERE seat = %s AND number = %s"
DROP_TABLE = "DROP TABLE IF EXISTS {s}.{table}"
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = '{s}'::regnamespace AND relkind = 'r' AND relname LIKE %s"
OLD_PIECES = "DELETE FROM {s}.checkpoint_parts WHERE seat = %s AND number <> %s"

Ask = Callable[[LiteralString, Any], list[tuple[Any, ...]]]
"""Carries out a statement with its arguments, and returns the rows."""


class SeatLost(JournalFailed):
    """Another process has taken the seat."""

    def __init__(self, seat: int) -> None:
        super().__init__(f"another process has taken seat {seat}")


class PartRow(msgspec.Struct, frozen=True):
    """A partition, as `parts` has it."""

    number: int
    place: int
    state: str
    last: list[int]
    """The last record of each shard at its end; empty while it is written to."""
    ended_at: int = 0
    bytes: int = 0


class InForce(msgspec.Struct, frozen=True):
    """The checkpoint that recovery begins with, and what readers of events can still read."""

    number: int
    position: list[int]
    lowest: list[int]
    made: int


class LogTable:
    """A partition of the log that can be read: a part of a log for `recovery.py` and for `needed.py`."""

    def __init__(self, database: Database, seat: int, row: PartRow, ask: Ask, page_bytes: int) -> None:
        self._database = database
        self._ask = ask
        self._page_bytes = page_bytes
        self.row_of_part = row
        self.table = table_of(seat, row.number)
        self._index: dict[int, list[tuple[int, int, int]]] = {}

    @property
    def name(self) -> str:
        return self.table

    @property
    def last(self) -> list[int]:
        return self.row_of_part.last

    @property
    def ended_at(self) -> int:
        return self.row_of_part.ended_at

    @property
    def bytes(self) -> int:
        return self.row_of_part.bytes

    @property
    def is_rewritten(self) -> bool:
        return self.row_of_part.state == "sparse"

    def ends_at(self, shard: int) -> int | None:
        return self.row_of_part.last[shard] if self.row_of_part.last else None

    def rows(self, shard: int, after: int) -> Iterator[LogRow]:
        while page := self.page(shard, after, self._page_bytes):
            yield from page
            after = page[-1].first + len(page[-1]) - 1

    def page(self, shard: int, after: int, bytes_max: int) -> list[LogRow]:
        """The rows with records above a number: about so many bytes, and at least one row if there is one."""
        asked = {"shard": shard, "after": after, "bytes": bytes_max, "rows": PAGE_ROWS}
        found = self._ask(self._database.sql(PAGE, table=self.table), asked)
        return [self._opened(shard, first, data) for first, data in found]

    def row(self, shard: int, sequence: int) -> LogRow | None:
        """The row that holds a record, if it is kept."""
        found = self._ask(self._database.sql(ROW, table=self.table), (shard, sequence))
        if not found or found[0][1] < sequence:
            return None
        return self._opened(shard, found[0][0], found[0][2])

    def _opened(self, shard: int, first: int, data: Any) -> LogRow:
        try:
            return LogRow(data, first, position_of(shard, first))
        except UnreadableRecord as error:
            raise self.damaged(f"is damaged at shard {shard} sequence {first} ({error})") from error

    def place_of(self, shard: int, sequence: int) -> tuple[int, int]:
        """The position of the row that holds this record, and its size."""
        if shard not in self._index:
            self._index[shard] = self._ask(self._database.sql(INDEX, table=self.table), (shard,))
        index = self._index[shard]
        place = bisect_right(index, sequence, key=lambda row: row[0]) - 1
        if place < 0 or index[place][1] < sequence:
            raise self.damaged(f"lacks record {sequence} of shard {shard}")
        return position_of(shard, index[place][0]), index[place][2]

    def damaged(self, what: str) -> Damaged:
        return damaged(self._database, self.table, what)


class Wanted(NamedTuple):
    """Records of one shard in one partition."""

    table: LogTable
    shard: int
    sequences: list[int]


def rows_together(wanted: Sequence[Wanted]) -> Iterator[tuple[Wanted, LogRow]]:
    """The rows that hold records of several partitions, each once, by one statement. What is not there has no row."""
    first = wanted[0].table
    statement = " UNION ALL ".join(first._database.sql(ROWS, table=one.table.table) for one in wanted)
    asked = [value for place, (_, shard, sequences) in enumerate(wanted) for value in (place, shard, shard, sequences)]
    for place, begins, data in first._ask(statement, asked):
        one = wanted[place]
        yield one, one.table._opened(one.shard, begins, data)


class SeatLog:
    """The partitions and checkpoints of one seat, for the process that has taken it."""

    def __init__(self, database: Database, seat: int, shards: Sequence[int], total: int, epoch: int) -> None:
        self.database = database
        self.seat, self.shards, self.total, self.epoch = seat, shards, total, epoch

    def claim(self, connection: Connection) -> None:
        """From now on the owner before changes nothing. Called before anything is read."""
        done = connection.execute(self.database.sql(CLAIM), (self.epoch, self.seat, self.epoch)).rowcount
        if not done and self._locked(connection) is None:
            raise SeatLost(self.seat)

    def _locked(self, connection: Connection) -> tuple[Any, ...] | None:
        return connection.execute(self.database.sql(LOCKED), (self.seat, self.epoch)).fetchone()

    @contextmanager
    def changing(self, connection: Connection) -> Iterator[InForce]:
        """A transaction that changes the list of partitions or the checkpoint in force."""
        with connection.transaction():
            row = self._locked(connection)
            if row is None:
                raise SeatLost(self.seat)
            yield InForce(*row)

    def in_force(self, connection: Connection) -> InForce:
        row = connection.execute(self.database.sql(IN_FORCE), (self.seat,)).fetchone()
        if row is None:
            raise damaged(self.database, "checkpoints", f"lacks seat {self.seat}")
        return InForce(*row)

    def parts(self, connection: Connection) -> list[PartRow]:
        return [PartRow(*row) for row in connection.execute(self.database.sql(PARTS), (self.seat,))]

    def heads(self, connection: Connection) -> dict[int, tuple[int, int]]:
        """Epoch and number of the last record of each shard."""
        rows = connection.execute(self.database.sql(HEADS), (list(self.shards),))
        return {shard: (epoch, last) for shard, epoch, last in rows}

    def numbers(self, connection: Connection, count: int) -> int:
        """Give so many numbers to new partitions and checkpoints; the first of them."""
        with self.changing(connection) as now:
            connection.execute(self.database.sql(GIVE_NUMBERS), (now.made + count, self.seat))
        return now.made + 1

    def new_part(self, connection: Connection) -> PartRow:
        """Make the partition to write to next."""
        with self.changing(connection) as now:
            number = now.made + 1
            connection.execute(self.database.sql(GIVE_NUMBERS), (number, self.seat))
            connection.execute(self.database.sql(NEW_TABLE, table=table_of(self.seat, number)))
            connection.execute(self.database.sql(NEW_PART), (self.seat, number, number))
        return PartRow(number, number, "open", [])

    def measured(self, connection: Connection, part: PartRow) -> PartRow:
        """The same with its size: of one that is written to, `parts` knows none."""
        size = connection.execute(self.database.sql(SIZE, table=table_of(self.seat, part.number))).fetchone()
        assert size is not None
        return msgspec.structs.replace(part, bytes=size[0])

    def seal(self, connection: Connection, part: PartRow, before: Sequence[int], at: int) -> PartRow:
        """Note the end of a partition that is written to no more. `before` is the end of the one before it."""
        table = table_of(self.seat, part.number)
        with self.changing(connection):
            last = list(before) or [0] * self.total
            for shard, end in connection.execute(self.database.sql(ENDS, table=table), (list(self.shards),)):
                last[shard] = max(last[shard], end)
            size = self.measured(connection, part).bytes
            connection.execute(self.database.sql(SEAL), (last, at, size, self.seat, part.number))
        return PartRow(part.number, part.place, "full", last, at, size)

    def remove_leftovers(self, connection: Connection) -> None:
        """Tables and pieces that an owner before has made, and that are not in force."""
        with self.changing(connection) as now:
            known = {table_of(self.seat, part.number) for part in self.parts(connection)}
            connection.execute(self.database.sql(OLD_PIECES), (self.seat, now.number))
            found = connection.execute(self.database.sql(TABLES), (f"log\\_{self.seat}\\_%",)).fetchall()
            for (table,) in found:
                if table not in known:
                    connection.execute(self.database.sql(DROP_TABLE, table=table))

    def saved(self, connection: Connection, number: int) -> Saved:
        """A checkpoint, as it is read."""
        if not number:
            return ()
        pieces = Pieces(lambda place: self._piece(connection, number, place))
        return read_chunks(pieces.read, lambda what: damaged(self.database, f"checkpoint {number}", what))

    def _piece(self, connection: Connection, number: int, place: int) -> bytes:
        row = connection.cursor(binary=True).execute(self.database.sql(PIECE), (self.seat, number, place)).fetchone()
        return bytes(row[0]) if row is not None else b""


class Pieces:
    """Bytes that lie in pieces, as one file."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._place = 0
        self._held = b""

    def read(self, size: int) -> bytes:
        while len(self._held) < size and (more := self._piece(self._place)):
            self._held += more
            self._place += 1
        taken, self._held = self._held[:size], self._held[size:]
        return taken


def asking(connection: Connection) -> Ask:
    """Statements on this connection; rows come as they are stored, which for bytes is four times as fast."""
    return lambda statement, asked: connection.cursor(binary=True).execute(statement, asked).fetchall()


def table_of(seat: int, number: int) -> str:
    return f"log_{seat}_{number}"


def damaged(database: Database, what: str, how: str) -> Damaged:
    return Damaged(f"{what} in {database.name} (schema {database.schema}) {how}: restore the database from a backup")
