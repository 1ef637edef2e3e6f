"""The journal of a seat in PostgreSQL.

`append` leaves rows to the writer thread, and every reply waits for its ticket: there is no level `memory`, and reads
wait, too. A ticket is reached when its rows are committed and the lease holds. So an owner that slept, or that has
lost its seat, shows nothing that never was.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import suppress
from typing import Any, LiteralString

import psycopg

from stoker.journal.contract import NotWritten, Turn
from stoker.journal.logfile import position_of
from stoker.journal.patience import may_wait
from stoker.journal.postgres.database import Link, first_line
from stoker.journal.postgres.lease import Lease
from stoker.journal.postgres.log_tables import LogTable, PartRow, SeatLog, Wanted, rows_together
from stoker.journal.postgres.tail import Tail
from stoker.journal.postgres.writer import Head, LogWriter, PendingRows
from stoker.journal.read_ahead import ReadAhead
from stoker.journal.room_watch import RoomWatch
from stoker.journal.sqlite import JournalSettings
from stoker.journal.tickets import Tickets
from stoker.model.errors import Damaged, Unavailable
from stoker.model.replies import Level
from stoker.records.codec import LogRow, encode_row
from stoker.records.records import Record
from stoker.records.stored import NotAtHand

READ_BYTES = 256 << 10
"""Of the log that is read from PostgreSQL at once."""
ROWS_TOGETHER = 100
"""Rows that one statement reads: some MB, if they are large."""
TABLES_TOGETHER = 32
"""Partitions that one statement reads: each costs it about as much as a row."""
READ_S = 1.0
"""A read that takes longer has failed: the jobs that need it go back, and other reads have their turn."""
OPEN_END = 2**63
"""Behind every record."""
PARTS = 2
"""A checkpoint is due after so many partitions, if their records are many."""
CLOSE_S = 10.0
"""How long a close waits for a PostgreSQL that is away."""


class PostgresJournal(RoomWatch):
    """The logs of the shards of a seat."""

    at_once: tuple[Level, ...] = ()
    reads_wait = True
    is_out = False

    def __init__(
        self,
        log: SeatLog,
        lease: Lease,
        parts: Sequence[PartRow],
        heads: Mapping[int, Head],
        lowest: list[int],
        level: Level,
        settings: JournalSettings,
    ) -> None:
        super().__init__()
        self.levels: tuple[Level, ...] = (level,)
        self.log, self.lease, self.settings = log, lease, settings
        self._lowest = lowest
        last = [heads[shard][1] if shard in heads else 0 for shard in range(log.total)]
        self.tail = Tail(last)
        self.written_at = 0
        """When the last record happened."""
        self._part_bytes = parts[-1].bytes
        self._part_began = sum(parts[-2].last) if len(parts) > 1 else 0
        """How many records there were when the partition that is open began."""
        self._turns = 0
        self._tickets = Tickets(lease.is_valid)
        self._failure: Exception | None = None
        self.when_failed: Callable[[Exception], object] = lambda error: None
        self.reader = Link(log.database)
        self._reads = ThreadPoolExecutor(1, "stoker-reads")
        self.tables = [self.table(part) for part in parts]
        """All partitions in order; the last one is written to."""
        self.ahead = ReadAhead(self.find, self.is_settled)
        self.writer = LogWriter(log, heads, self._committed, self.fail, self.note_absence)
        self.writer.start()
        lease.when_renewed = self._renewed
        lease.when_failed = self.note_absence
        lease.when_lost = self._lost
        if lease.is_lost:  # before there was a journal to tell
            self._lost()

    def table(self, part: PartRow) -> LogTable:
        return LogTable(self.log.database, self.log.seat, part, self._ask, READ_BYTES)

    # --- appending -------------------------------------------------------------------------------

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        if self._failure is not None:
            raise NotWritten(f"the journal has failed before: {self._failure}")
        self._turns += 1
        rows = PendingRows(self.tables[-1].table, self._turns, shards=[], first=[], last=[], data=[])
        records: Sequence[Record] = ()
        for shard, records in turn:
            first = self.tail.last(shard) + 1
            data = encode_row(records, position_of(shard, first))
            last = first + len(records) - 1
            rows.add(shard, first, last, data)
            self.tail.add(shard, first, last, data)
        self.written_at = records[-1].at  # type: ignore[attr-defined]  # every record has its time
        self._part_bytes += rows.size
        self.writer.put(rows)

    def go_on(self, part: PartRow) -> int:
        """Go on in another partition, under the owner's lock. The one before is full when the ticket is reached."""
        self.tables = [*self.tables, self.table(part)]
        self._part_bytes, self._part_began = 0, self._records()
        return self._turns

    @property
    def is_part_full(self) -> bool:
        """Whether it is time to go on in another partition: only full ones are a checkpoint made of."""
        bytes_max, records_max = self.settings.wal_bytes_max, self.settings.checkpoint_records // PARTS
        return self._part_bytes > bytes_max or self._records() - self._part_began > records_max

    def _records(self) -> int:
        return sum(self.tail.last(shard) for shard in self.log.shards)

    def _committed(self, rows: PendingRows) -> None:
        self.tail.commit(rows.ends())
        self._tickets.reach(rows.turn)

    def ticket(self) -> int:
        return self._turns

    def when_flushed(self, ticket: int, tell: Callable[[], object]) -> bool:
        return self._tickets.when(ticket, tell)

    def reached(self, ticket: int) -> bool:
        return self._tickets.reached >= ticket and self.lease.is_valid()

    # --- troubles --------------------------------------------------------------------------------

    def note_absence(self, why: str) -> None:
        """PostgreSQL does not answer, or does again."""
        self.absent = why and f"{self.log.database.name} does not answer ({why}): try again"

    def _renewed(self) -> None:
        self.absent = ""
        self._tickets.tell()  # what was committed, and waited for the lease

    def _lost(self) -> None:
        self.fail(NotWritten(f"another process has taken seat {self.log.seat}"))

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def failure(self) -> Exception | None:
        """Why nothing more is written."""
        return self._failure

    def fail(self, error: Exception) -> None:
        """Nothing more is written."""
        if self._failure is None:
            self._failure = error
        self._tickets.end()
        self.when_failed(error)

    # --- reading ---------------------------------------------------------------------------------

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        after = max(after, self.lowest(shard) - 1)
        found = (
            (row.first + place, row.record(place))
            for row in self.rows(shard, after, READ_BYTES)
            for place in range(max(0, after + 1 - row.first), len(row))
        )
        return [pair for pair, _ in zip(found, range(limit), strict=False)]

    def rows(self, shard: int, after: int, bytes_max: int) -> list[LogRow]:
        after = max(after, self.lowest(shard) - 1)
        found = self.tail.rows(shard, after, bytes_max)
        if found is not None:
            return found
        tables = self.tables
        for table in tables[first_with(tables, shard, after + 1) :]:
            found = table.page(shard, after, min(bytes_max, READ_BYTES))
            if not found and table.ends_at(shard) is None:
                continue  # it was gone on from, and its end is not noted yet
            if not found or found[0].first > after + 1:
                raise lacking(table, shard, after + 1)
            return found
        raise lacking(tables[-1], shard, after + 1)

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        return self.ahead.payloads(shard, sequence)

    def read_together(self, places: Iterable[tuple[int, int]]) -> None:
        """By one statement for many rows: a page of old jobs would be as many round trips as it has jobs."""
        found: dict[tuple[LogTable, int], set[int]] = {}
        for shard, sequence in places:
            if self.is_settled(shard, sequence) and not self.ahead.has(shard, sequence):
                found.setdefault((self._table_of(shard, sequence), shard), set()).add(sequence)
        wanted = [
            Wanted(table, shard, ordered[at : at + ROWS_TOGETHER])
            for (table, shard), sequences in found.items()
            for ordered in [sorted(sequences)]
            for at in range(0, len(ordered), ROWS_TOGETHER)
        ]
        for some in groups(wanted):
            self._read_rows(some)

    def _read_rows(self, wanted: Sequence[Wanted]) -> None:
        with suppress(Damaged):  # each is read alone afterwards, and only the damaged one is refused
            for one, row in rows_together(wanted):
                for sequence in one.sequences:
                    if row.first <= sequence < row.first + len(row):
                        self.ahead.keep((one.shard, sequence), row)

    def _table_of(self, shard: int, sequence: int) -> LogTable:
        """The partition that must have a record: the first that ends behind it."""
        tables = self.tables
        return tables[first_with(tables, shard, sequence)]

    def body(self, shard: int, sequence: int) -> bytes | None:
        row = self._row(shard, sequence)
        if row is None and sequence >= self.lowest(shard):
            raise lacking(self.tables[-1], shard, sequence)
        return row.parts(sequence - row.first)[1] if row is not None else None

    def expect(self, shard: int, coming: Sequence[int], gone: Sequence[int], now: int) -> None:
        self.ahead.expect(shard, coming, gone, now)

    def is_settled(self, shard: int, sequence: int) -> bool:
        """Whether a record lies in PostgreSQL alone."""
        return not self.tail.has(shard, sequence)

    def find(self, shard: int, sequence: int) -> LogRow:
        """The row that holds a record."""
        row = self._row(shard, sequence)
        if row is None:
            raise lacking(self.tables[-1], shard, sequence)
        return row

    def _row(self, shard: int, sequence: int) -> LogRow | None:
        row = self.tail.row(shard, sequence)
        if row is not None:
            return row
        tables = self.tables
        for table in tables[first_with(tables, shard, sequence) :]:
            row = table.row(shard, sequence)
            if row is not None or table.ends_at(shard) is not None:
                return row  # else the partition was gone on from, and its end is not noted yet
        return None

    def _ask(self, statement: LiteralString, asked: Any) -> list[tuple[Any, ...]]:
        """Ask PostgreSQL, but not for long, not at all while it is away, and never on an event loop."""
        if self.absent:
            raise Unavailable(self.absent)
        if not may_wait():
            raise NotAtHand
        try:
            reading = self._reads.submit(self._ask_here, statement, asked)
        except RuntimeError:
            raise Unavailable(f"seat {self.log.seat} is closed: try again") from None
        try:
            return reading.result(READ_S)
        except TookTooLong:
            reading.cancel()
            raise Unavailable(f"{self.log.database.name} did not answer in {READ_S:g} s: try again") from None
        except psycopg.Error as error:
            raise Unavailable(f"{self.log.database.name}: {first_line(error)}: try again") from error

    def _ask_here(self, statement: LiteralString, asked: Any) -> list[tuple[Any, ...]]:
        return self.reader.run(statement, asked).fetchall()

    def lowest(self, shard: int) -> int:
        return self._lowest[shard]

    def forget_below(self, lowest: list[int], tables: list[LogTable]) -> None:
        """Retention has let go of the beginning. Called under the owner's lock."""
        self._lowest, self.tables = lowest, tables

    def last(self, shard: int) -> int:
        return self.tail.last(shard)

    def safe(self, shard: int) -> int:
        return self.tail.committed[shard]

    def close(self) -> None:
        """Write everything, if PostgreSQL answers in time."""
        self.is_written = self.writer.stop(0.0 if self.has_failed else CLOSE_S) and not self.has_failed
        self._tickets.end()
        self.ahead.close()
        self.reader.hang_up(0.0)
        self._reads.shutdown(cancel_futures=True)
        self.reader.close()

    is_written = False
    """Whether everything was written when it was closed."""


def first_with(tables: Sequence[LogTable], shard: int, sequence: int) -> int:
    """The place of the first partition that ends with this record or behind it; those without an end come last."""

    def end(table: LogTable) -> int:
        ends_at = table.ends_at(shard)
        return OPEN_END if ends_at is None else ends_at

    return bisect_left(tables, sequence, key=end)


def groups(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    """Cut what is wanted into pieces for one statement each."""
    begin = rows = 0
    for at, one in enumerate(wanted):
        if at > begin and (rows + len(one.sequences) > ROWS_TOGETHER or at - begin == TABLES_TOGETHER):
            yield wanted[begin:at]
            begin, rows = at, 0
        rows += len(one.sequences)
    if rows:
        yield wanted[begin:]


def lacking(table: LogTable, shard: int, sequence: int) -> Damaged:
    return table.damaged(f"lacks record {sequence} of shard {shard}")


def watch(links: Sequence[Link], ended: threading.Event, after_s: float) -> None:
    """Cut connections that do not answer, until it is over: a thread of its own, which asks PostgreSQL nothing."""
    while not ended.wait(after_s / 4):
        for link in links:
            link.hang_up(after_s)
