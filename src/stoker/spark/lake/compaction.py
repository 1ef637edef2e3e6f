"""Merges the many small files of a layer into few, sorted, and adds up the deltas of gold on the way.

The new files are written beside the old ones. One version of the table then removes the old and adds the new, so every
reader sees the one or the other. The files stay until `vacuum` for readers of earlier versions. Batches that some table
still lacks are left alone. Of two compactions at once one commits; the other changes nothing.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from stoker.model.errors import StokerError
from stoker.spark.lake.gold import KEYS
from stoker.spark.lake.layout import LAYERS, Lake, LayerView
from stoker.spark.lake.table import Change, LiveFile, maintained
from stoker.spark.lake.writing import DATE, MOMENTS, DataFile

SMALL_BYTES = 64 * 2**20
"""Files below this size are merged."""
FILE_BYTES = 128 * 2**20
"""The approximate size of a file: what Spark gives to one task when it reads."""
ORDER = ("tenant", "queue", *MOMENTS)
"""Rows are sorted by these columns, so that files and their parts tell tenants, queues and times apart."""

ADDED_UP: dict[str, tuple[str, ...]] = {
    "minutes": KEYS,
    "failures": (*KEYS, "event", "reason", "error_class", "fingerprint"),
    "workers": ("tenant", "worker", "minute"),
    "schedules": ("tenant", "schedule", "queue", "minute"),
}
"""Layers whose rows are deltas, and the columns that identify what they add up to."""


class CompactionFailed(StokerError):
    """What was written is not what was read; nothing has changed."""

    code = "compaction_failed"


@dataclass(frozen=True)
class Compacted:
    """The outcome for one layer."""

    layer: str
    files: int
    """How many were merged."""
    into: int
    """How many they are now."""


def compact(lake: Lake) -> list[Compacted]:
    """Compact all layers. A second run finds nothing to do."""
    found = [compact_layer(lake, layer) for layer in LAYERS]
    return [one for one in found if one is not None]


def compact_layer(lake: Lake, layer: str) -> Compacted | None:
    view = lake.view([layer]).get(layer)
    old = [] if view is None else chosen(view.files)
    if view is None or not old:
        return None
    new = rewritten(lake, layer, view, old)
    about = {"operation": "compact", "removed": len(old), "added": len(new)}
    lake.table(layer).commit(Change(new, old, about, changes_data=False), maintained({file.path for file in old}))
    return Compacted(layer, len(old), len(new))


def chosen(files: list[LiveFile]) -> list[LiveFile]:
    """The small files of each date that has more than one of them."""
    small: dict[str, list[LiveFile]] = {}
    for file in files:
        if file.size < SMALL_BYTES:
            small.setdefault(file.date, []).append(file)
    return [file for same in small.values() if len(same) > 1 for file in same]


def rewritten(lake: Lake, layer: str, view: LayerView, old: list[LiveFile]) -> list[DataFile]:
    """Write the rows of these files to new ones, and check them."""
    rows = lake.frame(layer, [file.path for file in old], StructType.fromJson(view.schema))
    tasks = -(-sum(file.size for file in old) // FILE_BYTES)
    order = [DATE, *[name for name in ORDER if name in rows.columns]]
    spread = merged(layer, rows).repartitionByRange(tasks, *order).sortWithinPartitions(*order)
    new = lake.stored(layer, MERGED, spread)
    check(lake, layer, rows, sum(file.rows for file in old), new)
    return new


MERGED = "merged"
"""The names of files that maintenance writes begin with this."""


def merged(layer: str, rows: DataFrame) -> DataFrame:
    """Add up deltas with the same keys; events, attempts and jobs stay as they are."""
    if layer not in ADDED_UP:
        return rows
    keys = (*ADDED_UP[layer], DATE)
    added = rows.groupBy(*keys).agg(*[sum_of(name) for name in rows.columns if name not in keys])
    return added.select(*[F.col(field.name).cast(field.dataType) for field in rows.schema.fields])


def sum_of(name: str) -> Column:
    if name.endswith("_sketch"):
        return F.kll_merge_agg_bigint(name).alias(name)
    if name.endswith("_max") or name.startswith("example"):
        return F.max(name).alias(name)
    if name.endswith("_min"):
        return F.min(name).alias(name)
    return F.sum(name).alias(name)


MEASURES = {
    "minutes": "sum(started + pushed)",
    "failures": "sum(count)",
    "workers": "sum(attempts)",
    "schedules": "sum(runs)",
}
"""What the deltas of a layer must add up to, before and after."""


def check(lake: Lake, layer: str, rows: DataFrame, count: int, new: list[DataFile]) -> None:
    """Check before anything counts that no row is missing and no delta is lost."""
    if layer in MEASURES:
        measure = MEASURES[layer]
        after = lake.frame(layer, [file.path for file in new], rows.schema)
        before, found = (one.selectExpr(measure).collect()[0][0] for one in (rows, after))
    else:
        measure, before, found = "rows", count, sum(file.rows for file in new)
    if before != found:
        raise CompactionFailed(f"{layer}: {measure} was {before} and would be {found}; the lake stays as it is")
