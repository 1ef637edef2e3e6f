"""Few directories of many: the batches of a layer become one, and the deltas of gold are added up on the way.

The new directory is written beside, moved in under a name that counts only once a manifest says so, and then the
manifest is: from that moment on readers take it in place of the batches that it was made of, which are removed. At
whatever point this is interrupted, readers see either the old or the new; the next compaction clears up. The newest
batch is never touched, because the stream may have to write it again. One compaction at a time.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from stoker.model.errors import StokerError
from stoker.spark.lake.gold import KEYS
from stoker.spark.lake.layout import LAYERS, Lake, Stretch

SMALL_BYTES = 64 * 2**20
"""What an earlier compaction made is taken in again as long as it is smaller than this."""
FILE_BYTES = 128 * 2**20
"""Of one file, about: what Spark gives to one task when it reads."""

ADDED_UP: dict[str, tuple[str, ...]] = {
    "minutes": KEYS,
    "failures": (*KEYS, "event", "reason", "error_class", "fingerprint"),
    "workers": ("tenant", "worker", "minute"),
    "schedules": ("tenant", "schedule", "queue", "minute"),
}
"""Layers whose rows are deltas, and what they are deltas of."""


class CompactionFailed(StokerError):
    """What was written is not what was read; nothing has changed."""

    code = "compaction_failed"


@dataclass(frozen=True)
class Compacted:
    """What became of a layer."""

    layer: str
    directories: int
    """That were made one."""
    name: str


def compact(lake: Lake) -> list[Compacted]:
    """All layers. A second run finds nothing to do."""
    newest = max((stretch.last for stretch in lake.stretches("bronze") if stretch.is_single), default=0)
    done = []
    for layer in LAYERS:
        tidy(lake, layer)
        found = compact_layer(lake, layer, newest)
        if found is not None:
            done.append(found)
    return done


def tidy(lake: Lake, layer: str) -> None:
    """Remove what a compaction has left: what it began, what no manifest names, and what was replaced."""
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
    whole = Stretch(taken[0].first, taken[-1].last)
    name, hidden = lake.name(whole), f"_new/{layer}-{lake.name(whole)}"
    parts = [lake.files / f"{layer}/{lake.name(stretch)}" for stretch in taken]
    rows = lake.spark.read.option("mergeSchema", "true").parquet(*parts)  # later ones may have columns more
    files = max(1, round(sum(sizes[stretch] for stretch in taken) / FILE_BYTES))
    merged(layer, rows).coalesce(files).write.mode("overwrite").parquet(lake.files / hidden)
    check(lake, layer, rows, hidden)
    lake.files.move(hidden, f"{layer}/{name}")
    lake.replace(layer, whole)
    tidy(lake, layer)
    return Compacted(layer, len(taken), name)


def chosen(there: list[Stretch], sizes: dict[Stretch, int]) -> list[Stretch]:
    """The latest ones, back to the first that is large enough already; nothing if there is no new batch among them."""
    taken: list[Stretch] = []
    for stretch in sorted(there, reverse=True):
        is_large = not stretch.is_single and sizes[stretch] >= SMALL_BYTES
        if is_large or (taken and stretch.last + 1 != taken[-1].first):
            break
        taken.append(stretch)
    if len(taken) < 2 or not any(stretch.is_single for stretch in taken):
        return []
    return sorted(taken)


def merged(layer: str, rows: DataFrame) -> DataFrame:
    """Deltas of the same thing added up; events, attempts and jobs as they are."""
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
    """Before anything counts: no row is missing, no delta lost."""
    told = "count(*)"
    if layer in ADDED_UP:
        told = {"minutes": "sum(started + pushed)", "failures": "sum(count)", "workers": "sum(attempts)"}.get(
            layer, "sum(runs)"
        )
    before = rows.selectExpr(told).collect()[0][0]
    after = lake.spark.read.parquet(lake.files / hidden).selectExpr(told).collect()[0][0]
    if before != after:
        raise CompactionFailed(f"{layer}: {told} was {before} and would be {after}; the lake stays as it is")
