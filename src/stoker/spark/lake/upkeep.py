"""What keeps a lake small without new events: days that expire, files that are removed, and what a table has become.

None of this needs Spark. Each change is one version of a table.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from stoker.spark.lake.layout import LAYERS, Tables
from stoker.spark.lake.table import PREFIX, Change, maintained, newest
from stoker.spark.lake.writing import MOMENTS

KEPT_HOURS = 24
"""How long files stay that no version needs any more: longer than any reader or batch takes."""


@dataclass(frozen=True)
class Expired:
    """What went from one layer."""

    layer: str
    days: list[str]
    files: int
    rows: int
    bytes: int


def expire(
    tables: Tables, keep: timedelta, layers: Iterable[str] = LAYERS, now: datetime | None = None
) -> list[Expired]:
    """Remove whole days that ended longer ago than `keep`. Only the list of files changes, no file is read."""
    oldest = ((now or datetime.now(UTC)) - keep).astimezone(UTC).date()
    found = [expire_layer(tables, layer, oldest) for layer in layers]
    return [one for one in found if one is not None]


def expire_layer(tables: Tables, layer: str, oldest: date) -> Expired | None:
    view = tables.view([layer]).get(layer)
    gone = [] if view is None else [file for file in view.files if date.fromisoformat(file.date) < oldest]
    if not gone:
        return None
    about = {"operation": "expire", "before": str(oldest), "removed": len(gone)}
    tables.table(layer).commit(Change(removed=gone, about=about), maintained({file.path for file in gone}))
    days = sorted({file.date for file in gone})
    return Expired(layer, days, len(gone), sum(file.rows for file in gone), sum(file.size for file in gone))


@dataclass(frozen=True)
class Vacuumed:
    """The files of one layer that were removed for good."""

    layer: str
    files: int
    bytes: int


def vacuum(tables: Tables, keep: timedelta | None = None, *, only_removed: bool = False) -> list[Vacuumed]:
    """Delete files that no version of the last `keep` needs, and files that were never committed and are as old.

    With `only_removed`, files that were never committed stay: a batch may be writing them now.
    """
    hours = KEPT_HOURS if keep is None else -(-round(keep.total_seconds()) // 3600)
    done = []
    for layer in tables.layers():
        handle = tables.table(layer).open()
        names = handle.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=not only_removed)
        sizes = tables.files.sizes(f"{layer}/{name}" for name in set(names))
        for name in sizes:
            tables.files.remove(name)
        there = [size for size in sizes.values() if size is not None]
        done.append(Vacuumed(layer, len(there), sum(there)))
    return done


# --- looking ----------------------------------------------------------------------------------------


def history(tables: Tables, layers: Iterable[str] = LAYERS, limit: int = 20) -> list[dict[str, Any]]:
    """The newest versions of tables: when, what, and how many files came and went."""
    found = []
    for layer in layers:
        table = tables.table(layer)
        for commit in table.open().history(limit) if table.exists() else []:
            about = commit.get(PREFIX) or {}
            told = {name: value for name, value in about.items() if name != "operation"}
            at = datetime.fromtimestamp(commit["timestamp"] / 1000, UTC).isoformat(timespec="milliseconds")
            operation = about.get("operation") or str(commit.get("operation", "")).lower()
            found.append({"layer": layer, "version": commit["version"], "at": at, "operation": operation, **told})
    return sorted(found, key=lambda one: one["at"], reverse=True)[:limit]


def status(tables: Tables) -> dict[str, Any]:
    """Each table as of the newest batch that all of them have, and where the lake ends."""
    layers = []
    for layer, view in tables.view(LAYERS).items():
        moments = newest(file.high.get(name) for file in view.files for name in MOMENTS)
        days = sorted({file.date for file in view.files})
        layers.append(
            {
                "layer": layer,
                "version": view.version,
                "files": len(view.files),
                "bytes": sum(file.size for file in view.files),
                "rows": sum(file.rows for file in view.files),
                "first_day": days[0] if days else None,
                "newest": None if moments is None else moments.isoformat(timespec="milliseconds"),
            }
        )
    ends = tables.positions()
    return {
        "lake": tables.files.root,
        "positions": {str(shard): last for shard, last in ends.items()},
        "layers": layers,
    }


def gone_at(keep: timedelta | None = None) -> str:
    """When the bytes of files that were removed now may be deleted."""
    after = timedelta(hours=KEPT_HOURS) if keep is None else keep
    return (datetime.fromtimestamp(time.time(), UTC) + after).isoformat(timespec="seconds")
