"""Making a checkpoint of a seat, in a short-lived process of low priority (`python -m` with this module).

It reads the full partitions and the checkpoint before, as a restart does, and writes pieces and tables that are not in
force. The owner of the seat puts them in force.
"""

import msgspec

from stoker.journal.checkpoint_files import made_anew, write_checkpoint
from stoker.journal.checkpoint_process import run, unless_orphaned
from stoker.journal.logfile import SEQUENCE_BITS, SEQUENCE_MASK
from stoker.journal.needed import Needs
from stoker.journal.postgres.database import Connection, Database
from stoker.journal.postgres.log_tables import (
    NEW_TABLE,
    PIECE_BYTES,
    SIZE,
    LogTable,
    PartRow,
    SeatLog,
    asking,
    table_of,
)

STATEMENT_MS = 60_000
PAGE_BYTES = 4 << 20

ADD_PIECE = "INSERT INTO {s}.checkpoint_parts (seat, number, place, data) VALUES (%s, %s, %s, %b)"
MOVE = """
INSERT INTO {s}.{table} (shard, first, last, epoch, data)
SELECT shard, first, last, epoch, data FROM {s}.{source}
JOIN unnest(%b::int[], %b::bigint[]) AS needed (shard, first) USING (shard, first)
"""


class SeatCheckpointRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the owner asks for, on standard input."""

    url: str
    seat: int
    shards: list[int]
    total: int
    epoch: int
    checkpoint: int
    """The number of the checkpoint to be made."""
    rewritten: int
    """The number of the partition to be made, if something is to be rewritten."""
    expired: int
    """So many partitions, from the first, are past retention: no reader of events needs them."""
    rewrite_below: float
    owner: int = 0
    """The process that asks. Without it, no process would use what is made."""


class RewrittenPart(msgspec.Struct, frozen=True, kw_only=True):
    """A new partition, and those whose place it takes."""

    part: PartRow
    instead_of: list[str]


class SeatCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What was made, on standard output."""

    position: list[int]
    dropped: list[str]
    """Partitions that nothing needs any more."""
    rewritten: RewrittenPart | None = None


def make(request: SeatCheckpointRequest) -> SeatCheckpoint:
    database = Database(request.url)
    log = SeatLog(database, request.seat, request.shards, request.total, request.epoch)
    with database.errors(), database.connect(statement_ms=STATEMENT_MS) as connection:
        before = log.in_force(connection)
        full = [
            LogTable(database, request.seat, part, asking(connection), PAGE_BYTES)
            for part in log.parts(connection)
            if part.state != "open"
        ]
        needs = Needs(full[: request.expired])
        position = list(before.position)
        chunks = made_anew(request.shards, log.saved(connection, before.number), full, position, needs.add)
        pieces = NewPieces(connection, log, request.checkpoint)
        write_checkpoint(pieces.write, unless_orphaned(chunks))
        pieces.flush()
        rewritten = _rewrite(connection, log, request, needs)
        return SeatCheckpoint(position=position, dropped=needs.unneeded(), rewritten=rewritten)


def _rewrite(
    connection: Connection, log: SeatLog, request: SeatCheckpointRequest, needs: Needs[LogTable]
) -> RewrittenPart | None:
    """Neighbouring partitions that are mostly dead become one with only what is needed."""
    old = needs.mostly_dead(request.rewrite_below)
    if not old:
        return None
    table, sql = table_of(request.seat, request.rewritten), log.database.sql
    with connection.transaction():
        connection.execute(sql(NEW_TABLE, table=table))
        for each in old:
            places = sorted(needs.rows[each.name])
            asked = ([place >> SEQUENCE_BITS for place in places], [place & SEQUENCE_MASK for place in places])
            connection.execute(sql(MOVE, table=table, source=each.table), asked)
    size = connection.execute(sql(SIZE, table=table)).fetchone()
    assert size is not None
    last = old[-1].row_of_part
    part = PartRow(request.rewritten, last.place, "sparse", last.last, last.ended_at, size[0])
    return RewrittenPart(part=part, instead_of=[each.name for each in old])


class NewPieces:
    """Takes bytes, and writes them as pieces of a checkpoint."""

    def __init__(self, connection: Connection, log: SeatLog, number: int) -> None:
        self._connection, self._log, self._number = connection, log, number
        self._place = 0
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        self._held += data
        while len(self._held) >= PIECE_BYTES:
            self._add(bytes(self._held[:PIECE_BYTES]))
            del self._held[:PIECE_BYTES]

    def flush(self) -> None:
        if self._held:
            self._add(bytes(self._held))

    def _add(self, piece: bytes) -> None:
        asked = (self._log.seat, self._number, self._place, piece)
        self._connection.execute(self._log.database.sql(ADD_PIECE), asked)
        self._place += 1


def main() -> None:
    run(SeatCheckpointRequest, make)


if __name__ == "__main__":
    main()
