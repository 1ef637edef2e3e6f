"""Which node has which seat, and which nodes there are: rows that PostgreSQL decides about.

A seat is taken by one UPDATE that raises its epoch. Its lease ends at `until`, by the clock of PostgreSQL; `lease.py`
renews it. Nothing hangs on a session, so a pooler in between does no harm.
"""

import time
from typing import Any, LiteralString
from uuid import uuid4

import msgspec
from psycopg import Cursor

from stoker.journal.postgres.database import Database, Link
from stoker.model.errors import InUse

LEASE_S = 4.0
RENEW_S = 1.0
MARGIN_S = 0.5
"""The holder of a seat serves nothing within this time of the end of its lease. Clocks that differ by more differ."""

SEATS = """
SELECT seat, epoch, node, address, (extract(epoch FROM until) * 1000000)::bigint, in_order,
       until > clock_timestamp(), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM {s}.seats ORDER BY seat
"""
TAKE = """
UPDATE {s}.seats AS seats
SET epoch = greatest(seats.epoch + 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    node = %(node)s, address = %(address)s, in_order = false,
    until = clock_timestamp() + make_interval(secs => %(lease)s)
FROM (SELECT seat, in_order FROM {s}.seats WHERE seat = %(seat)s FOR UPDATE) AS before
WHERE seats.seat = before.seat
  AND (seats.node = '' OR (%(trusts)s AND seats.until <= clock_timestamp())
       OR (seats.epoch = %(gone)s AND %(as_seen)s IN (-1, (extract(epoch FROM seats.until) * 1000000)::bigint)))
RETURNING seats.epoch, before.in_order
"""
"""The epoch follows the clock, so that none is given twice, even if PostgreSQL has lost its end."""
RENEW = """
UPDATE {s}.seats SET until = clock_timestamp() + make_interval(secs => %s), address = %s
WHERE seat = %s AND epoch = %s
"""
FREE = """
UPDATE {s}.seats SET node = '', address = '', until = to_timestamp(0), in_order = %s WHERE seat = %s AND epoch = %s
"""
JOIN = """
INSERT INTO {s}.nodes AS nodes (node, run, address) VALUES (%(node)s, %(run)s, %(address)s)
ON CONFLICT (node) DO UPDATE
SET run = excluded.run, address = excluded.address, seen_at = clock_timestamp(),
    started_at = CASE WHEN nodes.run = excluded.run THEN nodes.started_at ELSE clock_timestamp() END
WHERE nodes.run = excluded.run OR nodes.seen_at <= clock_timestamp() - make_interval(secs => %(lease)s)
"""
NODES = """
SELECT node, address, (extract(epoch FROM started_at) * 1000)::bigint, (extract(epoch FROM seen_at) * 1000)::bigint,
       seen_at > clock_timestamp() - make_interval(secs => %s)
FROM {s}.nodes ORDER BY node
"""
LEAVE = "DELETE FROM {s}.nodes WHERE node = %s AND run = %s"
FORGET = "DELETE FROM {s}.nodes WHERE seen_at < clock_timestamp() - make_interval(secs => %s)"


