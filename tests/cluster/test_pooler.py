"""A pooler between Stoker and PostgreSQL, which gives each transaction any of a few sessions: all of it works."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy

import stoker
from tests.cluster.nodes import cluster_of, until
from tests.inbox.test_push_in import engine_of, welcome
from tests.inbox.world import InboxWorld
from tests.pooler import pgbouncer
from tests.postgres_server import shared

JOBS = 20


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with pgbouncer(shared()) as port:
        yield port


@pytest.fixture
def pooled(port: int, database: str) -> Iterator[str]:
    """The URL of an empty database behind the pooler, whose sessions others use, too."""
    url = database.replace(f":{shared().port}/", f":{port}/")
    with others_at(url):
        yield url


@contextmanager
def others_at(url: str, count: int = 2) -> Iterator[None]:
    """Programs that take a session for a moment and give it back, again and again."""
    over = threading.Event()

    def work() -> None:
        with psycopg.connect(url, prepare_threshold=None, autocommit=True) as connection:
            while not over.wait(0.01):
                with connection.transaction():
                    connection.execute("SELECT pg_sleep(0.005)")

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_sessions_are_lent_by_the_transaction(pooled: str):
    with psycopg.connect(pooled, prepare_threshold=None, autocommit=True) as connection:
        until(lambda: len(backends_of(connection)) > 1, "another session")


def backends_of(connection: "psycopg.Connection") -> set[object]:
    return {connection.execute("SELECT pg_backend_pid()").fetchone() for _ in range(20)}


def test_jobs_are_pushed_in_a_transaction_and_read_through_a_pooler(pooled: str, database: str):
    world = InboxWorld(database)
    for number in range(JOBS):
        with psycopg.connect(pooled, prepare_threshold=None) as connection:
            welcome.push_in_sync(connection, number)
    with psycopg.connect(pooled, prepare_threshold=None) as connection:
        welcome.push_in_sync(connection, 999)
        connection.rollback()
    engine = sqlalchemy.create_engine(
        engine_of(pooled, "psycopg"), poolclass=sqlalchemy.NullPool, connect_args={"prepare_threshold": None}
    )
    with engine.begin() as own:
        welcome.push_in_sync(own, JOBS)
    asyncio.run(push_with_asyncpg(pooled))
    reader = world.reader()
    reader._url = pooled
    client = world.client

    async def read() -> None:
        running = asyncio.create_task(reader.run())
        await asyncio.to_thread(until, lambda: client.get_counts("mail").waiting == JOBS + 2, "all jobs")
        reader.stop()
        await running

    asyncio.run(read())
    assert world.rows() == 0
    world.close()


async def push_with_asyncpg(url: str) -> None:
    connection = await asyncpg.connect(url, statement_cache_size=0)
    async with connection.transaction():
        await welcome.push_in(connection, JOBS + 1)
    await connection.close()


def test_nodes_serve_and_take_over_through_a_pooler(pooled: str, tmp_path: Path):
    with cluster_of(pooled, tmp_path, nodes=2, shards=4, seats=2) as cluster:
        with stoker.connect(cluster.address + "?retry_s=60") as client:
            queues = [f"q{number}" for number in range(4)]
            pushed = {client.push(queue, b"x").id for queue in queues for _ in range(JOBS)}
            done = [job for queue in queues for job in worked_off(client, queue, JOBS // 2)]
            cluster.nodes[0].kill()
            cluster.until_balanced()
            pushed |= {client.push(queue, b"y").id for queue in queues}
            done += [job for queue in queues for job in worked_off(client, queue, JOBS)]
            assert Counter(done) == Counter(pushed), "each once"
        log = cluster.nodes[1].log
        assert "the pooler takes no options, so timeouts are not set" in log


def worked_off(client: stoker.Client, queue: str, count: int) -> list[int]:
    delivery = client.pull(queue, count)
    assert not client.ack_batch(delivery.ids, delivery.token).refused
    return list(delivery.ids)
