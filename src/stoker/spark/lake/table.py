"""One table of a lake, as a Delta table: its files, and the one function that changes it.

delta-rs records application transactions, but a fresh handle would accept the same one again. So `Table.commit` decides
and commits with the same handle: when another commit with the same application comes between the two, delta-rs refuses
this one, and everything begins again.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import StructType as DeltaStruct
from deltalake.transaction import AddAction, RemoveAction

from stoker.model.errors import InvalidRequest, StokerError
from stoker.spark.lake.files import Files
from stoker.spark.lake.writing import DATE, DataFile

PREFIX = "stoker"
MAINTENANCE = "maintenance"
"""The application transaction of everything that changes files without new events."""
TRIES_MAX = 100
"""Commits of others that may come between before we give up."""
SETTINGS = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
"""The table's log is kept for longer than the files that were removed."""
NAME = re.compile(r"(?:.*/)?([0-9a-f]{8})-(\d{10})-[0-9a-f]{32}\.parquet")


class LakeBatch(NamedTuple):
    """A batch of the stream that fills a lake. The id of the stream is that of its checkpoint."""

    stream: str
    number: int

    @property
    def app(self) -> str:
        """The application transaction of a table that has the batch."""
        return f"{PREFIX}/{self.stream[:8]}"

    @property
    def whole(self) -> str:
        """That of bronze when all tables have the batch."""
        return f"{self.app}/whole"

    @property
    def label(self) -> str:
        """The names of its files begin with this."""
        return f"{self.stream[:8]}-{self.number:010d}"


def batch_of(path: str) -> LakeBatch | None:
    """The batch whose file it is; None for what maintenance has written."""
    found = NAME.fullmatch(path)
    return LakeBatch(found[1], int(found[2])) if found else None


class LiveFile(NamedTuple):
    """A file of a table, with what its statistics say. Values are None where they say nothing."""

    path: str
    size: int
    date: str
    rows: int
    low: Mapping[str, Any]
    high: Mapping[str, Any]

    @property
    def batch(self) -> LakeBatch | None:
        return batch_of(self.path)

    def may_have(self, name: str, least: Any = None, most: Any = None) -> bool:
        """Whether a row with a value from `least` to `most` can be in it."""
        low, high = self.low.get(name), self.high.get(name)
        return not (least is not None and high is not None and high < least) and not (
            most is not None and low is not None and low > most
        )


class TableChanged(StokerError):
    """Other maintenance has changed the table meanwhile; nothing was changed here."""

    code = "table_changed"


class FileMissing(StokerError):
    """A file that should be committed is not there as it was written."""

    code = "file_missing"


Claim = Callable[[DeltaTable], dict[str, int] | None]
"""Decides with the handle that commits: the application transactions to record, or None if there is nothing to do."""


@dataclass(frozen=True)
class Change:
    """One version of a table: files that come and go, and what its history says about it."""

    added: Sequence[DataFile] = ()
    removed: Sequence[LiveFile] = ()
    about: Mapping[str, Any] | None = None
    changes_data: bool = True
    """False if the rows stay the same, in other files."""


