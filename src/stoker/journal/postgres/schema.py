"""Installs, upgrades, removes and checks the tables of a cluster. The SQL lies in numbered files, up and down."""

import re
from functools import cache
from importlib.resources import files

import msgspec

from stoker.journal.postgres.database import Connection, Database
from stoker.model.errors import CannotOpen, InvalidRequest, NewerFormat
from stoker.model.ids import SHARDS_MAX

SHARDS, SEATS = 16, 4

FORMATS = "SELECT to_regclass('{s}.cluster')"
READ = "SELECT format, id::text, shards, seats, pg_is_in_recovery() FROM {s}.cluster"
LOCK = "SELECT pg_advisory_xact_lock(hashtext('stoker.' || current_database()))"
"""Two that install at once take turns."""
INSTALLED = "INSERT INTO {s}.cluster (format, shards, seats) VALUES (0, %s, %s)"
UPGRADED = "UPDATE {s}.cluster SET format = %s"
NEW_SEATS = "INSERT INTO {s}.seats (seat) SELECT generate_series(0, %s - 1)"
NEW_HEADS = "INSERT INTO {s}.heads (shard) SELECT generate_series(0, %s - 1)"
NEW_CHECKPOINTS = """
INSERT INTO {s}.checkpoints (seat, position, lowest)
SELECT seat, array_fill(0::bigint, ARRAY[%(shards)s]), array_fill(1::bigint, ARRAY[%(shards)s])
FROM generate_series(0, %(seats)s - 1) AS seat
"""


class Migration(msgspec.Struct, frozen=True):
    """One step from a format to the next."""

    number: int
    name: str
    up: str
    down: str


class Cluster(msgspec.Struct, frozen=True):
    """What a database holds."""

    format: int
    id: str
    shards: int
    seats: int

    def shards_of(self, seat: int) -> range:
        """Those of a seat: as the processes of one server share a directory."""
        return range(seat, self.shards, self.seats)


@cache
def migrations() -> list[Migration]:
    """All steps in order, as they lie in `sql/`."""
    texts = {file.name: file.read_text("utf-8") for file in (files(__package__) / "sql").iterdir()}
    names = sorted(match.group(1) for name in texts if (match := re.fullmatch(r"(\d{4}_\w+)\.up\.sql", name)))
    return [
        Migration(int(name[:4]), name[5:].replace("_", " "), texts[f"{name}.up.sql"], texts[f"{name}.down.sql"])
        for name in names
    ]


def install(url: str, shards: int = SHARDS, seats: int = SEATS) -> Cluster:
    """Make the tables of a new cluster. One that is there already, with the same numbers, is left as it is."""
    if shards not in (1 << bits for bits in range(7)):
        raise InvalidRequest(f"{shards} shards: expected a power of two from 1 to {SHARDS_MAX}")
    if not 1 <= seats <= shards:
        raise InvalidRequest(f"{seats} seats: expected 1 to {shards}, the number of shards")
    database = Database(url)
    with database.errors(), database.connect(statement_ms=0) as connection, connection.transaction():
        connection.execute(LOCK)
        if not _is_there(database, connection):
            connection.execute(database.sql("CREATE SCHEMA IF NOT EXISTS {s}"))
            _move(database, connection, 0, shards, seats)
        found = _read(database, connection)
    check_numbers(database, found, shards, seats)
    return found


def upgrade(url: str) -> Cluster:
    """Bring the tables to the format of this release. No node may run meanwhile: each refuses another format."""
    database = Database(url)
    with database.errors(), database.connect(statement_ms=0) as connection, connection.transaction():
        connection.execute(LOCK)
        before = _read(database, connection, any_format=True)
        _move(database, connection, before.format)
        return _read(database, connection)


def remove(url: str) -> None:
    """Drop the tables, the log included."""
    database = Database(url)
    with database.errors(), database.connect(statement_ms=0) as connection, connection.transaction():
        connection.execute(LOCK)
        found = _read(database, connection, any_format=True)
        connection.execute(database.sql("SET LOCAL search_path TO {s}"))
        for step in reversed(migrations()[: found.format]):
            connection.execute(step.down.encode())


def check(database: Database, shards: int | None = None, seats: int | None = None) -> Cluster:
    """What the database holds. Refuses another format, other numbers than these, and a server that is read-only."""
    with database.errors(), database.connect() as connection:
        if not _is_there(database, connection):
            raise CannotOpen(
                f"{database.name} has no cluster in the schema {database.schema!r}: make one with `stoker cluster init`"
            )
        found = _read(database, connection)
    check_numbers(database, found, shards, seats)
    return found


def check_numbers(database: Database, found: Cluster, shards: int | None, seats: int | None) -> None:
    """Refuse other numbers than the cluster was made with: they cannot be changed."""
    for name, has, asked in (("shards", found.shards, shards), ("seats", found.seats, seats)):
        if asked is not None and asked != has:
            raise InvalidRequest(
                f"the cluster in {database.name} has {has} {name}, not {asked}: leave the number out, or make another"
                " cluster in another schema"
            )


def _is_there(database: Database, connection: Connection) -> bool:
    row = connection.execute(database.sql(FORMATS)).fetchone()
    return row is not None and row[0] is not None


def _read(database: Database, connection: Connection, *, any_format: bool = False) -> Cluster:
    row = connection.execute(database.sql(READ)).fetchone()
    if row is None:
        raise CannotOpen(f"{database.name}: the table cluster is empty; restore it from a backup")
    found, is_replica = msgspec.convert(row[:4], tuple[int, str, int, int]), row[4]
    if is_replica:
        raise CannotOpen(f"{database.name} is a replica, and read-only: name the primary")
    newest = migrations()[-1].number
    if found[0] > newest:
        raise NewerFormat(
            f"the cluster in {database.name} has format {found[0]}, but this release knows {newest}: use the later one"
        )
    if found[0] < newest and not any_format:
        raise CannotOpen(
            f"the cluster in {database.name} has format {found[0]}, and this release needs {newest}: stop all nodes,"
            " and run `stoker cluster upgrade`"
        )
    return Cluster(*found)


def _move(database: Database, connection: Connection, from_format: int, shards: int = 0, seats: int = 0) -> None:
    """All steps after a format, in the transaction that is open."""
    for step in migrations()[from_format:]:
        connection.execute(database.sql("SET LOCAL search_path TO {s}"))
        connection.execute(step.up.encode())
        if step.number == 1:
            connection.execute(database.sql(INSTALLED), (shards, seats))
            connection.execute(database.sql(NEW_SEATS), (seats,))
            connection.execute(database.sql(NEW_HEADS), (shards,))
            connection.execute(database.sql(NEW_CHECKPOINTS), {"shards": shards, "seats": seats})
        connection.execute(database.sql(UPGRADED), (step.number,))
