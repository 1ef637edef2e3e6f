"""An inbox in a real PostgreSQL, a queue in memory, and readers that may die at any point."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import psycopg

import stoker
from stoker.inbox import NewRow, insert_sync, schema
from stoker.inbox.reader import Reader
from stoker.inbox.table import InboxTable
from stoker.model import commands as c
from stoker.model.options import Options
from stoker.model.replies import PushedBatch

T = TypeVar("T")


class Died(BaseException):
    """The reader's process ended here."""


class Mortal:
    """Counts the points at which a reader could die: before and after each statement and each push."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.points, self.dies_at = 0, dies_at

    def reach(self) -> None:
        self.points += 1
        if self.points == self.dies_at:
            raise Died

    def push(self, inner: Callable[..., Awaitable[PushedBatch]]) -> Callable[..., Awaitable[PushedBatch]]:
        async def pushed(tenant: str, command: c.PushBatch) -> PushedBatch:
            self.reach()
            reply = await inner(tenant, command)
            self.reach()
            return reply

        return pushed


class MortalTable(InboxTable):
    def __init__(self, connection: "psycopg.AsyncConnection[Any]", life: Mortal) -> None:
        super().__init__(connection)
        self._life = life

    async def _run(self, statement: str, **values: Any) -> "psycopg.AsyncCursor[Any]":
        self._life.reach()
        found = await super()._run(statement, **values)
        self._life.reach()
        return found


class InboxWorld:
    def __init__(self, url: str) -> None:
        self.url = url
        self.database = psycopg.connect(url, autocommit=True)
        schema.init(url)
        self.client = stoker.connect("memory://")
        self.seen = Counter[bytes]()

    def close(self) -> None:
        self.client.close()
        self.sql("DROP TABLE stoker_inbox")
        self.database.close()

    # --- rows ------------------------------------------------------------------------------------------

    def commit(self, *payloads: bytes, queue: str = "mail", tenant: str = "default", **options: Any) -> None:
        """One transaction with a row for each payload, without custom ids: nothing but batch names tells them apart."""
        with self.database.transaction():
            for payload in payloads:
                row = NewRow(queue, payload, Options(**options), tenant)
                insert_sync(self.database, row)

    def sql(self, statement: str, *values: Any) -> Any:
        found = self.database.execute(statement.encode(), values)
        return found.fetchall() if found.description else None

    def rows(self) -> int:
        return int(self.sql("SELECT count(*) FROM stoker_inbox")[0][0])

    def errors(self) -> dict[int, str]:
        return dict(self.sql("SELECT id, error FROM stoker_inbox WHERE error IS NOT NULL ORDER BY id"))

    def age(self, seconds: int = 120) -> None:
        """Let time pass for the batches, but for rows that a reader is at: waiting for it could be a deadlock."""
        back = "FROM (SELECT %s * interval '1 second' AS back) AS t"
        free = "WHERE id IN (SELECT id FROM stoker_inbox FOR UPDATE SKIP LOCKED)"
        self.sql(
            f"UPDATE stoker_inbox SET taken_at = taken_at - back, named_at = named_at - back {back} {free}", seconds
        )

    # --- jobs ------------------------------------------------------------------------------------------

    def jobs(self, *queues: str) -> Counter[bytes]:
        """The payloads of all jobs that were ever pushed, in the order of their pushes."""
        for queue in queues or self.client.list_queues():
            while found := self.client.pull(queue, 1_000):
                self.seen.update(job.payload for job in found)
                self.client.ack_batch(list(found.ids), found.token)
        return self.seen

    # --- readers ---------------------------------------------------------------------------------------

    def reader(self, push: Any = None, **settings: Any) -> Reader:
        return Reader(self.url, push or self.client.broker.execute_async, **settings)

    def read(self, rounds: int = 1, reader: Reader | None = None, life: Mortal | None = None) -> int:
        """Let a reader, which may die, look so many times."""
        life = life or Mortal()
        reader = reader or self.reader(life.push(self.client.broker.execute_async))

        async def go() -> int:
            async with await schema.connect(self.url) as connection:
                table = MortalTable(connection, life)
                return sum([await reader.read_once(table) for _ in range(rounds)])

        return run(go())

    def read_all(self, reader: Reader | None = None) -> None:
        """Read until nothing is left but rows that were set aside. Batches that were left behind become old."""
        reader = reader or self.reader()
        for _ in range(100):
            self.age()
            reader._upkeep_at = reader._full_at = 0.0
            self.read(1, reader)
            if self.sql("SELECT count(*) FROM stoker_inbox WHERE error IS NULL") == [(0,)]:
                return
        raise AssertionError(f"rows are left: {self.sql('SELECT id, queue, batch, error FROM stoker_inbox LIMIT 5')}")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
