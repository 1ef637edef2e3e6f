"""A seat in use: its shards, its journal, and the upkeep of both."""

import logging
import threading
import time
from contextlib import suppress

import psycopg

from stoker.engine.shard import Shard
from stoker.journal.contract import JournalFailed, Owner
from stoker.journal.directory_store import STORED_FROM, StoreSettings
from stoker.journal.postgres.checkpointing import PAGE_BYTES
from stoker.journal.postgres.database import Connection, Database, Link, first_line
from stoker.journal.postgres.journal import PostgresJournal, watch
from stoker.journal.postgres.lease import Lease
from stoker.journal.postgres.log_tables import InForce, LogTable, PartRow, SeatLog, SeatLost, asking, damaged
from stoker.journal.postgres.retention import SeatRetention
from stoker.journal.postgres.schema import check
from stoker.journal.postgres.seats import Seats, TakenSeat
from stoker.journal.recovery import Recovered, left_out, recover, reopened
from stoker.journal.sqlite import JournalSettings
from stoker.model.errors import CannotOpen, InUse, StokerError
from stoker.model.replies import Level

IDLE_S = 0.25
OPENING_MS = 30_000
OPENED_S = 60.0
"""How long the first append may take."""
HANG_UP_S = 3.0
"""A connection that does not answer for so long is cut."""
PATIENCE_S = 2.0
"""How long a close waits for a checkpoint."""
TRIES = 10
AGAIN_S = 0.25
"""Until a seat is looked at again, where clocks differ."""
TIME_S, TIME_TRIES = 0.05, 5
"""An answer within this time says exactly enough what time it is; the quickest of so many is used otherwise."""
TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
LEVEL = "SELECT current_setting('synchronous_commit')"
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

logger = logging.getLogger("stoker.journal")


