"""Has the state of a seat saved when it is due, and drops the partitions that are not needed after that.

`needed.py` decides. A partition that nothing needs is dropped, one that is mostly dead rewritten.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import psycopg

from stoker.journal.checkpoint_process import Checkpoints
from stoker.journal.needed import expired, is_due
from stoker.journal.postgres.checkpointing import SeatCheckpoint, SeatCheckpointRequest, make
from stoker.journal.postgres.database import Connection, Link
from stoker.journal.postgres.journal import PostgresJournal
from stoker.journal.postgres.log_tables import DROP_TABLE, OLD_PIECES, LogTable, table_of
from stoker.model.errors import StokerError

ENFORCE = """
UPDATE {s}.checkpoints SET number = %s, position = %s, lowest = %s
WHERE seat = %s AND NOT EXISTS (
    SELECT FROM unnest(position, %s::bigint[]) AS reached (before, new) WHERE reached.new < reached.before)
"""
"""Only forward: of two checkpoints, the one that reaches further stays."""
NO_PART = "DELETE FROM {s}.parts WHERE seat = %s AND number = ANY(%s)"
REWRITTEN = """
INSERT INTO {s}.parts (seat, number, place, state, last, ended_at, bytes) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
NO_PIECES = "DELETE FROM {s}.checkpoint_parts WHERE seat = %s AND number = %s"


class SeatRetention(Checkpoints[SeatCheckpointRequest, SeatCheckpoint]):
    """Has checkpoints of a seat made, and lets go of what is no longer needed."""

    command = (sys.executable, "-m", "stoker.journal.postgres.checkpointing")
    answer = SeatCheckpoint

    def __init__(
        self,
        journal: PostgresJournal,
        link: Link,
        guard: AbstractContextManager[object],
        position: list[int],
        now: Callable[[], int],
    ) -> None:
        super().__init__()
        self._journal, self._link, self._guard, self._now = journal, link, guard, now
        self.position = position
        """How far the checkpoint in force reaches."""

    def _full(self) -> list[LogTable]:
        return [table for table in self._journal.tables if table.last]

    @property
    def _whose(self) -> str:
        return f"seat {self._journal.log.seat}"

    def _is_due(self, times: int = 1) -> bool:
        return not self._journal.absent and is_due(self._full(), self.position, self._journal.settings, times)

    def _uses_process(self) -> bool:
        return self._journal.settings.checkpoint_process

    def _ask(self) -> SeatCheckpointRequest:
        log, settings = self._journal.log, self._journal.settings
        with self._link.use() as connection:
            number = log.numbers(connection, 2)
            self._follow(connection)
        return SeatCheckpointRequest(
            url=log.database.url,
            seat=log.seat,
            shards=list(log.shards),
            total=log.total,
            epoch=log.epoch,
            checkpoint=number,
            rewritten=number + 1,
            expired=expired(self._full(), self._now(), settings),
            rewrite_below=settings.rewrite_below,
            owner=os.getpid(),
        )

    def _follow(self, connection: Connection) -> None:
        """Know what is in force: the answer of the last change may have been lost."""
        journal = self._journal
        now, parts = journal.log.in_force(connection), journal.log.parts(connection)
        listed = {part.number for part in parts}
        with self._guard:
            tables = [table for table in journal.tables if table.row_of_part.number in listed]
            known = {table.row_of_part.number for table in tables}
            tables += [journal.table(part) for part in parts if part.number not in known and part.state == "sparse"]
            journal.forget_below(now.lowest, sorted(tables, key=lambda table: table.row_of_part.place))
        self.position = now.position

    def _make(self, request: SeatCheckpointRequest) -> SeatCheckpoint:
        return make(request)

    def _enforce(self, request: SeatCheckpointRequest, made: SeatCheckpoint) -> None:
        """The rows first; then no read begins in the old tables any more, and they go."""
        journal, log, new = self._journal, self._journal.log, made.rewritten
        gone = {*made.dropped, *(new.instead_of if new is not None else ())}
        old = [table for table in journal.tables if table.name in gone]
        with self._link.use() as connection, log.changing(connection) as now:
            lowest = now.lowest
            if request.expired:
                reached = self._full()[request.expired - 1].last
                lowest = [max(pair) for pair in zip(lowest, (end + 1 for end in reached), strict=True)]
            asked = (request.checkpoint, made.position, lowest, log.seat, made.position)
            forward = connection.execute(log.database.sql(ENFORCE), asked).rowcount
            if forward:
                numbers = [table.row_of_part.number for table in old]
                connection.execute(log.database.sql(NO_PART), (log.seat, numbers))
                if new is not None:
                    part = new.part
                    row = (part.number, part.place, part.state, part.last, part.ended_at, part.bytes)
                    connection.execute(log.database.sql(REWRITTEN), (log.seat, *row))
        if not forward:
            self._give_up(request, "the checkpoint in force reaches further")
            return
        self.position = made.position
        with self._guard:
            kept = [table for table in journal.tables if table.name not in gone]
            if new is not None:
                kept = sorted([*kept, journal.table(new.part)], key=lambda table: table.row_of_part.place)
            journal.forget_below(lowest, kept)
        self.made += 1
        with self._link.use() as connection:
            connection.execute(log.database.sql(OLD_PIECES), (log.seat, request.checkpoint))
            for table in old:
                connection.execute(log.database.sql(DROP_TABLE, table=table.table))

    def _discard(self, request: SeatCheckpointRequest) -> None:
        log = self._journal.log
        with suppress(StokerError, psycopg.Error), self._link.use() as connection:
            connection.execute(log.database.sql(NO_PIECES), (log.seat, request.checkpoint))
            connection.execute(log.database.sql(DROP_TABLE, table=table_of(log.seat, request.rewritten)))
