"""The directories of a lake, and the version that wrote it.

Each layer has a directory, with one directory for each batch of the stream that fills it. A batch is written under a
hidden name and renamed when it is complete: every reader sees all of it or nothing. Its name contains the lake's epoch,
so that a lake whose checkpoint was lost does not mistake a new batch for an old one.

A compaction merges several batches into one directory, named by the first and the last of them. It counts as soon as a
manifest of the layer names it (`_compacted/0000000001.json`, the highest number is valid). From then on the batches do
not count any more, whether they are still there or not.
"""

import re
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from stoker.model.errors import NewerFormat, StokerError
from stoker.spark.lake.files import Files

VERSION = 1
"""Version of the tables. Raised when older readers would misread them."""
HEAD = "lake.json"
MANIFESTS = "_compacted"
LAYERS = ("bronze", "attempts", "jobs", "minutes", "failures", "workers", "schedules", "quarantine")


class BatchStretch(NamedTuple):
    """Batches from one number to another in one directory: a single batch, or a compaction of several."""

    first: int
    last: int

    @property
    def is_single(self) -> bool:
        return self.first == self.last


class NoLake(StokerError):
    """There is no lake at the path, or there is something else."""

    code = "no_lake"


class Lake:
    """A lake at a path. With `make`, it is created in an empty place, never among other files."""

    def __init__(self, spark: SparkSession, path: str, *, make: bool = True) -> None:
        self.spark = spark
        self.files = Files(spark, path)
        if not self.files.exists(HEAD):
            if not make:
                raise NoLake(f"there is no lake at {path}: `stoker pipeline run --lake {path}` makes one")
            if self.files.names(""):
                raise NoLake(f"{path} is not a lake and has other files: use a directory of its own")
            self.files.write_json(HEAD, {"version": VERSION, "epoch": uuid4().hex[:8]})
        head = self.told(HEAD, version=int, epoch=str)
        version, self.epoch = head["version"], head["epoch"]
        if version > VERSION:
            raise NewerFormat(
                f"the lake at {path} was written by a later release (version {version}, this one knows {VERSION}):"
                " use that release"
            )
        self._ours = re.compile(rf"batch={self.epoch}-(\d{{10}})(?:-(\d{{10}}))?")

    def told(self, name: str, **kinds: type) -> dict[str, Any]:
        """The fields of one of the lake's small files, each checked for its type."""
        try:
            found = self.files.read_json(name)
            return {field: kind(found[field]) for field, kind in kinds.items()}
        except (ValueError, KeyError, TypeError) as error:
            where = self.files / name
            raise NoLake(f"{where} is damaged ({error!r}): restore it, or begin another lake") from None

    @property
    def checkpoint(self) -> str:
        """The checkpoint of the stream that fills the lake."""
        return self.files / "_checkpoint"

    def batch(self, number: int) -> str:
        """The name of a batch."""
        return f"batch={self.epoch}-{number:010d}"

    def name(self, stretch: BatchStretch) -> str:
        """The name of a directory."""
        first = self.batch(stretch.first)
        return first if stretch.is_single else f"{first}-{stretch.last:010d}"

    def has(self, layer: str, batch: str) -> bool:
        """Whether a layer has a batch, by itself or compacted."""
        if self.files.exists(f"{layer}/{batch}"):
            return True
        found = self._ours.fullmatch(batch)
        number = int(found[1]) if found else -1
        return any(stretch.first <= number <= stretch.last for stretch in self._manifest(layer)[1])

    def write(self, layer: str, batch: str, rows: DataFrame, files: int = 1) -> None:
        """Make a batch of a layer visible as a whole. An existing one stays as it is."""
        if self.has(layer, batch):
            return
        hidden = f"_new/{layer}-{batch}"
        rows.coalesce(files).write.mode("overwrite").parquet(self.files / hidden)
        self.files.move(hidden, f"{layer}/{batch}")

    def read(self, layer: str) -> DataFrame | None:
        """All batches of a layer, compacted ones in place of their parts; None if there are none."""
        names = self.names(layer)
        if not names:
            return None
        reader = self.spark.read.option("basePath", self.files / layer)
        if layer == "bronze":  # bronze batches have more columns since payloads are decoded
            reader = reader.option("mergeSchema", "true")
        return reader.parquet(*[self.files / f"{layer}/{name}" for name in names])

    # --- compacted batches -------------------------------------------------------------------------

    def names(self, layer: str) -> list[str]:
        """The directories of a layer that count: each batch is in one of them."""
        while True:
            version, compacted = self._manifest(layer)
            found = [name for name in self.files.names(layer) if self._counts(name, compacted)]
            if self._manifest(layer)[0] == version:  # else a compaction came between the two looks
                return found

    def stretches(self, layer: str) -> list[BatchStretch]:
        """The same as numbers, in order; without those of another epoch."""
        found = [self._stretch(name) for name in self.names(layer)]
        return sorted(stretch for stretch in found if stretch is not None)

    def replace(self, layer: str, whole: BatchStretch) -> None:
        """From now on this directory counts instead of those that it was made of."""
        version, compacted = self._manifest(layer)
        kept = [stretch for stretch in compacted if stretch.last < whole.first or stretch.first > whole.last]
        name = f"{layer}/{MANIFESTS}/{version + 1:010d}.json"
        if self.files.exists(name):
            raise FileExistsError(f"{name}: another compaction is under way; run only one at a time")
        self.files.write_json(name, {"epoch": self.epoch, "stretches": sorted([*kept, whole])})

    def begun(self, layer: str) -> list[str]:
        """Unfinished directories of compactions. Single batches belong to the stream, which writes them again."""
        found = [name.removeprefix(f"{layer}-") for name in self.files.names("_new") if name.startswith(f"{layer}-")]
        return [f"_new/{layer}-{name}" for name in found if name.startswith(MANIFESTS) or self._is_of_several(name)]

    def _is_of_several(self, name: str) -> bool:
        stretch = self._stretch(name)
        return stretch is not None and not stretch.is_single

    def _manifest(self, layer: str) -> tuple[int, list[BatchStretch]]:
        """The number and the content of the valid manifest."""
        versions = self.files.names(f"{layer}/{MANIFESTS}")
        if not versions:
            return 0, []
        found = self.files.read_json(f"{layer}/{MANIFESTS}/{versions[-1]}")
        stretches = [BatchStretch(first, last) for first, last in found["stretches"] if found["epoch"] == self.epoch]
        return int(versions[-1].removesuffix(".json")), stretches

    def _stretch(self, name: str) -> BatchStretch | None:
        found = self._ours.fullmatch(name)
        return BatchStretch(int(found[1]), int(found[2] or found[1])) if found else None

    def _counts(self, name: str, compacted: list[BatchStretch]) -> bool:
        stretch = self._stretch(name)
        if stretch is None or stretch in compacted:
            return True
        return stretch.is_single and not any(known.first <= stretch.first <= known.last for known in compacted)
