"""A reader in a process of its own, which ends itself by SIGKILL at a point of its work."""

import os
import signal
from multiprocessing.connection import Connection
from typing import Any

import psycopg

import stoker
from stoker.inbox import schema
from stoker.inbox.reader import Reader
from stoker.inbox.table import InboxTable
from stoker.model import commands as c
from stoker.model.replies import PushedBatch
from tests.inbox.world import run


class KilledTable(InboxTable):
    """Counts what is done, and ends the process after a point."""

    points, dies_at = 0, 0

    @classmethod
    def passed(cls) -> None:
        cls.points += 1
        if cls.points == cls.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def _run(self, statement: str, **values: Any) -> "psycopg.AsyncCursor[Any]":
        found = await super()._run(statement, **values)
        self.passed()
        return found


def read_and_die(wire: "Connection[Any, Any]", url: str, queue: str, dies_at: int) -> None:
    """Read once. Tells how many points there were, if it lives."""
    KilledTable.dies_at = dies_at
    client = stoker.connect(queue)

    async def push(tenant: str, command: c.PushBatch) -> PushedBatch:
        reply = await client.broker.execute_async(tenant, command)
        KilledTable.passed()
        return reply

    async def go() -> None:
        async with await schema.connect(url) as connection:
            await Reader(url, push).read_once(KilledTable(connection))

    run(go())
    client.close()
    wire.send(KilledTable.points)
