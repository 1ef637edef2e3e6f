"""Writes a lake as release 0.11 did: a directory for each batch, manifests of compactions, and `lake.json`."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from stoker.spark.lake.layout import LAYERS, Tables
from stoker.spark.lake.table import live_files

EPOCH = "3f9c1a2b"


def write_old_lake(new: Path, old: Path) -> None:
    """The same rows as a lake of today, with its checkpoint. The first two batches were compacted, and left behind."""
    tables = Tables(str(new))
    old.mkdir()
    (old / "lake.json").write_text(json.dumps({"version": 1, "epoch": EPOCH}))
    (old / ".lake.json.crc").write_bytes(b"crc")
    source = json.loads((new / "_source.json").read_text())
    (old / "_source.json").write_text(json.dumps({name: source[name] for name in ("tenants", "queues", "events")}))
    shutil.copytree(new / "_checkpoint", old / "_checkpoint")
    numbers = sorted(int(path.name) for path in (new / "_checkpoint" / "offsets").glob("[0-9]*"))
    for layer in LAYERS:
        if tables.table(layer).exists():
            write_layer(tables, layer, old / layer, numbers)


def write_layer(tables: Tables, layer: str, place: Path, numbers: list[int]) -> None:
    handle = tables.table(layer).open()
    files = live_files(handle)
    whole = handle.to_pyarrow_table().drop_columns(["date"])
    for number in numbers:
        of_batch = [
            f"{tables.files.root}/{layer}/{file.path}" for file in files if file.batch and file.batch.number == number
        ]
        rows = pq.read_table(of_batch, partitioning=None) if of_batch else whole.slice(0, 0)
        names = [f"batch={EPOCH}-{number:010d}"]
        if number < 2:
            names.append(f"batch={EPOCH}-0000000000-0000000001")
        for name in names:
            (place / name).mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, place / name / f"part-{number}.parquet")
    (place / "_compacted").mkdir()
    manifest = {"epoch": EPOCH, "stretches": [[0, 1]]}
    (place / "_compacted" / "0000000001.json").write_text(json.dumps(manifest))
