"""A seat in the hands of a test: opened, abandoned as a dead process leaves it, taken over."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import psycopg

import stoker
from stoker.brokers.local import LocalBroker, LocalSettings, open_seat
from stoker.journal.postgres.database import Database
from stoker.journal.postgres.journal import PostgresJournal
from stoker.journal.postgres.schema import install
from stoker.journal.postgres.store import PostgresStore
from stoker.journal.sqlite import JournalSettings

SMALL = JournalSettings(wal_bytes_max=20_000, checkpoint_bytes=40_000, checkpoint_process=False)
"""Partitions and checkpoints after a few pushes, made where the test can see it."""


class Seat:
    """A broker over one seat, and a client of it."""

    opened: ClassVar["list[Seat]"] = []

    def __init__(self, url: str, settings: LocalSettings | None = None, instead_of: "Seat | None" = None) -> None:
        gone: int = instead_of.epoch if instead_of is not None else 0
        self.url = url
        self.broker: LocalBroker = open_seat(url, 0, "test", "here:1", settings, instead_of=gone)
        assert isinstance(self.broker.store, PostgresStore)
        self.store = self.broker.store
        self.journal: PostgresJournal = self.store.journal
        self.epoch: int = self.store.lease.taken.epoch
        self.client = stoker.Client(self.broker)
        self.opened.append(self)

    def push(self, count: int = 1, queue: str = "q", size: int = 10) -> list[int]:
        return [self.client.push(queue, b"x" * size).id for _ in range(count)]

    def jobs(self, queue: str = "q") -> list[int]:
        """The jobs that wait, in order."""
        return sorted(view.id for view in self.client.browse(queue=queue, limit=1_000).jobs)

    def abandon(self) -> None:
        """What is left of a process that died: nothing is written any more, and nothing is given back."""
        abandon(self.store)
        self.opened.remove(self)

    def upkeep(self, rounds: int = 3) -> None:
        """Do at once what the upkeep does now and then."""
        for _ in range(rounds):
            self.store.work()

    def close(self) -> None:
        self.opened.remove(self)
        self.broker.close()


def abandon(store: PostgresStore) -> None:
    """Leave a seat as a process that died leaves it."""
    store._ended.set()
    for thread in store._threads:
        thread.join()
    store.journal.writer._stopping = True
    store.journal.writer.stop(0)
    store.lease.stop()
    for link in (store.journal.reader, store.link, store.seats):
        link.close()


def new_cluster(url: str, shards: int = 2) -> str:
    install(url, shards, seats=1)
    return url


def carried_out(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Carry out statements as an operator does; the rows of the last one."""
    database = Database(url)
    with psycopg.connect(database._conninfo, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {database.schema}".encode())
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def outcome(call: Callable[[], object]) -> object:
    """What a call returns, or the error that it raises."""
    try:
        return call()
    except stoker.StokerError as error:
        return error


def copied(url: str) -> Sequence[str]:
    """Copies the tables of the log, as a backup does; returns the statements that put the copy in their place."""
    tables = ["heads", "parts", "checkpoints", *(f"log_{seat}_{number}" for seat, number in _parts(url))]
    carried_out(url, *(f"CREATE TABLE old_{name} AS TABLE {name}" for name in tables))
    return [f"DELETE FROM {name}; INSERT INTO {name} SELECT * FROM old_{name}" for name in tables]


def _parts(url: str) -> list[tuple[Any, ...]]:
    return carried_out(url, "SELECT seat, number FROM parts")
