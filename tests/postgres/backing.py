"""One seat of a cluster in PostgreSQL, in the test's process, under the tests' clock."""

from functools import cache
from itertools import count

import psycopg

from stoker.brokers.local import LocalBroker, LocalSettings, open_seat
from stoker.journal.postgres.log_tables import table_of
from stoker.journal.postgres.schema import install
from stoker.journal.postgres.store import PostgresStore
from stoker.testing import FakeClock
from tests.postgres_server import shared

_free: dict[int, list[str]] = {}
"""The URLs of clusters that no world uses, by their shards."""
_numbers = count(1)


def cluster(shards: int) -> str:
    """The URL of a cluster with one seat: a new one, or one that an earlier world has left."""
    if _free.get(shards):
        return _free[shards].pop()
    url = f"{shared().url()}?schema=test_{next(_numbers)}"
    install(url, shards, 1)
    return url


@cache
def cleaner() -> "psycopg.Connection":
    return shared().connect()


def emptied(url: str) -> None:
    """Forget all that was written, but for the first partition: making one takes longer than most tests."""
    schema, connection = url.rpartition("=")[2], cleaner()
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute(f"SET LOCAL search_path TO {schema}".encode())
        numbers = [number for (number,) in connection.execute("SELECT number FROM parts ORDER BY number")]
        for number in numbers[1:]:
            connection.execute(f"DROP TABLE {table_of(0, number)}".encode())
        connection.execute(
            f"DELETE FROM {table_of(0, numbers[0])}; DELETE FROM parts WHERE number > {numbers[0]};"
            "UPDATE parts SET state = 'open', last = '{}', ended_at = 0, bytes = 0;"
            "DELETE FROM checkpoint_parts; UPDATE heads SET epoch = 0, last = 0; UPDATE seats SET in_order = true;"
            "UPDATE checkpoints SET number = 0, position = array_fill(0::bigint, ARRAY[cardinality(position)]),"
            " lowest = array_fill(1::bigint, ARRAY[cardinality(position)])".encode()
        )


class InPostgres:
    """A seat with all shards."""

    def __init__(self, settings: LocalSettings) -> None:
        assert settings.shards is not None
        self._clock = FakeClock()
        self._shards = settings.shards
        self.url = cluster(settings.shards)
        self.broker: LocalBroker = open_seat(self.url, 0, "test", "", settings, self._clock)

    @property
    def store(self) -> PostgresStore:
        assert isinstance(self.broker.store, PostgresStore)
        return self.broker.store

    @property
    def now(self) -> int:
        return self._clock.now_ms()

    def advance(self, ms: int) -> None:
        self._clock.advance(ms)
        self.broker.advance()

    def close(self) -> None:
        self.broker.close()
        emptied(self.url)
        _free.setdefault(self._shards, []).append(self.url)
