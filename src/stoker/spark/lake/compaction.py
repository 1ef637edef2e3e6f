"""Merges the many batch directories of a layer into few, and adds up the deltas of gold on the way.

The new directory is written beside the others, under a name that does not count yet. Then a manifest names it: from
then on readers use it in place of the batches that it was made of, which are removed. Wherever this is interrupted,
readers see either the old or the new; the next compaction cleans up. The newest batch is never touched, because the
stream may have to write it again. Only one compaction runs at a time.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stoker.model.errors import StokerError
from stoker.spark.lake.gold import KEYS
from stoker.spark.lake.layout import LAYERS, BatchStretch, Lake

SMALL_BYTES = 64 * 2**20
"""Results of earlier compactions below this size are merged again."""
FILE_BYTES = 128 * 2**20
"""The approximate size of a file: what Spark gives to one task when it reads."""

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
    directories: int
    """How many were merged."""
    name: str


def compact(lake: Lake) -> list[Compacted]:
    """Compact all layers. A second run finds nothing to do."""
    newest = max((stretch.last for stretch in lake.stretches("bronze") if stretch.is_single), default=0)
    done = []
    for layer in LAYERS:
        tidy(lake, layer)
        found = compact_layer(lake, layer, newest)
        if found is not None:
            done.append(found)
    return done


def tidy(lake: Lake, layer: str) -> None:
    """Remove what compactions left behind: unfinished directories, those that no manifest names, and replaced ones."""
    for name in lake.begun(layer):
        lake.files.remove(name)
    valid = set(lake.names(layer))
    for name in lake.files.names(layer):
        if name not in valid:
            lake.files.remove(f"{layer}/{name}")


def compact_layer(lake: Lake, layer: str, newest: int) -> Compacted | None:
    sizes = {stretch: lake.files.size(f"{layer}/{lake.name(stretch)}") for stretch in lake.stretches(layer)}
    taken = chosen([stretch for stretch in sizes if stretch.last < newest], sizes)
    if not taken:
        return None
    whole = BatchStretch(taken[0].first, taken[-1].last)
    name, hidden = lake.name(whole), f"_new/{layer}-{lake.name(whole)}"
    parts = [lake.files / f"{layer}/{lake.name(stretch)}" for stretch in taken]
    rows = lake.spark.read.option("mergeSchema", "true").parquet(*parts)  # later batches may have more columns
    files = max(1, round(sum(sizes[stretch] for stretch in taken) / FILE_BYTES))
    merged(layer, rows).coalesce(files).write.mode("overwrite").parquet(lake.files / hidden)
    check(lake, layer, rows, hidden)
    lake.files.move(hidden, f"{layer}/{name}")
    lake.replace(layer, whole)
    tidy(lake, layer)
    return Compacted(layer, len(taken), name)


def chosen(there: list[BatchStretch], sizes: dict[BatchStretch, int]) -> list[BatchStretch]:
    """The latest batches, back to the first directory that is large enough; empty if there is no new batch among
    them.
    """
    taken: list[BatchStretch] = []
    for stretch in sorted(there, reverse=True):
        is_large = not stretch.is_single and sizes[stretch] >= SMALL_BYTES
        if is_large or (taken and stretch.last + 1 != taken[-1].first):
            break
        taken.append(stretch)
    if len(taken) < 2 or not any(stretch.is_single for stretch in taken):
        return []
    return sorted(taken)


def merged(layer: str, rows: DataFrame) -> DataFrame:
    """Add up deltas with the same keys; events, attempts and jobs stay as they are."""
    keys = ADDED_UP.get(layer)
    if keys is None:
        return rows
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


def check(lake: Lake, layer: str, rows: DataFrame, hidden: str) -> None:
    """Check before anything counts that no row is missing and no delta is lost."""
    told = "count(*)"
    if layer in ADDED_UP:
        told = {"minutes": "sum(started + pushed)", "failures": "sum(count)", "workers": "sum(attempts)"}.get(
            layer, "sum(runs)"
        )
    before = rows.selectExpr(told).collect()[0][0]
    after = lake.spark.read.parquet(lake.files / hidden).selectExpr(told).collect()[0][0]
    if before != after:
        raise CompactionFailed(f"{layer}: {told} was {before} and would be {after}; the lake stays as it is")
