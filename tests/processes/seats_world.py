"""The same world over the seats of a cluster in PostgreSQL, which move while their old owners still speak.

No thread decides what happens: rows are appended, and old ones read, in steps of the event loop. A lease holds until
the world ends it.
So everything can happen before or after any message and any append: a death, a takeover, an answer that gets lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar, Literal

import psycopg
import pytest

from stoker.brokers.local import LocalBroker, LocalSettings, open_seat
from stoker.journal.contract import NotWritten
from stoker.journal.postgres.lease import Lease
from stoker.journal.postgres.schema import install, remove
from stoker.journal.postgres.store import PostgresStore
from stoker.journal.postgres.writer import LogWriter, PendingRows
from stoker.runtime.loading import Load
from tests.postgres.seat import abandon
from tests.postgres_server import shared
from tests.processes.world import Node, Processes

SEATS = 2
FOREVER = float("inf")

Trouble = Literal["death before", "death after", "lost answer"]

_numbers = count(1)


class Died(BaseException):
    """The process is gone, in the middle of an append."""


class SteppedWriter(LogWriter):
    """Appends in a step of the event loop of its own. While a seat is opened, the opener waits for it: then at once."""

    world: ClassVar["SeatsWorld"]

    def start(self) -> None:
        pass

    def put(self, rows: PendingRows) -> None:
        super().put(rows)
        if self.world.is_opening:
            self.step()
        else:
            self.world._loop.call_soon(self.step)

    def step(self) -> None:
        try:
            if self._coming and not self._stopping:
                rows = self._next()
                if rows is not None and self._append(rows):
                    self._done(rows)
        except Died:
            self.world.die(self._log.seat)
        except Exception as error:
            self._stopping = True
            self._failed(error)

    def _append_once(self, connection: Any, rows: PendingRows) -> None:
        heads, trouble = dict(self._heads), self.world.trouble_now()
        if trouble == "death before":
            raise Died
        super()._append_once(connection, rows)
        if trouble == "death after":
            raise Died
        if trouble == "lost answer":
            self._heads = heads
            raise psycopg.OperationalError("the connection broke")

    def stop(self, patience_s: float) -> bool:
        while patience_s and self._coming and not self._stopping:
            self.step()
        self._is_idle = not self._coming
        return super().stop(patience_s)


class SteppedLease(Lease):
    """Holds until the world ends it."""

    def start(self) -> None:
        self._valid_until = FOREVER


class SeatsWorld(Processes):
    """Two seats with all shards."""

    is_opening = False

    def __init__(self, settings: LocalSettings) -> None:
        self.statements = 0
        """Appends that were made, but for those of openings."""
        self.trouble_at: tuple[int, Trouble] | None = None
        """At which append what goes wrong."""
        self.move_at: tuple[int, int, int] | None = None
        """Before which message which seat is taken over, and how many messages later the others hear of it."""
        self.moves = 0
        self._arriving: tuple[int, Node] | None = None
        """The new owner of a seat, and the message at which the others hear of it."""
        SteppedWriter.world = self
        super().__init__(settings, SEATS)
        self.began = self.messages
        """What the seats said to each other before any work."""
        self.clock.when_idle = self.welcome_newcomer

    def prepare(self, *_: Any) -> None:
        # Nothing here stops PostgreSQL itself, so its commits need not wait for the disk.
        self.url = f"{shared().url()}?schema=moving_{next(_numbers)}&options=-c%20synchronous_commit%3Doff"
        install(self.url, self.shards, SEATS)
        self._epochs = [0] * SEATS

    def clear(self, keep: bool) -> None:
        remove(self.url)

    def open_broker(self, number: int) -> LocalBroker:
        self.is_opening = True
        try:
            broker = open_seat(self.url, number, "test", "", self.settings, self.clock, instead_of=self._epochs[number])
        finally:
            self.is_opening = False
        self._epochs[number] = store_of(broker).lease.taken.epoch
        return broker

    def trouble_now(self) -> Trouble | None:
        if self.is_opening:
            return None
        self.statements += 1
        at, trouble = self.trouble_at or (0, None)
        return trouble if at == self.statements else None

    # --- who comes and goes ----------------------------------------------------------------------

    def die(self, number: int) -> None:
        """What it had not appended is gone. The seat stays its own until another one takes it."""
        node = self.nodes[number]
        assert node.broker is not None
        store = store_of(node.broker)
        store.journal.writer._stopping = True
        store.journal.fail(NotWritten("the process died"))
        self.part_from_all(node)
        abandon(store)
        node.router, node.broker = None, None

    def disturb(self) -> None:
        super().disturb()
        if self.move_at is not None and self.messages == self.move_at[0]:
            self.take_over(self.move_at[1], self.move_at[2])
        if self._arriving is not None and self.messages >= self._arriving[0]:
            self.welcome_newcomer()

    def take_over(self, number: int, later: int) -> None:
        """Another process takes a seat whose lease has ended. Its owner does not know, and still speaks."""
        old = self.nodes[number]
        if old.broker is None or self._arriving is not None:
            return
        self.moves += 1
        store_of(old.broker).lease._valid_until = 0.0
        newcomer = Node(number)
        newcomer.broker = self.open_broker(number)
        self._arriving = self.messages + later, newcomer

    def welcome_newcomer(self) -> bool:
        """The others hear of the new owner, and the old one that it was replaced. False if there is none."""
        if self._arriving is None:
            return False
        (_, newcomer), self._arriving = self._arriving, None
        old = self.nodes[newcomer.number]
        assert old.broker is not None
        store_of(old.broker).journal._lost()
        self.part_from_all(old)
        old.broker.close()
        self.nodes[newcomer.number] = newcomer
        self.join(newcomer)
        self.connect(newcomer)
        return True

    def close(self) -> None:
        super().close()
        if self._arriving is not None and self._arriving[1].broker is not None:
            self._arriving[1].broker.close()

    def restart_dead(self) -> None:
        """Also those that may write no more: they end by themselves."""

        async def replace() -> None:
            self.welcome_newcomer()
            for node in self.nodes:
                if node.broker is not None and node.broker.failure:
                    self.die(node.number)

        self.call(replace())
        super().restart_dead()


def store_of(broker: LocalBroker) -> PostgresStore:
    assert isinstance(broker.store, PostgresStore)
    return broker.store


def read_in_a_step(broker: LocalBroker, load: Load) -> None:
    SteppedWriter.world._loop.call_soon(broker._read, load)


@contextmanager
def stepped() -> Iterator[None]:
    """Seats that are opened here append in steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stoker.journal.postgres.journal.LogWriter", SteppedWriter)
        patch.setattr("stoker.journal.postgres.store.Lease", SteppedLease)
        patch.setattr("stoker.journal.postgres.store.IDLE_S", 3_600.0)
        patch.setattr(LocalBroker, "_start_reading", read_in_a_step)
        yield
