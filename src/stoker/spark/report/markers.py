"""What the log knows of causes: workers that are lost or new, queues that were changed, limits that were reached."""

from typing import Any

from pyspark.sql import functions as F

from stoker.model.reasons import Reason
from stoker.model.wording import many
from stoker.spark.lake.layout import Lake
from stoker.spark.report.rows import plain
from stoker.spark.report.scope import ReportScope

MOST = 60
"""Markers of a report: the newest of them."""
LOST = (Reason.STALLED, Reason.WORKER_LOST)
COUNTS = {
    "worker lost": ("delivery was", "deliveries were", "in the hands of a lost worker"),
    "queue paused": ("pause", "pauses", ""),
    "queue changed": ("change of its settings", "changes of its settings", "or the end of a pause"),
    "queue obliterated": ("shard", "shards", "forgot the queue"),
    "limit reached": ("dead letter was", "dead letters were", "evicted: the queue keeps no more"),
    "new workers": ("worker", "workers", "not seen before"),
}
"""Kinds of markers: what their number counts, in the singular and the plural, and what happened to it."""


def markers(lake: Lake, scope: ReportScope, grain: str) -> list[dict[str, Any]]:
    """By time: what happened besides jobs. The log has names of workers, no versions: a deploy shows as new workers."""
    unit = "minute" if grain == "second" else grain
    found = [*changes(lake, scope, unit), *new_workers(lake, scope, unit)]
    return sorted(found, key=lambda one: (one["at"], one["kind"], one["queue"] or ""))[-MOST:]


def changes(lake: Lake, scope: ReportScope, unit: str) -> list[dict[str, Any]]:
    rows = scope.read(lake, "failures")
    if rows is None:
        return []
    event, reason = F.col("event"), F.col("reason")
    kind = (
        F.when(reason.isin(*LOST), "worker lost")
        .when((event == "queue_configured") & (reason == "paused"), "queue paused")
        .when(event == "queue_configured", "queue changed")
        .when(event == "queue_obliterated", "queue obliterated")
        .when(event == "evicted", "limit reached")
    )
    at = F.date_trunc(unit, "minute").alias("at")
    marked = rows.withColumn("kind", kind).where("kind IS NOT NULL").groupBy(at, "kind", "queue")
    told = marked.agg(
        F.sum("count").alias("count"), F.max("example").alias("example"), F.max("example_worker").alias("worker")
    )
    newest = told.orderBy(F.desc("at")).limit(MOST).collect()
    return [
        marker(row["at"], row["kind"], row["queue"], row["count"], row["worker"] or row["example"]) for row in newest
    ]


def new_workers(lake: Lake, scope: ReportScope, unit: str) -> list[dict[str, Any]]:
    """Workers whose first delivery is in the period. Those of the first minutes of a lake may be old ones."""
    rows = lake.read("workers", until=scope.until, tenant=scope.tenant)
    if rows is None or scope.queue is not None:
        return []
    first = rows.groupBy("tenant", "worker").agg(F.min("minute").alias("minute"))
    if scope.since is not None:
        first = first.where(F.col("minute") >= F.lit(scope.since))
    counted = first.groupBy(F.date_trunc(unit, "minute").alias("at")).agg(
        F.count("*").alias("count"),
        F.array_join(F.slice(F.array_sort(F.collect_set("worker")), 1, 3), ", ").alias("who"),
    )
    newest = counted.orderBy(F.desc("at")).limit(MOST).collect()
    return [marker(row["at"], "new workers", None, row["count"], row["who"]) for row in newest]


def marker(at: Any, kind: str, queue: str | None, count: int, about: str | None) -> dict[str, Any]:
    one, more, what = COUNTS[kind]
    says = f"{many(count, one, more)} {what}".strip()
    return {"at": plain(at), "kind": kind, "queue": queue, "count": count, "says": says, "about": about}
