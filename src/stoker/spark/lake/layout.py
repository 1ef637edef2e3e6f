"""The tables of a lake, and which batches count.

Each layer is a Delta table of its own, so any engine that reads Delta sees whole versions of it. A batch of the stream
is one version of each table. Bronze comes first; when all others have the batch, bronze gets a mark that says so
(`Batch.whole`). Readers in this package look only at batches with the mark: so all tables tell of the same events.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from stoker.model.errors import InvalidRequest, NewerFormat, StokerError
from stoker.spark.lake.files import Files
from stoker.spark.lake.table import PREFIX, Change, Claim, LakeBatch, LiveFile, Table, live_files
from stoker.spark.lake.writing import MOMENTS, RESULT, DataFile, FileWriter, as_batch, read_rows

VERSION = 2
"""Version of the tables. Raised when older readers would misread them. Version 1 had directories instead of tables."""
OLD_HEAD = "lake.json"
"""Only lakes of version 1 have this file."""
SOURCE = "_source.json"
"""The version of a lake, and the tenants, queues and kinds of events that it began with."""
CHECKPOINT = "_checkpoint"
LAYERS = ("bronze", "attempts", "jobs", "minutes", "failures", "workers", "schedules", "quarantine")
BY_HAND = "00000000"
"""The stream of batches that were written without a checkpoint."""

Positions = Mapping[int, int]
"""The last record of each shard."""


class NoLake(StokerError):
    """There is no lake at the path, or there is something else."""

    code = "no_lake"


class OldLake(StokerError):
    """The lake has the directories of an earlier release."""

    code = "old_lake"


class LakeElsewhere(StokerError):
    """A batch does not begin where the lake ends."""

    code = "lake_elsewhere"


class LayerView(NamedTuple):
    """The files of a table that count, at one moment."""

    version: int
    schema: dict[str, Any]
    files: list[LiveFile]


class Tables:
    """The tables of a lake at a path, without Spark. With `make` the lake may be new, in an empty place.

    `storage_options` reach an object store, as delta-rs names them; the AWS_* variables of the environment need not be
    among them. `checkpoint` is a directory for the stream that fills the lake, if it is not to be inside the lake.
    """

    def __init__(
        self,
        path: str,
        *,
        make: bool = False,
        storage_options: Mapping[str, str] | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.files = Files(path, storage_options)
        self._checkpoint = checkpoint
        if self.files.exists(OLD_HEAD):
            raise OldLake(
                f"the lake at {path} was written by an earlier release, as directories and not as Delta tables:"
                f" `stoker pipeline convert --lake {path}` converts it"
            )
        if self.files.exists(SOURCE):
            version = self.told(SOURCE, version=int)["version"]
            if version > VERSION:
                raise NewerFormat(
                    f"the lake at {path} was written by a later release (version {version}, this one knows {VERSION}):"
                    " use that release"
                )
        elif not self.table("bronze").exists():
            if not make:
                raise NoLake(f"there is no lake at {path}: `stoker pipeline run --lake {path}` makes one")
            self.files.check_place()
            if self.files.names(""):
                raise NoLake(f"{path} is not a lake and has other files: use a directory of its own")
            self.files.check_conditional()

    def table(self, layer: str) -> Table:
        return Table(self.files, layer)

    def layers(self) -> list[str]:
        """The tables that exist."""
        return [layer for layer in LAYERS if self.table(layer).exists()]

    def told(self, name: str, **kinds: type) -> dict[str, Any]:
        """The fields of one of the lake's small files, each checked for its type."""
        return told_in(self.files, name, **kinds)

    @property
    def checkpoint(self) -> Files:
        """The checkpoint of the stream that fills the lake."""
        return checkpoint_of(self.files.root, self._checkpoint)

    def batch(self, number: int) -> LakeBatch:
        """The batch of this number of the stream that the checkpoint is about."""
        stream = self.checkpoint
        return LakeBatch(told_in(stream, "metadata", id=str)["id"] if stream.exists("metadata") else BY_HAND, number)

    # --- what counts ------------------------------------------------------------------------------

    def view(self, layers: Iterable[str]) -> dict[str, LayerView]:
        """The tables that exist, all as of the same batch."""
        asked = list(layers)
        while True:
            found: dict[str, LayerView] = {}
            marks: dict[str, int] = {}
            bronze = self._opened("bronze")
            for layer in asked:
                handle = bronze if layer == "bronze" else self._opened(layer)
                if handle is None or bronze is None:
                    continue
                files = live_files(handle)
                marks |= whole_batches(bronze, files, marks)
                counted = [file for file in files if is_whole(file, marks)]
                found[layer] = LayerView(handle.version(), json.loads(handle.schema().to_json()), counted)
            if bronze is None or all(marks[stream] == mark_of(self.table("bronze").open(), stream) for stream in marks):
                return found  # else a batch was finished between two looks

    def _opened(self, layer: str) -> DeltaTable | None:
        try:
            return self.table(layer).open()
        except TableNotFoundError:
            return None

    def positions(self) -> dict[int, int]:
        """Where the lake ends: the last record of each shard that bronze has."""
        handle = self._opened("bronze")
        if handle is None:
            return {}
        found: dict[int, int] = {}
        while (last := handle.transaction_version(shard_app(len(found)))) is not None:
            found[len(found)] = last
        return found

    def has(self, layer: str, batch: LakeBatch) -> bool:
        """Whether a layer has a batch."""
        handle = self._opened(layer)
        return handle is not None and last_of(handle, batch.app) >= batch.number

    def files_of(self, batch: LakeBatch) -> list[LiveFile]:
        """The files of a batch in bronze. Maintenance leaves them alone until the batch is whole."""
        files = live_files(self.table("bronze").open())
        return [file for file in files if file.path.rpartition("/")[2].startswith(f"{batch.label}-")]

    def unfinished(self) -> list[LakeBatch]:
        """Batches that bronze has and some other table may lack."""
        handle = self.table("bronze").open()
        files = live_files(handle)
        marks = whole_batches(handle, files, {})
        return sorted({file.batch for file in files if file.batch is not None and not is_whole(file, marks)})

    def finish(self, batch: LakeBatch) -> None:
        """Mark a batch that all tables have."""

        def claim(handle: DeltaTable) -> dict[str, int] | None:
            return None if last_of(handle, batch.whole) >= batch.number else {batch.whole: batch.number}

        self.table("bronze").commit(Change(about={"operation": "whole", "batch": batch.number}), claim)


