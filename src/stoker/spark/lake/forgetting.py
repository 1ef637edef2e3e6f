"""Removes all rows of a tenant from a lake, and says what was removed.

Files that can have rows of the tenant are written again without them: one version of each table. The old files are
there until `vacuum`, for readers of earlier versions.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from stoker.model.errors import StokerError
from stoker.spark.lake.compaction import MERGED
from stoker.spark.lake.layout import LAYERS, Lake, LayerView
from stoker.spark.lake.table import Change, LiveFile, live_files, maintained
from stoker.spark.lake.upkeep import gone_at, vacuum
from stoker.spark.lake.writing import DataFile


class BatchUnderWay(StokerError):
    """A batch that is not whole yet has rows of the tenant."""

    code = "batch_under_way"


@dataclass(frozen=True)
class Receipt:
    """What was removed, and when its bytes are gone."""

    tenant: str
    rows: dict[str, int]
    """By layer."""
    files: int
    """That were written again, or removed."""
    bytes_gone: str
    """From this time on, the next `vacuum` deletes the old files; with `now` they are deleted already."""
    deleted: int
    """Files that were deleted already."""


def forget(lake: Lake, tenant: str, *, now: bool = False) -> Receipt:
    """Remove the rows of a tenant from all layers. A second run finds none."""
    rows: dict[str, int] = {}
    files = 0
    for layer in LAYERS:
        found = forget_in(lake, layer, tenant)
        if found is not None:
            rows[layer], count = found
            files += count
    deleted = sum(one.files for one in vacuum(lake, timedelta(0), only_removed=True)) if now else 0
    return Receipt(tenant, rows, files, gone_at(timedelta(0) if now else None), deleted)


def forget_in(lake: Lake, layer: str, tenant: str) -> tuple[int, int] | None:
    """Rows and files of one layer; None if it has none of the tenant."""
    view = lake.view([layer]).get(layer)
    if view is None:
        return None
    whole = {file.path for file in view.files}
    under_way = [file for file in live_files(lake.table(layer).open()) if file.path not in whole]
    if any(file.may_have("tenant", tenant, tenant) for file in under_way):
        raise BatchUnderWay(
            f"{layer} has a batch that is not in all tables yet and may have rows of {tenant}: run `stoker pipeline"
            " run`, or wait for the stream, and forget again; what was removed until here stays removed"
        )
    old = [file for file in view.files if file.may_have("tenant", tenant, tenant)]
    new = rewritten(lake, layer, view, old, tenant) if old else []
    gone = sum(file.rows for file in old) - sum(file.rows for file in new)
    if not gone:
        return None
    about: dict[str, Any] = {"operation": "forget", "removed": len(old), "added": len(new), "rows": -gone}
    lake.table(layer).commit(Change(new, old, about), maintained({file.path for file in old}))
    return gone, len(old)


def rewritten(lake: Lake, layer: str, view: LayerView, old: list[LiveFile], tenant: str) -> list[DataFile]:
    """Write the rows of these files to new ones, without those of the tenant."""
    rows = lake.frame(layer, [file.path for file in old], StructType.fromJson(view.schema))
    return lake.stored(layer, MERGED, rows.where(~F.col("tenant").eqNullSafe(tenant)))
