"""Connections to the PostgreSQL of a cluster, and its errors in the words of Stoker."""

import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from stoker.model.errors import CannotOpen, InvalidRequest, StokerError, Unreachable

SCHEMA = "stoker"
SCHEMES = ("postgresql", "postgres")

LOCK_MS = 2_000
STATEMENT_MS = 3_000
"""Below the lease: what a stopped process has left open holds up no other process."""
CONNECT_S = 2

Connection = psycopg.Connection[tuple[Any, ...]]

logger = logging.getLogger("stoker.journal")


class Database:
    """One cluster's tables: `postgresql://user@host/database?schema=NAME`; the schema is `stoker` if none is named."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES:
            raise InvalidRequest(f"{parts.scheme}://: expected postgresql://user@host/database")
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.schema = parameters.pop("schema", SCHEMA)
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", self.schema):
            raise InvalidRequest(f"schema={self.schema!r}: expected a small letter, then small letters, digits and _")
        self.url = url
        self._options = parameters.pop("options", "")
        self._conninfo = urlunsplit(parts._replace(query=urlencode(parameters)))
        self.name = f"{parts.hostname or 'PostgreSQL'}{parts.path}"
        """For messages: without user and password."""

    def connect(self, *, statement_ms: int = STATEMENT_MS, lock_ms: int = LOCK_MS) -> Connection:
        """Each statement is a transaction of its own, and none is prepared: a pooler may stand in between."""
        timeouts = f"-c lock_timeout={lock_ms} -c statement_timeout={statement_ms}"
        with self.errors():
            try:
                return self._connect(f"{self._options} {timeouts}".strip())
            except psycopg.OperationalError as error:
                if "unsupported startup parameter" not in str(error):
                    raise
            logger.warning(
                "%s: the pooler takes no options, so timeouts are not set; set them for the role:"
                " ALTER ROLE ... SET statement_timeout = %d; ALTER ROLE ... SET lock_timeout = %d",
                self.name,
                STATEMENT_MS,
                LOCK_MS,
            )
            return self._connect("")

    def _connect(self, options: str) -> Connection:
        return psycopg.connect(
            self._conninfo,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=CONNECT_S,
            tcp_user_timeout=STATEMENT_MS,
            application_name=f"stoker {os.getpid()}",
            options=options,
        )

    def sql(self, text: LiteralString, **names: object) -> LiteralString:
        """A statement with the names of its tables: `{s}` is the schema."""
        return text.format(s=self.schema, **names)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the errors of PostgreSQL into those of Stoker."""
        try:
            yield
        except psycopg.Error as error:
            raise self.translated(error) from error

    def translated(self, error: psycopg.Error) -> StokerError:
        if isinstance(error, pg.ReadOnlySqlTransaction):
            return CannotOpen(f"{self.name} is read-only: name the primary, or add target_session_attrs=read-write")
        if isinstance(error, (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedColumn)):
            return CannotOpen(
                f"{self.name} has no cluster in the schema {self.schema!r}, or a damaged one ({first_line(error)}):"
                " make one with `stoker cluster init`"
            )
        if isinstance(error, (pg.InsufficientPrivilege, pg.InvalidAuthorizationSpecification, pg.InvalidCatalogName)):
            return CannotOpen(f"{self.name}: {first_line(error)}")
        if is_broken(error):
            return Unreachable(f"{self.name} does not answer: {first_line(error)}")
        return CannotOpen(f"{self.name}: {first_line(error)}")


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def is_broken(error: Exception) -> bool:
    """Whether the connection is at fault, or the server for now: the same statement may be accepted later."""
    return isinstance(
        error,
        (
            psycopg.OperationalError,  # also shutdowns, lock and statement timeouts, deadlocks, want of memory or disk
            psycopg.InterfaceError,
            pg.SerializationFailure,
        ),
    )


class Link:
    """A connection that is opened when it is needed, and again after it broke. One thread at a time uses it."""

    def __init__(self, database: Database, statement_ms: int = STATEMENT_MS) -> None:
        self._database = database
        self._statement_ms = statement_ms
        self._connection: Connection | None = None
        self._busy_since = 0.0
        """When the statement that is under way was sent; 0 = none is."""

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """The connection. After an error that may have broken it, it is closed, and the next use opens another."""
        if self._connection is None:
            self._connection = self._database.connect(statement_ms=self._statement_ms)
        self._busy_since = time.monotonic()
        try:
            yield self._connection
        except BaseException:
            if self._connection.broken or self._connection.info.transaction_status != TransactionStatus.IDLE:
                self.close()
            raise
        finally:
            self._busy_since = 0.0

    def run(self, statement: LiteralString, asked: Any = None) -> "psycopg.Cursor[tuple[Any, ...]]":
        """Carry out a statement that may happen twice: once more, if the connection broke while it was idle.

        Values come as they are stored, which for bytes is four times as fast.
        """
        was_open = self._connection is not None
        try:
            return self._run(statement, asked)
        except psycopg.OperationalError:
            if not was_open or self._connection is not None:
                raise
        return self._run(statement, asked)

    def _run(self, statement: LiteralString, asked: Any) -> "psycopg.Cursor[tuple[Any, ...]]":
        with self.use() as connection:
            return connection.cursor(binary=True).execute(statement, asked)

    def hang_up(self, after_s: float) -> None:
        """Cut a connection, from another thread, that has not answered for so long: its statement then fails.

        The system does not notice a server that takes data and does not answer.
        """
        since, connection = self._busy_since, self._connection
        if since and connection is not None and time.monotonic() - since > after_s:
            with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
