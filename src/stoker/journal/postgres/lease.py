"""Keeps a seat: renews its lease from a thread of its own, and says whether it may be relied upon."""

import logging
import threading
from collections.abc import Callable

from stoker.journal.postgres.database import Database, Link
from stoker.journal.postgres.seats import LEASE_S, MARGIN_S, RENEW, RENEW_S, TakenSeat, boottime
from stoker.model.errors import StokerError

AGAIN_S = 0.2
"""After a renewal that failed."""
STATEMENT_MS = 1_500

logger = logging.getLogger("stoker.journal")

Tell = Callable[[], object]


class Lease:
    """The right to serve a seat. It ends by this machine's clock, before it ends in PostgreSQL."""

    def __init__(self, database: Database, taken: TakenSeat) -> None:
        self.taken = taken
        self._database = database
        self.link = Link(database, STATEMENT_MS)
        self._valid_until = taken.since + LEASE_S - MARGIN_S
        self._ended = threading.Event()
        self.is_lost = False
        """Whether another process has taken the seat."""
        self.when_renewed: Tell = lambda: None
        """Called after each renewal, by the lease's thread."""
        self.when_failed: Callable[[str], object] = lambda why: None
        """Told why a renewal failed: it is tried again."""
        self.when_lost: Tell = lambda: None
        self._thread = threading.Thread(target=self._run, name="stoker-lease", daemon=True)

    def is_valid(self) -> bool:
        """Whether no other process can have the seat now. Every reply asks, also one that only read."""
        return boottime() < self._valid_until

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._ended.wait(wait_s):
            wait_before, wait_s = wait_s, RENEW_S
            try:
                self._renew()
            except StokerError as error:
                if wait_before == RENEW_S:
                    logger.warning("the lease of seat %d could not be renewed: %s", self.taken.seat, error)
                self.when_failed(str(error))
                wait_s = AGAIN_S
            if self.is_lost:
                self.when_lost()
                return

    def _renew(self) -> None:
        taken, sent = self.taken, boottime()
        asked = (LEASE_S, taken.address, taken.seat, taken.epoch)
        with self._database.errors():
            renewed = self.link.run(self._database.sql(RENEW), asked).rowcount
        if self._ended.is_set():
            return
        if not renewed:
            self._valid_until, self.is_lost = 0.0, True
            return
        self._valid_until = sent + LEASE_S - MARGIN_S
        self.when_renewed()

    def stop(self) -> None:
        """No more renewals. From now on nothing is served."""
        self._ended.set()
        self._valid_until = 0.0
        self.link.hang_up(0.0)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self.link.close()
