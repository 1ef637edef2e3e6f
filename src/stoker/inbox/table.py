"""The statements of a reader, each with a name. Every method is one transaction.

`clock_timestamp()` of PostgreSQL is the only clock that several readers share, so it alone decides about batches.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import psycopg

from stoker.inbox.checking import InboxRow
from stoker.inbox.position import TableLook

ROWS_MAX = 1_000
BYTES_MAX = 16 * 1024 * 1024
"""Rows and bytes under one name: a push that takes some milliseconds, and fits into a frame."""
RESEND_S = 60
"""A batch that has lain for so long was left behind by its reader, and is sent again by any."""
COUNT_MAX = 100_000
"""Rows that are counted at most: a number that people read need not cost a walk through millions."""

Place = tuple[str, str]
"""Tenant and queue."""
Sort = Callable[[list[InboxRow]], tuple[list[InboxRow], Mapping[int, str]]]
"""Tells which of the rows are to be named, and what is wrong with those that cannot be pushed."""

# One glance: is there anything to do, and how far have transactions come?
LOOK = """
SELECT (SELECT last_value FROM stoker_inbox_id_seq),
       pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
       EXISTS (SELECT FROM stoker_inbox WHERE batch IS NULL AND error IS NULL AND id > %(after)s)
FROM pg_current_snapshot() AS s
"""

# The next rows that no reader has named, in the order of insertion, up to the limits. Rows that another reader looks at
# are skipped.
FREE = """
SELECT id, tenant, queue, payload, options FROM (
    SELECT *, sum(octet_length(payload) + octet_length(options)) OVER (ORDER BY id)
              - octet_length(payload) - octet_length(options) AS bytes_before
    FROM (
        SELECT id, tenant, queue, payload, options::text AS options FROM stoker_inbox
        WHERE batch IS NULL AND error IS NULL AND id > %(after)s
          AND NOT EXISTS (SELECT FROM unnest(%(tenants)s::text[], %(queues)s::text[]) AS held (tenant, queue)
                          WHERE held.tenant = stoker_inbox.tenant AND held.queue = stoker_inbox.queue)
        ORDER BY id LIMIT %(rows)s FOR UPDATE SKIP LOCKED
    ) AS free
) AS counted WHERE bytes_before < %(bytes)s ORDER BY id
"""

# Give rows that were just locked their name.
NAME = """
UPDATE stoker_inbox SET batch = %(batch)s, named_at = t, taken_at = t
FROM (SELECT clock_timestamp() AS t) AS clock WHERE id = ANY(%(ids)s) RETURNING taken_at
"""

# Set rows aside that were just locked and cannot be pushed.
REFUSE = """
UPDATE stoker_inbox SET error = bad.error
FROM unnest(%(ids)s::bigint[], %(errors)s::text[]) AS bad (id, error) WHERE stoker_inbox.id = bad.id
"""

# The batches that their readers left behind.
OLD = """
SELECT DISTINCT batch FROM stoker_inbox
WHERE batch IS NOT NULL AND error IS NULL
  AND coalesce(taken_at, '-infinity') < clock_timestamp() - %(resend_s)s * interval '1 second'
LIMIT 100
"""

# Take such a batch, all rows of it. A second reader waits for the locks, in the same order, and finds no old row.
LOCK_OLD = """
SELECT id FROM stoker_inbox
WHERE batch = %(batch)s AND error IS NULL
  AND coalesce(taken_at, '-infinity') < clock_timestamp() - %(resend_s)s * interval '1 second'
ORDER BY id FOR UPDATE
"""
TAKE = """
UPDATE stoker_inbox SET taken_at = t FROM (SELECT clock_timestamp() AS t) AS clock WHERE id = ANY(%(ids)s)
RETURNING id, tenant, queue, payload, options::text, taken_at, extract(epoch FROM t - named_at)::float8
"""

# The outcome of one queue's rows under a name, in one statement: pushed ones go, refused ones keep the error, and those
# that were refused for now (no error) lose their name.
SETTLE = """
WITH pushed AS (DELETE FROM stoker_inbox WHERE id = ANY(%(pushed)s) AND batch = %(batch)s)
UPDATE stoker_inbox SET error = bad.error, batch = CASE WHEN bad.error IS NOT NULL THEN batch END
FROM unnest(%(ids)s::bigint[], %(errors)s::text[]) AS bad (id, error)
WHERE stoker_inbox.id = bad.id AND batch = %(batch)s AND stoker_inbox.error IS NULL
"""

# Take the name off rows that were certainly not pushed under it, unless another reader has taken the batch since.
RELEASE = """
UPDATE stoker_inbox SET batch = NULL, named_at = NULL, taken_at = NULL
WHERE id = ANY(%(ids)s) AND batch = %(batch)s AND taken_at = %(taken_at)s AND error IS NULL
"""

# What people want to know.
STATUS = """
SELECT (SELECT count(*) FROM (SELECT FROM stoker_inbox WHERE batch IS NULL AND error IS NULL LIMIT %(most)s) AS f),
       (SELECT count(*) FROM (SELECT FROM stoker_inbox WHERE batch IS NOT NULL AND error IS NULL LIMIT %(most)s) AS n),
       (SELECT count(*) FROM (SELECT FROM stoker_inbox WHERE error IS NOT NULL LIMIT %(most)s) AS r),
       coalesce(extract(epoch FROM clock_timestamp() - least(
           (SELECT added_at FROM stoker_inbox WHERE batch IS NULL AND error IS NULL ORDER BY id LIMIT 1),
           (SELECT min(added_at) FROM stoker_inbox WHERE batch IS NOT NULL AND error IS NULL)))::float8, 0)