class PostgresStore:
    """What `open_store` has opened: a `Store`."""

    data_directory = None

    def __init__(self, journal: PostgresJournal, found: Recovered, at: int, seats: Seats, position: list[int]) -> None:
        self.journal = journal
        self.shards: list[Shard] = found.shards
        self.total = journal.log.total
        self.at = at
        self.lease = journal.lease
        self.seats = seats
        self._position = position
        self.link = Link(journal.log.database)
        self.retention: SeatRetention | None = None
        self._seal_when = 0
        """The ticket with which the last partition but one is full."""
        self._owner: Owner | None = None
        self._ended = threading.Event()
        self._working = threading.Lock()
        links = (journal.writer.link, journal.reader, journal.lease.link, self.link)
        self._threads = [
            threading.Thread(target=watch, args=(links, self._ended, HANG_UP_S), name="stoker-watch", daemon=True),
            threading.Thread(target=self._keep, name="stoker-upkeep", daemon=True),
        ]

    def start(self, owner: Owner) -> None:
        self._owner = owner
        self.retention = SeatRetention(self.journal, self.link, owner.guard, self._position, owner.now)
        self.journal.when_failed = owner.stop
        for thread in self._threads:
            thread.start()
        if self.journal.failure is not None:
            owner.stop(self.journal.failure)

    @property
    def has_lost_seat(self) -> bool:
        """Whether another process has taken the seat."""
        return self.lease.is_lost or isinstance(self.journal.failure, SeatLost)

    def leave_to_parent(self) -> None:
        """In a forked process: the connections are the parent's, and psycopg leaves them alone."""

    # --- upkeep ----------------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._ended.wait(IDLE_S):
            try:
                self.work()
            except (psycopg.Error, StokerError, OSError) as error:  # nothing was lost: the next round tries again
                logger.warning("the upkeep of seat %d has to wait: %s", self.journal.log.seat, first_line(error))
            except JournalFailed as error:
                self.journal.fail(error)
                return

    def work(self) -> None:
        """One round of everything that may be due."""
        assert self.retention is not None
        with self._working:
            if self.journal.absent:
                return
            if self.journal.is_part_full:
                self.go_on()
            self.seal()
            self.retention.look()

    def go_on(self) -> None:
        """Go on in a new partition."""
        assert self._owner is not None
        log = self.journal.log
        with self.link.use() as connection:
            part = log.new_part(connection)
        with self._owner.guard:
            self._seal_when = self.journal.go_on(part)

    def seal(self) -> None:
        """Note the end of partitions that are written to no more, once all of their rows are committed."""
        journal = self.journal
        if not journal.reached(self._seal_when):
            return
        before: list[int] = []
        for table in journal.tables[:-1]:
            if not table.last:
                with self.link.use() as connection:
                    table.row_of_part = journal.log.seal(connection, table.row_of_part, before, journal.written_at)
            before = table.last

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Write everything, and give the seat back. What could not be written is recovered from by the next owner."""
        self._ended.set()
        for thread in self._threads:
            while thread.is_alive() and thread is not threading.current_thread():
                thread.join(HANG_UP_S)
                self.link.hang_up(HANG_UP_S)
        if self.retention is not None:
            with suppress(psycopg.Error, StokerError, JournalFailed, OSError):
                self.retention.end(0.0 if self.journal.has_failed or self.journal.absent else PATIENCE_S)
            self.retention.stop()
        self.journal.close()
        self.lease.stop()
        with suppress(StokerError):  # the lease ends by itself
            self.seats.free(self.lease.taken, in_order=self.journal.is_written)
        self.seats.close()
        self.link.close()


def time_ms(url: str) -> int:
    """The clock of PostgreSQL, as of now.

    An answer that was long on its way says what time it was: a clock that began with it would be late for ever. So the
    time since the answer is added, and after a slow answer PostgreSQL is asked again.
    """
    database, best, ahead_ms = Database(url), float("inf"), 0.0
    with database.errors(), database.connect() as connection:
        for _ in range(TIME_TRIES):
            asked = time.monotonic()
            row = connection.execute(TIME).fetchone()
            answered = time.monotonic()
            assert row is not None
            if answered - asked < best:
                best, ahead_ms = answered - asked, row[0] - (asked + answered) / 2 * 1_000
            if best <= TIME_S:
                break
    return round(ahead_ms + time.monotonic() * 1_000)


def open_store(
    url: str, seat: int, node: str, address: str, settings: StoreSettings, now: int, *, instead_of: int = 0
) -> PostgresStore:
    """Take a seat, and recover its shards. Raises `InUse` while another process has it.

    `instead_of` is the epoch of a process of the same node that had it, and is known to be dead.
    """
    database = Database(url)
    cluster = check(database, shards=settings.shards)
    if not 0 <= seat < cluster.seats:
        raise CannotOpen(f"there is no seat {seat}: the cluster has {cluster.seats}, from 0 on")
    seats = Seats(database, node, address)
    try:
        taken = _taken(seats, seat, instead_of)
        if taken is None:
            holder = seats.read()[seat]
            raise InUse(f"seat {seat} is held by the node {holder.node!r} at {holder.address or 'an unknown address'}")
        lease = Lease(database, taken)
        lease.start()
        try:
            log = SeatLog(database, seat, cluster.shards_of(seat), cluster.shards, taken.epoch)
            return _opened(log, lease, seats, settings, now)
        except BaseException:
            lease.stop()
            with suppress(StokerError):
                seats.free(taken, in_order=taken.in_order)
            raise
    except (psycopg.Error, JournalFailed) as error:
        seats.close()
        raise CannotOpen(f"seat {seat} of {database.name} cannot be opened: {first_line(error)}") from error
    except BaseException:
        seats.close()
        raise


def _taken(seats: Seats, seat: int, instead_of: int) -> TakenSeat | None:
    """Take a seat. Where clocks differ, wait a whole lease for a holder that may live, and no longer than it renews."""
    before = seats.read()[seat]
    taken = seats.take(seat, instead_of)
    while taken is None and seats.clocks_differ:
        time.sleep(AGAIN_S)
        now = seats.read()[seat]
        if (now.epoch, now.until_us) != (before.epoch, before.until_us):
            return None
        taken = seats.take(seat, instead_of)
    return taken


def _opened(log: SeatLog, lease: Lease, seats: Seats, settings: StoreSettings, now: int) -> PostgresStore:
    """Recover, and append the opening. If an append of the owner before comes in between, recover again."""
    failure: Exception | None = None
    for _ in range(TRIES):
        with log.database.errors(), log.database.connect(statement_ms=OPENING_MS) as connection:
            log.claim(connection)
            log.remove_leftovers(connection)
            if not log.parts(connection):
                log.new_part(connection)
            found, heads, parts, in_force = _recovered(log, connection)
            parts[-1] = log.measured(connection, parts[-1])
            level: Level = "commit" if connection.execute(LEVEL).fetchone() == ("off",) else "fsync"
        at = max(now, found.at)
        kept = settings.journal or JournalSettings()
        journal = PostgresJournal(log, lease, parts, heads, in_force.lowest, level, kept)
        gap = 0 if lease.taken.in_order else left_out(same_boot=False)
        journal.append(reopened(found, at, log.epoch, gap, settings.engine, settings.limits))
        if _is_committed(journal):
            return PostgresStore(journal, found, at, seats, in_force.position)
        journal.close()
        failure = journal.failure
        if not isinstance(failure, SeatLost) or lease.is_lost:
            break
    raise failure or CannotOpen(f"seat {log.seat}: the opening could not be written in {OPENED_S:g} s")


def _is_committed(journal: PostgresJournal) -> bool:
    told = threading.Event()
    deadline = time.monotonic() + OPENED_S
    while journal.when_flushed(journal.ticket(), told.set) and not journal.has_failed:
        if not told.wait(max(0.0, deadline - time.monotonic())):
            return False
        told.clear()
    return not journal.has_failed


def _recovered(
    log: SeatLog, connection: Connection
) -> tuple[Recovered, dict[int, tuple[int, int]], list[PartRow], InForce]:
    """What one snapshot of the database holds."""
    with connection.transaction():
        connection.execute(SNAPSHOT)
        in_force, parts, heads = log.in_force(connection), log.parts(connection), log.heads(connection)
        tables = [LogTable(log.database, log.seat, part, asking(connection), PAGE_BYTES) for part in parts]
        found = recover(log.shards, log.total, log.saved(connection, in_force.number), tables, STORED_FROM)
    for shard, (epoch, last) in heads.items():
        if epoch > log.epoch:
            raise SeatLost(log.seat)
        if found.last[shard] != last:
            what = f"of shard {shard} ends at record {found.last[shard]}, and {last} had been written"
            raise damaged(log.database, "the log", what)
    return found, heads, parts, in_force