class Table:
    """A table below the path of a lake. It need not exist yet."""

    def __init__(self, files: Files, name: str) -> None:
        self.lake_files, self.name = files, name
        self.uri = files / name
        self._options = files.storage_options

    def exists(self) -> bool:
        try:
            return bool(DeltaTable.is_deltatable(self.uri, self._options))
        except OSError as error:
            raise self.lake_files.failed(error) from None

    def open(self, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(self.uri, version=version, storage_options=self._options)
        except OSError as error:
            raise self.lake_files.failed(error) from None

    def create(self, schema: Mapping[str, Any]) -> None:
        """Create the table, or add the columns that it lacks, in a commit of its own. The schema is Spark's JSON."""
        wanted = delta_schema(schema)
        for _ in range(TRIES_MAX):
            try:
                handle = self._made(wanted)
                fields = lacking(handle.schema(), wanted)
                if not fields:
                    return
                handle.alter.add_columns(fields)
            except CommitFailedError:
                pass  # by another process, or by this one, if the answer of a store was lost: look again
        raise TableChanged(f"the table {self.name} is changed by others all the time: try again")

    def _made(self, wanted: Schema) -> DeltaTable:
        try:
            return self.open()
        except TableNotFoundError:
            return DeltaTable.create(
                self.uri,
                wanted,
                mode="ignore",
                partition_by=[DATE],
                configuration=dict(SETTINGS),
                storage_options=self._options,
            )

    def commit(self, change: Change, claim: Claim) -> bool:
        """Make one version of the table. False if `claim` finds that it was made already."""
        for _ in range(TRIES_MAX):
            handle = self.open()
            transactions = claim(handle)
            if transactions is None:
                return False
            self._check_there(change.added)
            try:
                handle.create_write_transaction(
                    actions_of(change),
                    "append",
                    handle.schema(),
                    [DATE],
                    commit_properties=CommitProperties(
                        custom_metadata={PREFIX: dict(change.about or {})},
                        app_transactions=[Transaction(app, version) for app, version in transactions.items()],
                    ),
                )
                return True
            except CommitFailedError:
                continue  # another commit came between: decide again, with what it has changed
            except OSError as error:  # of a store; whether this version is there is found out by the next run
                raise self.lake_files.failed(error) from None
        raise TableChanged(f"the table {self.name} is changed by others all the time: try again")

    def _check_there(self, added: Sequence[DataFile]) -> None:
        """delta-rs would commit files that do not exist."""
        sizes = self.lake_files.sizes(f"{self.name}/{file.path}" for file in added)
        for file in added:
            found = sizes[f"{self.name}/{file.path}"]
            if found != file.size:
                state = "is gone" if found is None else f"has {found} bytes"
                raise FileMissing(
                    f"{self.uri}/{file.path} was written with {file.size} bytes and {state}: run it again"
                )


def maintained(removed: Collection[str]) -> Claim:
    """The next transaction of maintenance, if all files that are to go are still there."""

    def claim(handle: DeltaTable) -> dict[str, int] | None:
        gone = set(removed) - {file.path for file in live_files(handle)}
        if gone:
            raise TableChanged(
                f"{handle.table_uri} was compacted, expired or rewritten by another command meanwhile"
                f" ({len(gone)} of {len(removed)} files are replaced): nothing was changed; run it again"
            )
        return {MAINTENANCE: (handle.transaction_version(MAINTENANCE) or 0) + 1}

    return claim


def actions_of(change: Change) -> list[AddAction | RemoveAction]:
    now = round(time.time() * 1000)
    gone = [RemoveAction(file.path, change.changes_data, now, file.size, {DATE: file.date}) for file in change.removed]
    came = [
        AddAction(file.path, file.size, {DATE: file.date}, now, change.changes_data, file.statistics)
        for file in change.added
    ]
    return [*gone, *came]


def live_files(handle: DeltaTable) -> list[LiveFile]:
    """The files of this version, by path."""
    found = pa.table(handle.get_add_actions()).to_pylist()
    files = [
        LiveFile(
            row["path"],
            row["size_bytes"],
            str((row.get("partition") or {})[DATE]),
            row["num_records"] or 0,
            row.get("min") or {},
            row.get("max") or {},
        )
        for row in found
    ]
    return sorted(files, key=lambda file: file.path)


# --- schemas ----------------------------------------------------------------------------------------


def delta_schema(schema: Mapping[str, Any]) -> Schema:
    """Spark's schema with the column of the partition. Every column may be null."""
    fields = [field for field in schema["fields"] if field["name"] != DATE]
    plain = {"type": "struct", "fields": [nullable(field) for field in fields] + [column(DATE, "date")]}
    try:
        return Schema.from_json(json.dumps(plain))
    except (DeltaError, ValueError) as error:
        raise InvalidRequest(f"a column has a type that Delta tables do not have: {error}") from None


def column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def nullable(field: Mapping[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    if isinstance(kind, dict) and kind.get("type") == "struct":
        kind = {"type": "struct", "fields": [nullable(inner) for inner in kind["fields"]]}
    return column(field["name"], kind)


def lacking(known: Schema, wanted: Schema) -> list[Any]:
    """Columns that a table does not have, and structs that have more fields than its own."""
    types = {field.name: field.type for field in known.fields}
    found = []
    for field in wanted.fields:
        kind = types.get(field.name)
        if kind is None or not names_in(field.type) <= names_in(kind):
            found.append(field)
    return found


def names_in(kind: Any) -> set[str]:
    """The fields of a struct; none of another type."""
    return {inner.name for inner in kind.fields} if isinstance(kind, DeltaStruct) else set()


def newest(moments: Iterable[Any]) -> datetime | None:
    """The latest of the times that statistics name."""
    found = [moment for moment in moments if isinstance(moment, datetime)]
    return max(found).astimezone(UTC) if found else None
