"""Makes the inbox in a database, and connects to it. The SQL is in numbered files, one for each change of format."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import conninfo

from stoker.brokers.connect import shown
from stoker.inbox.connections import explanation
from stoker.model.errors import InvalidRequest, NewerFormat, StokerError, Unreachable

FORMAT = 1
LABEL = re.compile(r"Stoker inbox, format (\d+)")
FIND = "SELECT obj_description(to_regclass('stoker_inbox'), 'pg_class'), to_regclass('stoker_inbox') IS NOT NULL"
SCHEMES = ("postgresql", "postgres")
PATIENCE = {"connect_timeout": "10", "tcp_user_timeout": "30000", "keepalives_idle": "30"}
"""So that a database that is gone is noticed. The URL may say otherwise."""


def sql() -> str:
    """All of the inbox's SQL, for a migration."""
    folder = files("stoker.inbox") / "sql"
    return "\n".join(one.read_text() for one in sorted(folder.iterdir(), key=lambda one: one.name))


def parameters_of(url: str) -> dict[str, Any]:
    """What psycopg connects with. Raises `InvalidRequest` without repeating a password."""
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise InvalidRequest(
            f"{shown(urlsplit(url))!r} is not a PostgreSQL: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise InvalidRequest(f"{shown(urlsplit(url))!r} is not a URL of PostgreSQL: {error}") from None
    # Unprepared: a pooler may give each transaction another session.
    return {**PATIENCE, "application_name": "stoker inbox", **given, "prepare_threshold": None, "autocommit": True}


async def connect(url: str) -> psycopg.AsyncConnection[Any]:
    """A connection to a database with an inbox. Raises what is wrong and what to do."""
    connection = await psycopg.AsyncConnection.connect(**parameters_of(url))
    try:
        found = await (await connection.execute(FIND)).fetchone()
        assert found is not None
        check_format(*found)
    except BaseException:
        await connection.close()
        raise
    return connection


def check_format(label: str | None, exists: bool) -> None:
    if not exists:
        problem = explanation("42P01", "stoker_inbox")
        assert problem is not None
        raise problem
    found = LABEL.fullmatch(label or "")
    if found is None:
        raise InvalidRequest(
            "the table stoker_inbox in this database was not made by Stoker: rename it, then run `stoker inbox init`"
        )
    if int(found[1]) > FORMAT:
        raise NewerFormat(
            f"the inbox in this database has format {found[1]}, and this release reads up to {FORMAT}: upgrade Stoker"
        )


@contextmanager
def opened(url: str) -> "Iterator[psycopg.Connection[Any]]":
    """A connection for plain code, to any database; errors of PostgreSQL become ours."""
    try:
        with psycopg.connect(**parameters_of(url)) as connection:
            yield connection
    except psycopg.Error as error:
        raise friendly(error) from error


def has_inbox(connection: "psycopg.Connection[Any]") -> bool:
    """Whether the database has one. Raises if it has one that this release cannot read."""
    found = connection.execute(FIND).fetchone()
    assert found is not None
    if found[1]:
        check_format(*found)
    return bool(found[1])


def init(url: str) -> bool:
    """Make the table. Returns False if it was there already."""
    with opened(url) as connection:
        if has_inbox(connection):
            return False
        with connection.transaction():
            connection.execute(sql().encode())
        return True


def friendly(error: psycopg.Error) -> StokerError:
    """An error of PostgreSQL as one of ours."""
    said = str(error).strip() or type(error).__name__
    known = explanation(error.sqlstate, said)
    if known is not None:
        return known
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return InvalidRequest(f"PostgreSQL refused: {said}: is it a replica? A reader needs the primary")
    if error.sqlstate is None or error.sqlstate[:2] in ("08", "57", "53"):
        return Unreachable(f"PostgreSQL does not answer: {said}")
    return InvalidRequest(f"PostgreSQL refused: {said}")
