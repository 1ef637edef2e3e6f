"""Inserts a row over the user's own connection, inside the user's transaction.

A driver is known by the module of its classes, so none is imported here. The INSERT is the same for all of them; only
the placeholders differ.
"""

from collections.abc import Awaitable
from typing import Any, Protocol

from stoker.inbox.rows import NewRow
from stoker.model.errors import InvalidRequest, StokerError

INSERT = "INSERT INTO stoker_inbox (tenant, queue, payload, options) VALUES ({}, {}, {}, CAST({} AS text)::json)"
"""`text` first: a connection may have a JSON codec of its own, which would encode the options a second time."""
FORMAT = INSERT.format(*["%s"] * 4)
NUMBERED = INSERT.format("$1", "$2", "$3", "$4")
NAMES = ("tenant", "queue", "payload", "options")
NAMED = INSERT.format(*(f":{name}" for name in NAMES))

DRIVERS = ("psycopg", "asyncpg", "sqlalchemy", "django")
EXPECTED = (
    "a connection of psycopg 3 or asyncpg, a Connection or Session of SQLAlchemy, or a connection of Django;"
    " with any other driver, run the INSERT of docs/inbox.md yourself"
)
UNDEFINED_TABLE, NOT_ALLOWED = "42P01", "42501"


class Fetched(Protocol):
    """What a blocking `execute` returns: a cursor or a result."""

    def fetchone(self) -> Any: ...


class InboxConnection(Protocol):
    """A blocking connection: psycopg's Connection or Cursor, SQLAlchemy's Connection or Session."""

    def execute(self, *args: Any, **kwargs: Any) -> Fetched: ...


class AsyncInboxConnection(Protocol):
    """A connection for coroutines: psycopg's AsyncConnection, asyncpg's, SQLAlchemy's AsyncConnection or
    AsyncSession.
    """

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


async def insert(connection: AsyncInboxConnection, row: NewRow) -> None:
    """Insert the row in the connection's transaction. Raises `InvalidRequest` for a connection without one."""
    driver = driver_of(connection)
    check_colour(connection, driver, is_async=True)
    if driver == "sqlalchemy":
        await connection.run_sync(check_sqlalchemy)  # type: ignore[attr-defined]
    else:
        check_transaction(connection, driver)
    try:
        await connection.execute(*call_of(connection, driver, row))
    except Exception as error:
        raise explained(error) from error


def insert_sync(connection: InboxConnection, row: NewRow) -> None:
    """The same for plain code."""
    driver = driver_of(connection)
    check_colour(connection, driver, is_async=False)
    if driver == "sqlalchemy":
        check_sqlalchemy(connection)
    else:
        check_transaction(connection, driver)
    try:
        if driver == "django":
            with connection.cursor() as cursor:  # type: ignore[attr-defined]
                cursor.execute(FORMAT, row.values)
        else:
            connection.execute(*call_of(connection, driver, row))
    except Exception as error:
        raise explained(error) from error


def driver_of(connection: object) -> str:
    """The package that the connection comes from."""
    for kind in type(connection).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in DRIVERS:
            return package
    raise InvalidRequest(f"cannot push in a {type(connection).__qualname__}: expected {EXPECTED}")


def call_of(connection: Any, driver: str, row: NewRow) -> tuple[Any, ...]:
    """The arguments of the connection's `execute`."""
    if driver == "asyncpg":
        return (NUMBERED, *row.values)
    if driver == "psycopg":
        return FORMAT, row.values
    from sqlalchemy import text

    return text(NAMED), dict(zip(NAMES, row.values, strict=True))


def check_colour(connection: Any, driver: str, *, is_async: bool) -> None:
    """A coroutine that is never awaited would drop the job in silence: refuse the wrong method."""
    kinds = type(connection).__mro__
    found = driver == "asyncpg" or any(kind.__name__.lower().startswith("async") for kind in kinds)
    if found == is_async:
        return
    method = "await JOB.push_in(...)" if found else "JOB.push_in_sync(...)"
    what = "for coroutines" if found else "blocking"
    raise InvalidRequest(f"the {type(connection).__qualname__} is {what}: use {method}")


def check_transaction(connection: Any, driver: str) -> None:
    """Outside of a transaction the row would be committed at once, whatever becomes of the user's own changes."""
    if driver == "asyncpg":
        inside, begin = connection.is_in_transaction(), "async with connection.transaction():"
    elif driver == "psycopg":
        own = getattr(connection, "connection", connection)  # a cursor has one
        inside, begin = not own.autocommit or own.info.transaction_status != 0, "with connection.transaction():"
    else:
        check_postgresql(connection.vendor)
        inside, begin = connection.in_atomic_block, "with transaction.atomic():"
    if not inside:
        raise InvalidRequest(
            f"the connection is not in a transaction, so the job would be pushed whatever becomes of your changes:"
            f" push in a transaction ({begin}), or use push"
        )


def check_sqlalchemy(connection: Any) -> None:
    """SQLAlchemy begins transactions by itself, unless it was told to commit each statement."""
    is_session = hasattr(connection, "get_bind")
    check_postgresql((connection.get_bind() if is_session else connection).dialect.name)
    own = connection.connection() if is_session else connection
    if getattr(own.connection.dbapi_connection, "autocommit", False):
        raise InvalidRequest(
            f"the {type(connection).__qualname__} has the isolation level AUTOCOMMIT, so the job would be pushed"
            " whatever becomes of your changes: use a connection without AUTOCOMMIT"
            ' (execution_options(isolation_level="READ COMMITTED") makes one of the same engine), or use push'
        )


def check_postgresql(name: str) -> None:
    if name != "postgresql":
        raise InvalidRequest(f"the inbox is a table in PostgreSQL, and this connection goes to {name}")


def explained(error: Exception) -> Exception:
    """The driver's error, or one that says what to do about it."""
    return explanation(sqlstate_of(error), str(error)) or error


def explanation(state: str | None, said: str) -> StokerError | None:
    if state == UNDEFINED_TABLE and "stoker_inbox" in said:
        return InvalidRequest(
            "there is no table stoker_inbox in this database: make it with `stoker inbox init postgresql://...`, or put"
            " the SQL of `stoker inbox init --print` into a migration"
        )
    if state == NOT_ALLOWED:
        return InvalidRequest(
            f"PostgreSQL refused: {said.splitlines()[0]}: programs that push need GRANT INSERT ON stoker_inbox, a"
            " reader needs GRANT SELECT, UPDATE, DELETE on it and SELECT ON SEQUENCE stoker_inbox_id_seq"
        )
    return None


def sqlstate_of(error: BaseException | None) -> str | None:
    """PostgreSQL's code. SQLAlchemy and Django wrap the driver's error, which has it."""
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None