"""


class InboxStatus(msgspec.Struct, frozen=True):
    """How an inbox stands."""

    waiting: int = 0
    """Rows that no reader has taken."""
    sending: int = 0
    """Rows that a reader has taken and not yet deleted."""
    refused: int = 0
    """Rows that were set aside."""
    oldest_s: float = 0.0
    """The age of the oldest row that is not set aside."""


class InboxSending(msgspec.Struct, frozen=True):
    """The rows of one queue under one name."""

    batch: str
    place: Place
    rows: list[InboxRow]
    taken_at: datetime
    age_s: float = 0.0
    """How long ago the name was given; infinite for rows that no reader has named."""
    is_first: bool = True
    """Whether it certainly was not sent before."""

    @property
    def ids(self) -> list[int]:
        return [row.id for row in self.rows]


def by_place(rows: Sequence[InboxRow]) -> Iterator[tuple[Place, list[InboxRow]]]:
    """In the order of insertion within a queue."""
    found: dict[Place, list[InboxRow]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        found.setdefault((row.tenant, row.queue), []).append(row)
    yield from found.items()


class InboxTable:
    """The inbox, over one connection."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self._connection = connection

    async def _run(self, statement: str, **values: Any) -> "psycopg.AsyncCursor[Any]":
        return await self._connection.execute(statement.encode(), values, binary=True)

    async def look(self, after: int) -> TableLook:
        found = await (await self._run(LOOK, after=after)).fetchone()
        assert found is not None
        return TableLook(*found)

    async def claim(
        self, batch: str, after: int, held: Sequence[Place], sort: Sort
    ) -> tuple[list[InboxSending], int | None, Mapping[int, str]]:
        """Name the next rows: what to send, the last row's id if there may be more behind it, and rows set aside."""
        tenants, queues = [place[0] for place in held], [place[1] for place in held]
        async with self._connection.transaction():
            free = await self._run(FREE, after=after, tenants=tenants, queues=queues, rows=ROWS_MAX, bytes=BYTES_MAX)
            rows = [InboxRow.of(found) for found in await free.fetchall()]
            named, bad = sort(rows)
            if bad:
                await self._run(REFUSE, ids=list(bad), errors=list(bad.values()))
            sendings = []
            if named:
                found = await (await self._run(NAME, batch=batch, ids=[row.id for row in named])).fetchone()
                assert found is not None
                sendings = [InboxSending(batch, place, own, found[0]) for place, own in by_place(named)]
        size = sum(len(row.payload) + len(row.options_text.encode()) for row in rows)
        is_full = len(rows) >= ROWS_MAX or size >= BYTES_MAX
        return sendings, rows[-1].id if is_full else None, bad

    async def old_batches(self) -> list[str]:
        return [name for (name,) in await (await self._run(OLD, resend_s=RESEND_S)).fetchall()]

    async def take(self, batch: str) -> list[InboxSending]:
        """Take a batch that was left behind; nothing if another reader was faster."""
        async with self._connection.transaction():
            locked = await (await self._run(LOCK_OLD, batch=batch, resend_s=RESEND_S)).fetchall()
            taken = await (await self._run(TAKE, ids=[id for (id,) in locked])).fetchall()
        rows = [InboxRow.of(found[:5]) for found in taken]
        if not rows:
            return []
        at, age_s = taken[0][5], max(math.inf if found[6] is None else found[6] for found in taken)
        return [InboxSending(batch, place, own, at, age_s, is_first=False) for place, own in by_place(rows)]

    async def settle(self, sending: InboxSending, refused: Mapping[int, str | None]) -> None:
        """Write the outcome: rows in `refused` keep their error, or lose their name if it is None; the others go."""
        pushed = [row.id for row in sending.rows if row.id not in refused]
        ids, errors = list(refused), list(refused.values())
        await self._run(SETTLE, batch=sending.batch, pushed=pushed, ids=ids, errors=errors)

    async def release(self, sending: InboxSending) -> None:
        await self._run(RELEASE, batch=sending.batch, ids=sending.ids, taken_at=sending.taken_at)

    async def status(self) -> InboxStatus:
        found = await (await self._run(STATUS, most=COUNT_MAX)).fetchone()
        assert found is not None
        return InboxStatus(*found)
