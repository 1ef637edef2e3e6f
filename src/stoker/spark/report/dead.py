"""Dead letters of a report: counted by their last state, so that a job that was revived is none."""

from collections import Counter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stoker.spark.lake import reading
from stoker.spark.lake.layout import Lake
from stoker.spark.report.rows import TOP, listed
from stoker.spark.report.scope import ReportScope


class Deaths(NamedTuple):
    """Jobs of one kind that died of one cause and were not revived since."""

    tenant: str
    queue: str
    name: str | None
    reason: str
    fingerprint: str
    left: str | None
    """How they left the dead letters; None if they are still there."""
    inside: bool
    """Whether they died in the period of the report."""
    jobs: int
    example_job: int

    @property
    def is_here(self) -> bool:
        return self.left is None


def letters(lake: Lake, scope: ReportScope) -> DataFrame | None:
    """As they were at the end of the period."""
    return reading.dead_letters(lake, until=scope.until, tenant=scope.tenant, queue=scope.queue)


def deaths(lake: Lake, scope: ReportScope) -> list[Deaths]:
    rows = letters(lake, scope)
    if rows is None:
        return []
    cause = F.coalesce("fingerprint", "reason").alias("fingerprint")
    inside = F.lit(True) if scope.since is None else F.col("time") >= F.lit(scope.since)
    found = rows.groupBy("tenant", "queue", "name", "reason", cause, "left", inside.alias("inside"))
    counted = found.agg(F.count("*").alias("jobs"), F.max_by("job", "time").alias("example_job"))
    return [Deaths(**row.asDict()) for row in counted.collect()]


def newest(lake: Lake, scope: ReportScope) -> list[dict[str, Any]]:
    """The newest dead letters, with their ids."""
    rows = letters(lake, scope)
    if rows is None:
        return []
    found = rows.where("left IS NULL").orderBy(F.desc("time"), F.desc("job")).limit(TOP)
    return listed(found.select("tenant", "queue", "name", "job", "time", "reason", "error", "attempts"))


def then_and_now(earlier: list[Deaths], died: list[Deaths]) -> list[dict[str, Any]]:
    """Dead letters by reason: at the beginning of the period, those that came and stayed, and at its end."""
    then, now, new = Counter[str](), Counter[str](), Counter[str]()
    for one in earlier:
        then[one.reason] += one.jobs if one.is_here else 0
    for one in died:
        now[one.reason] += one.jobs if one.is_here else 0
        new[one.reason] += one.jobs if one.is_here and one.inside else 0
    reasons = sorted(
        {reason for reason in (then | now) if then[reason] or now[reason]}, key=lambda name: (-now[name], name)
    )
    return [{"reason": name, "then": then[name], "new": new[name], "count": now[name]} for name in reasons]


def with_dead(rows: list[dict[str, Any]], died: list[Deaths], *names: str) -> list[dict[str, Any]]:
    """Add to each row of a table how many jobs are dead letters now."""
    now: Counter[tuple[Any, ...]] = Counter()
    for one in died:
        if one.is_here:
            now[tuple(getattr(one, name) for name in names)] += one.jobs
    return [row | {"dead_letters": now[tuple(row[name] for name in names)]} for row in rows]