def checkpoint_of(lake: str, given: str | None) -> Files:
    """Where the checkpoint of a lake is. Spark writes it through Hadoop, so it is in a directory."""
    found = Files(given or f"{lake}/{CHECKPOINT}", {})
    if not found.is_local:
        raise InvalidRequest(
            f"{found.root}: Spark keeps the checkpoint of a stream in a directory, and not in an object store. Name a"
            " directory that the next run sees, too, with --checkpoint; if it is lost, the stream goes on from where"
            " the tables end"
        )
    return found


def told_in(files: Files, name: str, **kinds: type) -> dict[str, Any]:
    try:
        found = files.read_json(name)
        return {field: kind(found[field]) for field, kind in kinds.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise NoLake(f"{files / name} is damaged ({error!r}): restore it, or begin another lake") from None


def whole_batches(bronze: DeltaTable, files: Iterable[LiveFile], known: Mapping[str, int]) -> dict[str, int]:
    """For each stream that has files here, its newest batch that all tables have."""
    streams = {file.batch.stream for file in files if file.batch is not None}
    return {stream: mark_of(bronze, stream) for stream in streams - known.keys()}


def mark_of(bronze: DeltaTable, stream: str) -> int:
    return last_of(bronze, LakeBatch(stream, 0).whole)


def is_whole(file: LiveFile, marks: Mapping[str, int]) -> bool:
    batch = file.batch
    return batch is None or batch.number <= marks[batch.stream]


def last_of(handle: DeltaTable, app: str) -> int:
    found = handle.transaction_version(app)
    return -1 if found is None else found


def shard_app(shard: int) -> str:
    """The application transaction whose number is the last record of a shard."""
    return f"{PREFIX}/shard/{shard}"


def taken(
    batch: LakeBatch,
    begin: Positions,
    end: Positions,
    *,
    is_empty: bool,
    may_skip: bool,
    checkpoint: str = CHECKPOINT,
) -> Claim:
    """The claim of a batch in bronze: not there yet, and it begins where the lake ends. Errors name the checkpoint.

    The ends are application transactions and not only metadata of the commit: those are kept as long as the table is,
    and delta-rs refuses one of two streams that go on from the same place at once. A batch without events is whole.
    """

    def claim(handle: DeltaTable) -> dict[str, int] | None:
        if last_of(handle, batch.app) >= batch.number:
            return None
        for shard, position in begin.items():
            last = handle.transaction_version(shard_app(shard))
            if last is not None and position != last and not (may_skip and position > last):
                raise LakeElsewhere(
                    f"the lake ends at record {last} of shard {shard}, and the batch begins after {position}: its"
                    f" checkpoint is that of another lake, or older or newer than the tables. Restore the one that"
                    f" belongs to them, or remove {checkpoint}: the next run goes on from where the lake ends"
                )
        made = {batch.app: batch.number} | {shard_app(shard): position for shard, position in end.items()}
        return made | ({batch.whole: batch.number} if is_empty else {})

    return claim


def derived(batch: LakeBatch) -> Claim:
    """The claim of a batch in another table."""

    def claim(handle: DeltaTable) -> dict[str, int] | None:
        return None if last_of(handle, batch.app) >= batch.number else {batch.app: batch.number}

    return claim


class Lake(Tables):
    """A lake that Spark reads and writes."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        *,
        make: bool = True,
        storage_options: Mapping[str, str] | None = None,
        checkpoint: str | None = None,
    ) -> None:
        super().__init__(path, make=make, storage_options=storage_options, checkpoint=checkpoint)
        self.spark = spark
        self._pinned: dict[str, LayerView] | None = None

    def pinned(self) -> "Lake":
        """The lake as it is now: all tables tell of the same events, whatever a stream adds meanwhile."""
        found = Lake(self.spark, self.files.root, make=False, storage_options=self.files.storage_options)
        found._pinned = found.view(LAYERS)
        return found

    def read(
        self,
        layer: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        tenant: str | None = None,
        queue: str | None = None,
    ) -> DataFrame | None:
        """The rows of a layer; None if there is no such table. Only files that can have what is asked for are read.

        `since` and `until` are times of the events (of their minutes, in gold), the second not included.
        """
        view = (self.view([layer]) if self._pinned is None else self._pinned).get(layer)
        if view is None:
            return None
        schema = StructType.fromJson(view.schema)
        moment = next(name for name in MOMENTS if name in schema.names)
        asked = {"tenant": tenant, "queue": queue}
        files = [
            file
            for file in view.files
            if file.may_have(moment, since, until)
            and all(value is None or file.may_have(name, value, value) for name, value in asked.items())
        ]
        rows = self.frame(layer, [file.path for file in files], schema)
        if since is not None:
            rows = rows.where(F.col(moment) >= F.lit(since))
        if until is not None:
            rows = rows.where(F.col(moment) < F.lit(until))
        for name, value in asked.items():
            rows = rows if value is None else rows.where(F.col(name) == value)
        return rows

    def schema(self, layer: str) -> StructType | None:
        """The columns of a layer; None if there is no such table."""
        handle = self._opened(layer)
        return None if handle is None else StructType.fromJson(json.loads(handle.schema().to_json()))

    def frame(self, layer: str, paths: Sequence[str], schema: StructType) -> DataFrame:
        """The rows of some files of a layer. Older files may lack columns, which are null."""
        if not paths:
            return self.spark.createDataFrame([], schema)
        if self.files.is_local:
            reader = self.spark.read.schema(schema).option("basePath", self.files / layer)
            return reader.parquet(*[self.files / f"{layer}/{path}" for path in paths])
        names = self.spark.createDataFrame([(path,) for path in paths], "path string")
        spread = names.repartition(min(len(paths), self.spark.sparkContext.defaultParallelism))
        return spread.mapInArrow(file_reader(self.files, layer, schema), schema)

    def write(self, layer: str, batch: LakeBatch, rows: DataFrame, files: int = 1) -> int:
        """Make a batch of a layer visible as a whole, and return its rows. An existing one stays as it is."""
        table = self.table(layer)
        table.create(rows.schema.jsonValue())
        if self.has(layer, batch):
            return 0
        written = self.stored(layer, batch.label, rows.coalesce(files))
        if written:
            about = {"operation": "batch", "batch": batch.number, "rows": sum(file.rows for file in written)}
            table.commit(Change(written, about=about), derived(batch))
        return sum(file.rows for file in written)

    def stored(self, layer: str, label: str, rows: DataFrame) -> list[DataFile]:
        """Write rows to files that do not count yet. The paths are those of the task attempts that Spark counts."""
        writer = FileWriter(self.files, layer, label)

        def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield as_batch(writer.write(batches))

        return [DataFile(**row.asDict()) for row in rows.mapInArrow(step, RESULT).collect()]


def file_reader(files: Files, layer: str, schema: StructType) -> Callable[[Iterable[pa.RecordBatch]], Iterator[Any]]:
    """Reads files of a store that Spark itself does not know, in executors."""
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                yield from read_rows(files, layer, path, wanted)

    return read
