"""Copies the tables of a lake into an Iceberg catalogue, one version after the other.

The version that was copied last is a property of the Iceberg table, which changes in the same commit as its rows. So an
export that was killed goes on after the last commit, and nothing is copied twice. pyiceberg would repeat a commit that
another export has overtaken; here it must not, and the export decides again with what it finds.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from stoker.model.errors import InvalidRequest, StokerError
from stoker.spark.lake.layout import LAYERS, Tables, is_whole, whole_batches
from stoker.spark.lake.table import TRIES_MAX, live_files
from stoker.spark.lake.writing import DATE, read_rows

VERSION = "stoker.delta-version"
"""The property of an Iceberg table that names the version of the Delta table that it equals."""
SETTINGS = {"commit.retry.num-retries": "0"}
ROWS_BYTES = 256 * 2**20
"""Arrow memory of rows that become files together."""


class ExportBehind(StokerError):
    """A version that was not exported is gone."""

    code = "export_behind"


class ExportOvertaken(StokerError):
    """Other writers change the Iceberg table all the time."""

    code = "export_overtaken"


@dataclass(frozen=True)
class Exported:
    """What was copied of one layer."""

    layer: str
    version: int
    """The version that the Iceberg table equals now."""
    versions: int
    """How many were copied by this run."""
    rows: int


class VersionChange(NamedTuple):
    """A version as a change of rows: dates whose rows are replaced, and files whose rows come."""

    dates: Sequence[str]
    files: Sequence[str]


def export(
    tables: Tables, catalog: str, namespace: str = "stoker", layers: Iterable[str] = LAYERS
) -> Iterator[Exported]:
    """Bring the Iceberg tables up to the newest batch that all tables have. Yields each layer when it is done."""
    opened = open_catalog(catalog)
    opened.create_namespace_if_not_exists(namespace)
    for layer in layers:
        newest = whole_version(tables, layer)
        if newest is not None:
            yield export_layer(tables, layer, opened, f"{namespace}.{layer}", newest)


def open_catalog(name: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise InvalidRequest("an export needs the package pyiceberg: pip install 'stoker[iceberg]'") from error
    try:
        return load_catalog(name)
    except ValueError as error:
        raise InvalidRequest(
            f"the Iceberg catalogue {name!r} cannot be opened: {error}. Name it in ~/.pyiceberg.yaml, or set"
            f" PYICEBERG_CATALOG__{name.upper()}__URI"
        ) from None


def whole_version(tables: Tables, layer: str) -> int | None:
    """The newest version of a table in which all batches are whole; None if there is no such table."""
    if not tables.table(layer).exists():
        return None
    bronze = tables.table("bronze").open()
    for version in range(tables.table(layer).open().version(), -1, -1):
        files = live_files(tables.table(layer).open(version))
        marks = whole_batches(bronze, files, {})
        if all(is_whole(file, marks) for file in files):
            return version
    return None


def export_layer(tables: Tables, layer: str, catalog: Any, name: str, newest: int) -> Exported:
    from pyiceberg.exceptions import CommitFailedException

    versions = rows = 0
    for _ in range(TRIES_MAX):
        copy = made_table(tables, layer, catalog, name, newest)
        try:
            while (last := int(copy.properties.get(VERSION, -1))) < newest:
                version, step = next_step(tables, layer, last, newest)
                rows += copy_version(tables, layer, copy, version, step)
                versions += 1
        except CommitFailedException:
            continue  # another export came between: go on from where it is
        return Exported(layer, last, versions, rows)
    raise ExportOvertaken(f"{name} is changed by others all the time: end them, and export again")


def made_table(tables: Tables, layer: str, catalog: Any, name: str, version: int) -> Any:
    """The Iceberg table, made if need be. It has no version yet."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        pass
    schema = arrow_schema(tables, layer, version)
    try:
        with (
            catalog.create_table_transaction(name, schema, properties=SETTINGS) as made,
            made.update_spec() as spec,
        ):
            spec.add_identity(DATE)
    except (TableAlreadyExistsError, CommitFailedException):
        pass  # by another export
    return catalog.load_table(name)


def next_step(tables: Tables, layer: str, last: int, newest: int) -> tuple[int, VersionChange]:
    """The next version that changes rows, or else the newest. The first export is one copy of the whole table."""
    if last < 0:
        return newest, VersionChange((), [file.path for file in live_files(tables.table(layer).open(newest))])
    for version in range(last + 1, newest + 1):
        step = step_of(tables, layer, version)
        if step.files or step.dates:
            return version, step
    return newest, VersionChange((), ())


def step_of(tables: Tables, layer: str, version: int) -> VersionChange:
    """What a version changes. Compactions change no rows; where rows go, all rows of those dates are copied again."""
    name = f"{layer}/_delta_log/{version:020d}.json"
    if not tables.files.exists(name):
        raise ExportBehind(
            f"version {version} of {layer} is no longer in the table's log, which is kept for two days: drop the"
            " Iceberg table, and the next export copies the whole table"
        )
    actions = [json.loads(line) for line in tables.files.read_text(name).splitlines()]
    added = [one["add"] for one in actions if "add" in one and one["add"]["dataChange"]]
    removed = [one["remove"] for one in actions if "remove" in one and one["remove"]["dataChange"]]
    if not removed:
        return VersionChange((), [one["path"] for one in added])
    dates = {date_of(one) for one in [*added, *removed]}
    files = live_files(tables.table(layer).open(version))
    return VersionChange(sorted(dates), [file.path for file in files if file.date in dates])


def date_of(action: Mapping[str, Any]) -> str:
    return str(action["partitionValues"][DATE])


def copy_version(tables: Tables, layer: str, copy: Any, version: int, step: VersionChange) -> int:
    """Make one commit of a version: its rows, and its number. Returns the rows that came.

    Even a version without rows appends: only then the catalogue refuses a commit that another export has overtaken.
    """
    schema = arrow_schema(tables, layer, version)
    rows = 0
    with copy.transaction() as change:
        with change.update_schema() as columns:
            columns.union_by_name(schema)
        if step.dates:
            change.delete(f"{DATE} in ({', '.join(repr(day) for day in step.dates)})")
        for part in parts(tables, layer, step.files, schema):
            change.append(part)
            rows += part.num_rows
        if not rows:
            change.append(schema.empty_table())
        change.set_properties({VERSION: str(version)})
    return rows


def parts(tables: Tables, layer: str, paths: Iterable[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of files, as many at once as fit into memory."""
    waiting: list[pa.RecordBatch] = []
    for path in paths:
        for batch in read_rows(tables.files, layer, path, schema):
            waiting.append(batch)
            if sum(one.nbytes for one in waiting) >= ROWS_BYTES:
                yield pa.Table.from_batches(waiting, schema)
                waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def arrow_schema(tables: Tables, layer: str, version: int) -> pa.Schema:
    return pa.schema(tables.table(layer).open(version).schema().to_arrow())
