"""Where things are in a lake, and which version of us wrote it.

Each layer has a directory, in it one for each batch of the stream that fills it. A batch is written beside, hidden, and
renamed when it is whole: every reader of the files sees it entirely or not at all. Its name holds the epoch of the
lake, so that a lake whose checkpoint was lost does not take a new batch for an old one.
"""

from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from stoker.model.errors import NewerFormat
from stoker.spark.lake.files import Files

VERSION = 1
"""Of the tables. Raised when a reader of before would misread them."""
HEAD = "lake.json"
LAYERS = ("bronze", "attempts", "jobs", "minutes", "failures", "workers", "schedules", "quarantine")


class Lake:
    """A lake at a path; made if nothing is there."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.files = Files(spark, path)
        if not self.files.exists(HEAD):
            self.files.write_json(HEAD, {"version": VERSION, "epoch": uuid4().hex[:8]})
        head = self.files.read_json(HEAD)
        if head["version"] > VERSION:
            raise NewerFormat(
                f"the lake at {path} was written by a later release (version {head['version']}, this one knows"
                f" {VERSION}): use that release"
            )
        self.epoch: str = head["epoch"]

    @property
    def checkpoint(self) -> str:
        """Where the stream that fills it keeps how far it is."""
        return self.files / "_checkpoint"

    def batch(self, number: int) -> str:
        """The name of a batch."""
        return f"batch={self.epoch}-{number:010d}"

    def has(self, layer: str, batch: str) -> bool:
        return self.files.exists(f"{layer}/{batch}")

    def write(self, layer: str, batch: str, rows: DataFrame, files: int = 1) -> None:
        """Make a batch of a layer visible, whole. One that is there already stays as it is."""
        if self.has(layer, batch):
            return
        hidden = f"_new/{layer}-{batch}"
        rows.coalesce(files).write.mode("overwrite").parquet(self.files / hidden)
        self.files.move(hidden, f"{layer}/{batch}")

    def read(self, layer: str) -> DataFrame | None:
        """All batches of a layer, or None if there are none; with the compacted ones in place of theirs."""
        names = self.files.names(layer)
        if not names:
            return None
        return self.spark.read.option("basePath", self.files / layer).parquet(
            *[self.files / f"{layer}/{name}" for name in names]
        )
