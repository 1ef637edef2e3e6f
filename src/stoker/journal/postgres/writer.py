"""The thread that appends rows: all that gathers while one commit is under way is the next.

One statement appends the rows of all shards, all or none, and only where the last row of every shard concerned is the
one that this owner wrote or read last. That is the fence: `heads` has a row for each shard, compared and set in the
same statement. If the connection breaks during a commit, the same rows are appended again. That waits for the first
attempt, and is refused if it succeeded.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec
import psycopg
from psycopg import errors as pg

from stoker.journal.contract import JournalFailed
from stoker.journal.postgres.database import Connection, Link, first_line, is_broken
from stoker.journal.postgres.log_tables import SeatLog, SeatLost
from stoker.model.errors import StokerError

STATEMENT_BYTES = 4 << 20
"""Appended at once, about: a statement must end long before its timeout, also on a slow disk."""
AGAIN_S = 0.1

APPEND = """
WITH asked AS (
    SELECT * FROM unnest(%b::int[], %b::bigint[], %b::bigint[], %b::bigint[]) AS asked (shard, epoch, last, new)
), matching AS MATERIALIZED (
    SELECT heads.shard, asked.new FROM {s}.heads JOIN asked USING (shard)
    WHERE heads.epoch = asked.epoch AND heads.last = asked.last
    ORDER BY heads.shard FOR UPDATE OF heads
), moved AS (
    UPDATE {s}.heads SET epoch = %b::bigint, last = matching.new FROM matching
    WHERE heads.shard = matching.shard AND (SELECT count(*) FROM matching) = %b::int
    RETURNING 1
)
INSERT INTO {s}.{table} (shard, first, last, epoch, data)
SELECT shard, first, last, %b::bigint, data
FROM unnest(%b::int[], %b::bigint[], %b::bigint[], %b::bytea[]) AS added (shard, first, last, data)
WHERE (SELECT count(*) FROM moved) = %b::int
"""
SAME = """
SELECT count(*) FROM {s}.{table} AS log
JOIN unnest(%b::int[], %b::bigint[], %b::bytea[]) AS added (shard, first, data) USING (shard, first)
WHERE log.epoch = %b::bigint AND log.data = added.data
"""
CONFIRM = """
UPDATE {s}.heads SET last = heads.last FROM unnest(%b::int[], %b::bigint[]) AS asked (shard, new)
WHERE heads.shard = asked.shard AND heads.epoch = %b::bigint AND heads.last = asked.new
"""
"""Writes something behind the rows: when that is confirmed, the rows are as safe as their own answer says."""

Head = tuple[int, int]
"""Epoch and number of the last record of a shard."""

logger = logging.getLogger("stoker.journal")


class LostEnd(JournalFailed):
    """PostgreSQL no longer has what it had confirmed."""


class PendingRows(msgspec.Struct):
    """The rows of one or more turns, for one partition."""

    table: str
    turn: int
    """The newest of the turns."""
    size: int = 0
    shards: list[int] = []
    first: list[int] = []
    last: list[int] = []
    data: list[bytes] = []

    def add(self, shard: int, first: int, last: int, data: bytes) -> None:
        self.shards.append(shard)
        self.first.append(first)
        self.last.append(last)
        self.data.append(data)
        self.size += len(data)

    def ends(self) -> dict[int, int]:
        """The last record of each shard concerned, in the order of shards: rows of a shard come in order."""
        return dict(sorted(zip(self.shards, self.last, strict=True)))

    def take(self, other: "PendingRows") -> None:
        self.turn = other.turn
        self.size += other.size
        for name in ("shards", "first", "last", "data"):
            getattr(self, name).extend(getattr(other, name))


class LogWriter:
    """Appends what it is given, in order, until it is stopped or refused."""

    def __init__(
        self,
        log: SeatLog,
        heads: Mapping[int, Head],
        done: Callable[[PendingRows], object],
        failed: Callable[[Exception], object],
        away: Callable[[str], object],
    ) -> None:
        """`done` is told of rows that are safe, `failed` that nothing more will be written, `away` why PostgreSQL does
        not answer, or nothing when it does.
        """
        self._log = log
        self._heads = dict(heads)
        self._done, self._failed, self._away = done, failed, away
        self.link = Link(log.database)
        self._coming: deque[PendingRows] = deque()
        self._changed = threading.Condition()
        self._is_idle = True
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="stoker-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, rows: PendingRows) -> None:
        with self._changed:
            self._coming.append(rows)
            self._is_idle = False
            self._changed.notify()

    def stop(self, patience_s: float) -> bool:
        """End when everything is written, or after so long; whether everything is."""
        with self._changed:
            written = self._changed.wait_for(lambda: self._is_idle or not self._thread.is_alive(), patience_s)
            written = written and self._is_idle
            self._stopping = True
            self._changed.notify_all()
        self.link.hang_up(0.0)
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join()
        self.link.close()
        return written

    def _run(self) -> None:
        try:
            while (rows := self._next()) is not None:
                if self._append(rows):
                    self._done(rows)
        except Exception as error:
            self._stopping = True
            self._failed(error)

    def _next(self) -> PendingRows | None:
        """All that has gathered for one partition, up to a size."""
        with self._changed:
            if not self._coming:
                self._is_idle = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._coming or self._stopping)
            if self._stopping:
                return None
            rows = self._coming.popleft()
            while self._coming and rows.size < STATEMENT_BYTES and self._coming[0].table == rows.table:
                rows.take(self._coming.popleft())
            return rows

    def _append(self, rows: PendingRows) -> bool:
        """Until it is answered: the same rows again after each failure that may pass. False if stopped before."""
        while not self._stopping:
            try:
                with self.link.use() as connection:
                    self._append_once(connection, rows)
                self._away("")
                return True
            except psycopg.Error as error:
                if not is_passing(error):
                    raise JournalFailed(f"the log could not be written: {first_line(error)}") from error
                self._away(first_line(error))
            except StokerError as error:  # there is no connection
                self._away(str(error))
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, AGAIN_S)
        return False

    def _append_once(self, connection: Connection, rows: PendingRows) -> None:
        log, ends = self._log, rows.ends()
        shards, new = list(ends), list(ends.values())
        before = [self._heads[shard] for shard in shards]
        fence: tuple[Any, ...] = (shards, [epoch for epoch, _ in before], [last for _, last in before], new)
        added = (rows.shards, rows.first, rows.last, rows.data)
        statement = log.database.sql(APPEND, table=rows.table)
        count = len(shards)
        try:
            done = connection.execute(statement, (*fence, log.epoch, count, log.epoch, *added, count)).rowcount
        except pg.UndefinedTable:  # it was dropped by a new owner, or is newer than what was restored
            self._refuse(connection, ends)
        if not done:
            self._settle(connection, rows, ends)
        for shard, end in ends.items():
            self._heads[shard] = (log.epoch, end)

    def _settle(self, connection: Connection, rows: PendingRows, ends: Mapping[int, int]) -> None:
        """The append was refused: because an attempt before has succeeded, or because this owner may write no more."""
        log = self._log
        same = connection.execute(
            log.database.sql(SAME, table=rows.table), (rows.shards, rows.first, rows.data, log.epoch)
        ).fetchone()
        if same is not None and same[0] == len(rows.shards):
            asked = (list(ends), list(ends.values()), log.epoch)
            if connection.execute(log.database.sql(CONFIRM), asked).rowcount == len(ends):
                return
        self._refuse(connection, ends)

    def _refuse(self, connection: Connection, ends: Mapping[int, int]) -> NoReturn:
        log = self._log
        found = log.heads(connection)
        for shard in ends:
            epoch, last = self._heads[shard]
            if found[shard] < (epoch, last):
                raise LostEnd(
                    f"{log.database.name} no longer has what it had confirmed: shard {shard} ended at record {last},"
                    f" and now ends at {found[shard][1]}. It was restored from an older copy, or a replica that was"
                    " behind took over. The seat is recovered from what is there"
                )
        raise SeatLost(log.seat)


def is_passing(error: Exception) -> bool:
    """Whether the same may be tried again: a replica that is read-only may be about to become the primary."""
    return is_broken(error) or isinstance(error, pg.ReadOnlySqlTransaction)
