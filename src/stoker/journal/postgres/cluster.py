"""What concerns a whole cluster: its secret, its leader, and how it stands."""

import logging
import time
from typing import Final

import msgspec
import psycopg

from stoker.journal.postgres.database import Connection, Database, Link
from stoker.journal.postgres.schema import Cluster, check
from stoker.journal.postgres.seats import LEASE_S, NodeRow, SeatRow, Seats

FORGET_S: Final = 3_600.0
"""A node that was not heard of for so long is forgotten."""
WORK_S: Final = 10.0
APPLICATION: Final = "stoker leader "

SECRET = "SELECT secret FROM {s}.cluster"
LEAD = """
SELECT pg_try_advisory_lock(hashtextextended('stoker.' || id::text, 0)), pg_backend_pid() FROM {s}.cluster
"""
CALLED = "SELECT set_config('application_name', %s, false)"
LEADER = """
SELECT activity.application_name
FROM {s}.cluster CROSS JOIN pg_locks AS locks JOIN pg_stat_activity AS activity USING (pid)
WHERE locks.locktype = 'advisory' AND locks.granted
  AND (locks.classid::bigint << 32) | locks.objid::bigint = hashtextextended('stoker.' || cluster.id::text, 0)
"""

logger = logging.getLogger("stoker.processes")


def secret_of(database: Database) -> bytes:
    """What all nodes of a cluster know, because they may read its tables. Links between them prove it."""
    with database.errors(), database.connect() as connection:
        row = connection.execute(database.sql(SECRET)).fetchone()
    assert row is not None
    return bytes(row[0])


class Leader:
    """One node at a time does what concerns all: the one whose session has an advisory lock.

    All of it may be done twice, or later. So it does no harm if for a moment two nodes lead, or none.
    """

    def __init__(self, database: Database, node: str) -> None:
        self._database, self._node = database, node
        self._link = Link(database)
        self._session: Connection | None = None
        """The connection that has, or wanted, the lock."""
        self._backend = 0
        self._works_at = 0.0
        self.leads = False

    def look(self, seats: Seats) -> None:
        """Become the leader if there is none, and do what is due. Without PostgreSQL there is nothing to lead."""
        try:
            with self._link.use() as connection:
                self.leads = self._has_lock(connection)
            if self.leads and time.monotonic() >= self._works_at:
                self._works_at = time.monotonic() + WORK_S
                self._work(seats)
        except psycopg.Error as error:
            self.leads = False
            logger.debug("no leader: %s", error)

    def _has_lock(self, connection: Connection) -> bool:
        is_new = connection is not self._session
        if is_new:
            connection.execute(CALLED, (APPLICATION + self._node,))
            self._session = connection
        keeps = self.leads and not is_new
        statement = "SELECT true, pg_backend_pid()" if keeps else self._database.sql(LEAD)
        row = connection.execute(statement).fetchone()
        assert row is not None
        if not is_new and row[1] != self._backend:
            logger.warning("a pooler lends its sessions by the statement, so the lock of the leader may be stranded")
        self._backend = row[1]
        return bool(row[0])

    def _work(self, seats: Seats) -> None:
        forgotten = seats.forget_nodes(FORGET_S)
        if forgotten:
            logger.info("forgot %d nodes that were not heard of for %g s", forgotten, FORGET_S)
        if seats.clocks_differ:
            logger.warning("the clocks of PostgreSQL and of this machine differ: seats change hands more slowly")

    def watch(self) -> None:
        """From another thread, now and then: a connection that does not answer is cut."""
        self._link.hang_up(LEASE_S)

    def close(self) -> None:
        self._link.close()


class ClusterStatus(msgspec.Struct, frozen=True):
    """How a cluster stands."""

    cluster: Cluster
    nodes: list[NodeRow]
    seats: list[SeatRow]
    leader: str
    """The node that does what concerns all. Empty if there is none."""

    def seats_of(self, node: str) -> list[int]:
        return [row.seat for row in self.seats if row.node == node and row.is_held]

    @property
    def unserved(self) -> list[int]:
        """The seats that no node holds."""
        return [row.seat for row in self.seats if not (row.node and row.is_held)]


def status_of(url: str) -> ClusterStatus:
    database = Database(url)
    cluster = check(database)
    seats = Seats(database, "", "")
    try:
        with database.errors(), database.connect() as connection:
            found = connection.execute(database.sql(LEADER)).fetchone()
        leader = str(found[0]).removeprefix(APPLICATION) if found is not None else ""
        return ClusterStatus(cluster, seats.nodes(), seats.read(), leader)
    finally:
        seats.close()
