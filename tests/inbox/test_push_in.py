"""A job is pushed in the user's transaction, over every driver: with the commit or not at all."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import stoker
from stoker.model.errors import InvalidRequest
from tests.inbox.world import InboxWorld, run

app = stoker.App("memory://")


@app.job(queue="mail", max_attempts=7, group_id="user:{user_id}")
def welcome(user_id: int, loud: bool = False) -> str:
    return f"welcome {user_id}"


class Undo(Exception):
    """The user's code fails in the middle of the transaction."""


# --- a transaction of each driver --------------------------------------------------------------------


@contextmanager
def psycopg_sync(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def psycopg_block(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction(), connection.cursor() as cursor:
        yield cursor


def engine_of(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(engine_of(url, "psycopg"), poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        yield connection


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(engine_of(url, "psycopg"), poolclass=sqlalchemy.NullPool)
    with Session(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    await connection.set_type_codec("json", encoder=repr, decoder=str, schema="pg_catalog")  # a user's own
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def sqlalchemy_async_connection(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(engine_of(url, "asyncpg"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(engine_of(url, "psycopg"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


BLOCKING = [psycopg_sync, psycopg_block, sqlalchemy_connection, sqlalchemy_session]
ASYNC = [psycopg_async, asyncpg_connection, asyncpg_pool, sqlalchemy_async_connection, sqlalchemy_async_session]


def push(transaction: Callable[[str], Any], url: str, *, undo: bool = False) -> stoker.InboxJob[str]:
    if transaction in BLOCKING:
        with transaction(url) as connection:
            job = welcome.push_in_sync(connection, 7, loud=True)
            if undo:
                raise Undo
        return job

    async def go() -> stoker.InboxJob[str]:
        async with transaction(url) as connection:
            job = await welcome.push_in(connection, 7, loud=True)
            if undo:
                raise Undo
        return job

    return run(go())


# --- what holds for all ------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction", [*BLOCKING, *ASYNC], ids=lambda one: one.__name__)
def test_a_committed_push_is_the_job_that_push_would_have_made(world: InboxWorld, transaction: Any):
    job = push(transaction, world.url)
    assert world.read(1) == 1
    found = world.client.find_job(job.custom_id, "mail")
    payload, options = welcome.written((7,), {"loud": True})
    assert (found.payload, found.options.name, found.options.codec) == (payload, "welcome", "msgpack")
    assert (found.options.max_attempts, found.options.group_id) == (7, options.group_id) == (7, "user:7")
    assert world.rows() == 0


@pytest.mark.parametrize("transaction", [*BLOCKING, *ASYNC], ids=lambda one: one.__name__)
def test_a_transaction_that_is_rolled_back_pushes_nothing(world: InboxWorld, transaction: Any):
    with pytest.raises(Undo):
        push(transaction, world.url, undo=True)
    assert world.rows() == 0


def test_the_handle_finds_the_job_and_its_result_once_a_reader_has_pushed_it(world: InboxWorld):
    with psycopg.connect(world.url) as connection:
        job = welcome.options(custom_id="mine").push_in_sync(connection, 7)
    assert job.custom_id == "mine"
    with stoker.testing.harness(app) as harness:
        assert job.find_sync() is None
        with pytest.raises(stoker.ResultTimeout, match=r"has not been pushed after '30ms'.*stoker inbox run"):
            job.result_sync("30ms")
        world.read(1, world.reader(app.broker.execute_async))
        found = job.job_sync("30s")
        harness.drain()
        assert (job.result_sync("30s"), job.wait_sync("30s")) == ("welcome 7", "completed")
        assert run(job.result("30s")) == "welcome 7"
        assert run(job.job()) == run(job.find()) == found


# --- refused, before anything is written -------------------------------------------------------------


def test_wrong_arguments_are_refused_as_by_push(world: InboxWorld):
    with psycopg.connect(world.url) as connection:
        with pytest.raises(TypeError, match="user_id"):
            welcome.push_in_sync(connection)  # type: ignore[call-arg]
        with pytest.raises(stoker.BadArguments, match="user_id"):
            welcome.push_in_sync(connection, "seven")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="queue 'no such!' is not a valid name"):
            welcome.options(queue="no such!").push_in_sync(connection, 7)
    assert world.rows() == 0


def test_a_connection_without_a_transaction_is_refused(world: InboxWorld):
    with (
        psycopg.connect(world.url, autocommit=True) as connection,
        pytest.raises(InvalidRequest, match=r"not in a transaction.*with connection.transaction\(\)"),
    ):
        welcome.push_in_sync(connection, 7)

    async def go() -> None:
        connection = await asyncpg.connect(world.url)
        try:
            with pytest.raises(InvalidRequest, match=r"not in a transaction.*async with connection.transaction\(\)"):
                await welcome.push_in(connection, 7)
        finally:
            await connection.close()

    run(go())
    assert world.rows() == 0


AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}


def test_a_sqlalchemy_connection_that_commits_each_statement_is_refused(world: InboxWorld):
    """`begin` of such a connection begins nothing."""
    refused = pytest.raises(InvalidRequest, match=r"isolation level AUTOCOMMIT.*whatever becomes.*without AUTOCOMMIT")
    engine = sqlalchemy.create_engine(engine_of(world.url, "psycopg"), poolclass=sqlalchemy.NullPool)
    eager = engine.execution_options(**AUTOCOMMIT)
    with eager.begin() as connection, refused:
        welcome.push_in_sync(connection, 7)
    with Session(eager) as session, session.begin(), refused:
        welcome.push_in_sync(session, 7)
    with engine.connect().execution_options(**AUTOCOMMIT) as connection, refused:
        welcome.push_in_sync(connection, 7)
    assert world.rows() == 0
    with eager.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
        welcome.push_in_sync(connection, 7)
    assert world.rows() == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_so_is_one_for_coroutines(world: InboxWorld, driver: str):
    async def go() -> None:
        engine = create_async_engine(engine_of(world.url, driver), poolclass=sqlalchemy.NullPool, **AUTOCOMMIT)
        async with engine.begin() as connection:
            with pytest.raises(InvalidRequest, match="isolation level AUTOCOMMIT"):
                await welcome.push_in(connection, 7)
        async with AsyncSession(engine) as session, session.begin():
            with pytest.raises(InvalidRequest, match="isolation level AUTOCOMMIT"):
                await welcome.push_in(session, 7)

    run(go())
    assert world.rows() == 0


def test_the_wrong_method_for_a_connection_is_refused(world: InboxWorld):
    async def go() -> None:
        async with await psycopg.AsyncConnection.connect(world.url) as connection:
            with pytest.raises(InvalidRequest, match=r"AsyncConnection is for coroutines: use await JOB.push_in"):
                welcome.push_in_sync(connection, 7)  # type: ignore[arg-type]

    run(go())
    with (
        psycopg.connect(world.url) as connection,
        pytest.raises(InvalidRequest, match=r"Connection is blocking: use JOB.push_in_sync"),
    ):
        run(welcome.push_in(connection, 7))  # type: ignore[arg-type]


@pytest.mark.parametrize("connection", [object(), "postgresql://", None])
def test_something_else_than_a_connection_is_refused_with_what_is_expected(connection: Any):
    with pytest.raises(InvalidRequest, match="expected a connection of psycopg 3 or asyncpg"):
        welcome.push_in_sync(connection, 7)


def test_another_database_is_refused():
    with (
        Session(sqlalchemy.create_engine("sqlite://")) as session,
        pytest.raises(InvalidRequest, match="a table in PostgreSQL, and this connection goes to sqlite"),
    ):
        welcome.push_in_sync(session, 7)


@pytest.mark.parametrize("transaction", [psycopg_sync, sqlalchemy_session, asyncpg_connection, psycopg_async])
def test_a_database_without_an_inbox_says_how_to_make_one(database: str, transaction: Any):
    with pytest.raises(InvalidRequest, match="no table stoker_inbox in this database: make it with `stoker inbox init"):
        push(transaction, database)


def test_a_user_who_may_not_insert_is_told_what_to_grant(world: InboxWorld):
    world.sql("CREATE ROLE stranger LOGIN")
    try:
        with (
            psycopg.connect(world.url.replace("postgres@", "stranger@")) as connection,
            pytest.raises(InvalidRequest, match="GRANT INSERT ON stoker_inbox"),
        ):
            welcome.push_in_sync(connection, 7)
    finally:
        world.sql("DROP ROLE stranger")
