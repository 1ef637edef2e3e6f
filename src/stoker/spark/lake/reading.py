"""Reads a lake: deltas added up by minute, hour or day, with derived numbers.

Numbers that depend on a setting (objectives, prices) are computed here and never stored: change the setting and ask
again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from stoker.model.event_table import ENDS_JOB, TABLE
from stoker.spark.lake.gold import COUNTED, ENDING
from stoker.spark.lake.layout import Lake
from stoker.spark.lake.silver import ENDS_OF_JOB, LEAVES_DEAD

GRAINS = ("minute", "hour", "day")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
MEASURED = ("wait_ms", "run_ms", "total_ms", "ready_ms", "latency_ms")
FROM_PUSH = {"ready_ms": "wait_ms", "latency_ms": "total_ms"}


@dataclass(frozen=True)
class ReportSettings:
    """Settings for derived numbers."""

    objective_ms: int = 60_000
    """A job is in time if it completed this soon after its delivery was due. One that failed or expired is not."""
    objective_share: float = 0.99
    """The share of jobs that should be in time. A burn of 1 uses up exactly what may be missed, 2 twice that."""
    price_job: float = 0.0
    price_run_hour: float = 0.0
    price_payload_gb: float = 0.0


def jobs(lake: Lake) -> DataFrame | None:
    """Each job whose last state is an end, once, with that end. A revived job that has not ended again is none."""
    rows = lake.read("jobs")
    if rows is None:
        return None
    latest = Window.partitionBy("tenant", "job").orderBy(F.desc("sequence"), F.desc("index"))
    moved = rows.where(F.col("state").isin(*ENDS_OF_JOB, "revived"))
    newest = moved.withColumn("newest", F.row_number().over(latest)).where("newest = 1 AND state != 'revived'")
    return newest.drop("newest")


DIED = (
    *("queue", "name", "shard", "time", "reason", "error", "error_class"),
    *("fingerprint", "attempts", "pushed_at", "removed"),
)
"""What is told of a dead letter."""


def dead_letters(
    lake: Lake, *, until: datetime | None = None, tenant: str | None = None, queue: str | None = None
) -> DataFrame | None:
    """Each job that has died and was not revived since, with its last death.

    `left` is null for those that are still dead letters; `evicted`, `removed` or `queue_obliterated` for the others.
    With `until`, as it was at that time.
    """
    rows = lake.read("jobs", until=until, tenant=tenant, queue=queue)
    if rows is None:
        return None
    moved = rows.where(F.col("state").isin("failed", *LEAVES_DEAD))
    died = F.max(F.when(F.col("state") == "failed", F.struct("sequence", "index", *DIED)))
    last = F.max(F.struct("sequence", "index", "state"))
    found = moved.where("job != 0").groupBy("tenant", "job").agg(died.alias("died"), last.alias("last"))
    found = found.where("died IS NOT NULL AND last.state != 'revived'")
    found = found.select("tenant", "job", *[f"died.{name}" for name in ("sequence", *DIED)], "last.state")
    queues = moved.where("state = 'queue_obliterated'").groupBy("tenant", "queue", "shard")
    ends = F.broadcast(queues.agg(F.max("sequence").alias("obliterated")))
    left = (
        F.when(F.col("removed"), "removed")
        .when(F.col("state") != "failed", F.col("state"))
        .when(F.col("obliterated") > F.col("sequence"), "queue_obliterated")
    )
    joined = found.join(ends, ["tenant", "queue", "shard"], "left").withColumn("left", left)
    return joined.drop("state", "sequence", "obliterated", "removed")


def summary(lake: Lake, grain: str = "minute", settings: ReportSettings | None = None) -> DataFrame | None:
    """Gold: the deltas added up."""
    if grain not in GRAINS:
        raise ValueError(f"grain {grain!r}: expected one of {', '.join(GRAINS)}")
    rows = lake.read("minutes")
    return None if rows is None else added(rows, grain, settings or ReportSettings())


def added(rows: DataFrame, grain: str, settings: ReportSettings) -> DataFrame:
    starts = rows.withColumn("start", F.date_trunc(grain, "minute"))
    return with_numbers(merged(starts, "tenant", "queue", "name", "start"), settings)


def merged(rows: DataFrame, *keys: str, measured: Sequence[str] = MEASURED) -> DataFrame:
    """Deltas of `minutes` added up by these columns, with the sketches of `measured`."""
    return rows.groupBy(*keys).agg(
        *[F.sum(name).alias(name) for name in (*COUNTED, "timed_out", "stalled")],
        *[F.sum(stored(name, "sum")).alias(f"{name}_sum") for name in MEASURED],
        *[F.kll_merge_agg_bigint(stored(name, "sketch")).alias(f"{name}_sketch") for name in measured],
        F.sum("payload_bytes").alias("payload_bytes"),
        F.max("payload_bytes_max").alias("payload_bytes_max"),
        F.sum("result_bytes").alias("result_bytes"),
    )


def stored(name: str, what: str) -> Column:
    """A column of gold. Rows of earlier releases do not know when a delivery was due: there it is from the push."""
    own = F.col(f"{name}_{what}")
    return F.coalesce(own, f"{FROM_PUSH[name]}_{what}") if name in FROM_PUSH else own


def with_numbers(rows: DataFrame, settings: ReportSettings) -> DataFrame:
    ended = sum((F.col(event) for event in ENDING), F.lit(0))
    so_far = Window.partitionBy("tenant", "queue", "name").orderBy("start").rowsBetween(Window.unboundedPreceding, 0)
    for name in MEASURED:
        rows = rows.withColumns({f"{name}_{word}": quantile(name, share) for word, share in QUANTILES.items()})
    late = F.col("completed") - F.round(rank("latency_ms", settings.objective_ms) * F.col("completed"))
    missed = late + F.col("failed") + F.col("expired")
    judged = F.col("completed") + F.col("failed") + F.col("expired")
    budget = 1 - settings.objective_share
    return rows.withColumns(
        {
            "ended": ended,
            "backlog": F.sum(F.col("pushed") + F.col("revived") - ended).over(so_far),
            "retry_amplification": ratio(F.col("started"), F.col("completed") + F.col("failed")),
            "late": late,
            "missed": missed,
            "slo_burn": ratio(missed, judged * F.lit(budget)),
            "cost": F.col("pushed") * settings.price_job
            + F.col("run_ms_sum") / 3_600_000 * settings.price_run_hour
            + F.col("payload_bytes") / 1e9 * settings.price_payload_gb,
        }
    )


STATE_AFTER = {
    kind.value: "ended" if kind in ENDS_JOB else row.state.value for kind, row in TABLE.items() if row.state is not None
}
"""The state of a job after an event; an event with a later time delays it until then."""


def stays(lake: Lake) -> DataFrame | None:
    """Each stay of a job in a state: since when, until when, for how long; `until` is null if it is still there.

    Computed from all of bronze: the state before an event comes from the event before, which may be days old. A job
    that waits for others looks like a waiting one until it is unblocked.
    """
    events = lake.read("bronze")
    if events is None:
        return None
    life = Window.partitionBy("tenant", "shard", "job").orderBy("sequence", "index")
    after = F.create_map(*[F.lit(word) for pair in STATE_AFTER.items() for word in pair])[F.col("event")]
    is_later = (F.col("due") > F.col("time")) & (after == "waiting")
    found = events.where(F.col("event").isin(*STATE_AFTER)).select(
        *("tenant", "queue", "shard", "job", "event", F.col("time").alias("since")),
        F.max("name").over(life.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)).alias("name"),
        F.lead("time").over(life).alias("until"),
        F.lead("event").over(life).alias("next"),
        F.when(is_later, "delayed").otherwise(after).alias("after"),
    )
    is_blocked = (F.col("next") == "unblocked") & F.col("event").isin("pushed", "revived")
    took = F.unix_millis("until") - F.unix_millis("since")
    was_dead = F.col("after") == "ended"
    state = F.when(is_blocked, "blocked").when(was_dead, "failed").otherwise(F.col("after"))
    return found.where("after != 'ended' OR event = 'failed' AND next = 'revived'").select(
        *("tenant", "queue", "name", "job", "since", "until", state.alias("state")),
        F.when(F.col("until").isNotNull(), F.greatest(took, F.lit(0))).alias("ms"),  # clocks can be set back
    )


def states(lake: Lake, grain: str = "day") -> DataFrame | None:
    """How long jobs were in each state, by the time at which they left it; `start` is null for those still in it."""
    rows = stays(lake)
    if rows is None:
        return None
    return rows.groupBy("tenant", "queue", "name", "state", F.date_trunc(grain, "until").alias("start")).agg(
        F.count("*").alias("stays"), F.sum("ms").alias("ms_sum"), F.max("ms").alias("ms_max")
    )


def has(name: str) -> Column:
    return F.kll_sketch_get_n_bigint(f"{name}_sketch") > 0


def quantile(name: str, share: float) -> Column:
    return F.when(has(name), F.kll_sketch_get_quantile_bigint(f"{name}_sketch", F.lit(share)))


def rank(name: str, value: int) -> Column:
    """The share of values up to this one; 1 if there are none."""
    found = F.kll_sketch_get_rank_bigint(f"{name}_sketch", F.lit(value).cast("bigint"))
    return F.when(has(name), found).otherwise(F.lit(1.0))


def ratio(one: Column, other: Column) -> Column:
    return F.when(other > 0, one / other)
