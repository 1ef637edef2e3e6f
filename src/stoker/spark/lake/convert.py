"""Converts a lake of version 1, which had a directory for each batch, into Delta tables, in its place.

The tables are made below `_converted`, one version for each old directory. When all are complete, a note says so; then
they take the place of the directories. Wherever this is interrupted, the next run goes on: until the note is written
the old lake is untouched, and after it only names change.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, Schema

from stoker.model.errors import InvalidRequest
from stoker.spark.lake.compaction import MERGED
from stoker.spark.lake.files import Files
from stoker.spark.lake.layout import CHECKPOINT, LAYERS, OLD_HEAD, SOURCE, VERSION, NoLake, last_of, shard_app
from stoker.spark.lake.table import PREFIX, Change, Claim, LakeBatch, Table
from stoker.spark.lake.writing import FileWriter

WORK = "_converted"
OLD = "_old"
NOTE = "_converted.json"
"""All tables are complete: they only have to take their places."""
APP = f"{PREFIX}/convert"
NO_SOURCE: dict[str, list[str]] = {"tenants": [], "queues": [], "events": []}
LITTER = ("_new", f".{OLD_HEAD}.crc", f".{SOURCE}.crc", "._beginning.json.crc")


@dataclass(frozen=True)
class Converted:
    """The outcome for one layer."""

    layer: str
    directories: int
    rows: int


@dataclass(frozen=True)
class OldDirectory:
    """One directory of an old layer: a batch, or several that were compacted. `last` is None for another epoch."""

    path: Path
    last: int | None


class OldLayout:
    """The directories of a lake of version 1, and how far its stream was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._epoch = json.loads((root / OLD_HEAD).read_text())["epoch"]
        self._ours = re.compile(rf"batch={self._epoch}-(\d{{10}})(?:-(\d{{10}}))?")
        stored = root / CHECKPOINT / "metadata"
        self.stream = json.loads(stored.read_text())["id"] if stored.exists() else None
        self.committed = max(self._numbers("commits"), default=-1)
        """The last batch that all layers have."""

    def directories(self, layer: str) -> list[OldDirectory]:
        """Those that count: each batch is in one of them. In order, other epochs first."""
        place = self.root / layer
        manifests = sorted((place / "_compacted").glob("[0-9]*.json"))
        compacted: list[tuple[int, int]] = []
        if manifests:
            told = json.loads(manifests[-1].read_text())
            compacted = [(first, last) for first, last in told["stretches"] if told["epoch"] == self._epoch]
        found = []
        for path in sorted(place.glob("batch=*")):
            name = self._ours.fullmatch(path.name)
            first, last = (int(name[1]), int(name[2] or name[1])) if name else (-1, -1)
            within = any(low <= first <= high for low, high in compacted)
            if name is None or (first, last) in compacted or (first == last and not within):
                found.append(OldDirectory(path, last if name else None))
        return sorted(found, key=lambda one: (-1 if one.last is None else one.last, one.path.name))

    def positions(self, number: int, rows: DeltaTable) -> dict[int, int]:
        """Where the stream was after a batch; without its checkpoint, the last records that bronze has."""
        stored = self.root / CHECKPOINT / "offsets" / str(number)
        if stored.exists():
            return {int(shard): last for shard, last in json.loads(stored.read_text().splitlines()[-1]).items()}
        found: dict[int, int] = {}
        for batch in rows.to_pyarrow_dataset().to_batches(columns=["shard", "sequence"]):
            for shard in pc.unique(batch.column("shard")).to_pylist():
                top = pc.max(batch.column("sequence").filter(pc.equal(batch.column("shard"), shard))).as_py()
                found[shard] = max(found.get(shard, 0), top)
        return {shard: found.get(shard, 0) for shard in range(max(found, default=-1) + 1)}

    def _numbers(self, name: str) -> Iterator[int]:
        return (int(path.name) for path in (self.root / CHECKPOINT / name).glob("[0-9]*") if path.name.isdecimal())


def convert(path: str) -> list[Converted]:
    """Convert the lake at a path. Returns what was in it."""
    files = Files(path)
    if not files.is_local:
        raise InvalidRequest(f"{path}: only a lake in a directory can be converted; copy it to one first")
    if not files.exists(OLD_HEAD):
        files.remove(NOTE)
        raise NoLake(f"there is no lake of an earlier release at {path}: nothing to convert")
    if not files.exists(NOTE):
        old = OldLayout(Path(files.root))
        made = [convert_layer(old, layer) for layer in LAYERS if old.directories(layer)]
        files.write_json(NOTE, [vars(one) for one in made])
    made = [Converted(**one) for one in files.read_json(NOTE)]
    for one in made:
        take_place(files, one.layer)
    known = files.read_json(SOURCE) if files.exists(SOURCE) else NO_SOURCE
    files.write_json(SOURCE, known | {"version": VERSION})
    for name in (WORK, OLD, *LITTER, OLD_HEAD, NOTE):  # the head goes last but one: without it, this is a new lake
        files.remove(name)
    return made


def take_place(files: Files, layer: str) -> None:
    if files.exists(f"{WORK}/{layer}"):
        if files.exists(layer):
            files.move(layer, f"{OLD}/{layer}")
        files.move(f"{WORK}/{layer}", layer)


def convert_layer(old: OldLayout, layer: str) -> Converted:
    """Make the table of a layer, one version for each old directory that it lacks."""
    work = Files(str(old.root / WORK))
    table = Table(work, layer)
    directories = old.directories(layer)
    rows = 0
    for number, directory in enumerate(directories):
        rows += convert_directory(old, work, table, directory, number)
    last = max((one.last for one in directories if one.last is not None), default=-1)
    adopt(old, table, last)
    return Converted(layer, len(directories), rows)


def convert_directory(old: OldLayout, work: Files, table: Table, directory: OldDirectory, number: int) -> int:
    found = ds.dataset(directory.path, format="parquet")
    table.create(json.loads(Schema.from_arrow(found.schema).to_json()))
    if last_of(table.open(), APP) < number:
        is_open = old.stream is not None and directory.last is not None and directory.last > old.committed
        label = LakeBatch(old.stream, directory.last).label if is_open else MERGED  # type: ignore[arg-type]
        files = list(FileWriter(work, table.name, label).write(found.to_batches()))
        about: dict[str, Any] = {"operation": "convert", "directory": directory.path.name}
        table.commit(Change(files, about=about), next_of({APP: number}))
    return int(found.count_rows())


def adopt(old: OldLayout, table: Table, last: int) -> None:
    """Let the table know how far the stream is, as if the stream had made it."""
    transactions: dict[str, int] = {f"{APP}/end": 1}
    if old.stream is not None and last >= 0:
        batch = LakeBatch(old.stream, last)
        transactions[batch.app] = last
        if table.name == "bronze":
            transactions[batch.whole] = min(last, old.committed)
    if table.name == "bronze":
        ends = old.positions(last, table.open())
        transactions |= {shard_app(shard): position for shard, position in ends.items()}
    table.commit(Change(about={"operation": "convert"}), next_of(transactions))


def next_of(transactions: dict[str, int]) -> Claim:
    """These transactions, unless the table has the first of them."""
    app, number = next(iter(transactions.items()))

    def claim(handle: DeltaTable) -> dict[str, int] | None:
        return None if last_of(handle, app) >= number else transactions

    return claim