def boottime() -> float:
    """Seconds by a clock that nothing sets, and that a suspended machine does not stop."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SeatRow(msgspec.Struct, frozen=True):
    """A seat, as it was when it was looked at."""

    seat: int
    epoch: int
    node: str
    """Empty if it is free."""
    address: str
    until_us: int
    in_order: bool
    is_held: bool
    """Whether its lease runs, by the clock of PostgreSQL."""


class NodeRow(msgspec.Struct, frozen=True):
    """A node, as it was when it was looked at."""

    node: str
    address: str
    started_at: int
    seen_at: int
    is_alive: bool


class TakenSeat(msgspec.Struct, frozen=True):
    """A seat that this process has taken, and the beginning of its lease."""

    seat: int
    epoch: int
    address: str
    in_order: bool
    """Whether the owner before handed it over in good order, so that no numbers must be left out."""
    since: float
    """By `boottime`, from before the statement was sent."""


class Seats:
    """The seats and nodes of a cluster, as one node sees them. One thread at a time uses it."""

    def __init__(self, database: Database, node: str, address: str) -> None:
        self._database = database
        self.node, self.address = node, address
        self.run = str(uuid4())
        """Tells this node from another of the same name."""
        self._link = Link(database)
        self._seen: dict[int, tuple[int, int, float]] = {}
        """For each seat: its epoch, the end of its lease, and when it was first seen so."""
        self._offset: float | None = None
        """How far the clock of PostgreSQL is ahead of `boottime`."""
        self.clocks_differ = False
        """Whether the clock of PostgreSQL jumped, or shows another time than this machine: leases end by it."""

    def read(self) -> list[SeatRow]:
        """All seats. Looking often, a node notices when the clock of PostgreSQL jumps."""
        before = boottime()
        found = self._run(SEATS).fetchall()
        wall, now = time.time(), boottime()
        rows = [SeatRow(*row[:7]) for row in found]
        self._compare_clocks(found[0][7] / 1e6, wall, before, now)
        for row in rows:
            seen = self._seen.get(row.seat)
            if seen is None or seen[:2] != (row.epoch, row.until_us):
                self._seen[row.seat] = (row.epoch, row.until_us, now)
        return rows

    def _compare_clocks(self, theirs: float, wall: float, before: float, now: float) -> None:
        offset = theirs - now
        jumped = self._offset is not None and abs(offset - self._offset) > MARGIN_S + (now - before)
        differs = abs(theirs - wall) > MARGIN_S + (now - before)
        self._offset = offset
        self.clocks_differ = jumped or differs or (self.clocks_differ and not self._all_unchanged(now))

    def _all_unchanged(self, now: float) -> bool:
        return all(now - since > LEASE_S for _, _, since in self._seen.values())

    def take(self, seat: int, instead_of: int = 0) -> TakenSeat | None:
        """Take a free seat, or one whose lease has ended; None if it is held.

        Where clocks differ, the end of a lease says nothing: then the seat must have stayed as it is for a whole lease,
        by the clock of this machine. `instead_of` is the epoch of a process of this node that is known to be dead.
        """
        since = boottime()
        gone, as_seen, seen_at = self._seen.get(seat, (-1, -1, since))
        if instead_of:
            gone, as_seen = instead_of, -1
        elif since - seen_at <= LEASE_S:
            gone = -1
        asked = {"seat": seat, "node": self.node, "address": self.address, "lease": LEASE_S}
        asked |= {"gone": gone, "as_seen": as_seen, "trusts": not self.clocks_differ}
        row = self._run(TAKE, asked).fetchone()
        return None if row is None else TakenSeat(seat, row[0], self.address, row[1], since)

    def free(self, taken: TakenSeat, *, in_order: bool) -> None:
        """Give a seat back. `in_order` says that everything is written and nothing more will be."""
        self._run(FREE, (in_order, taken.seat, taken.epoch))

    # --- nodes -----------------------------------------------------------------------------------

    def beat(self) -> None:
        """Say that this node lives. Raises `InUse` if a living node has its name."""
        asked = {"node": self.node, "run": self.run, "address": self.address, "lease": LEASE_S}
        if not self._run(JOIN, asked).rowcount:
            raise InUse(
                f"a living node of the cluster in {self._database.name} is named {self.node!r}: give this one another"
                f" name, or stop that one and wait {LEASE_S:g} s"
            )

    def nodes(self) -> list[NodeRow]:
        return [NodeRow(*row) for row in self._run(NODES, (LEASE_S,))]

    def leave(self) -> None:
        """This node ends in good order: forget it."""
        self._run(LEAVE, (self.node, self.run))

    def forget_nodes(self, silent_s: float) -> int:
        """Forget nodes that were not heard of for so long; how many."""
        return self._run(FORGET, (silent_s,)).rowcount

    def _run(self, statement: LiteralString, asked: Any = None) -> "Cursor[tuple[Any, ...]]":
        with self._database.errors():
            return self._link.run(self._database.sql(statement), asked)

    def watch(self) -> None:
        """From another thread, now and then: a connection that does not answer is cut."""
        self._link.hang_up(LEASE_S)

    def close(self) -> None:
        self._link.close()
