"""Filters of a query narrow what is fetched: the same rows, with less data leaving the queue."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from stoker.client.sync import Client
from stoker.model.ids import shard_of
from stoker.spark.filters import EVERYTHING, narrowed
from stoker.spark.options import read_options
from stoker.spark.source import PUSHDOWN, PushdownListReader, PushdownReader, register
from tests.spark.story import live
from tests.spark.test_source import table

Rows = list[dict[str, Any]]


def read(reader: Any, *filters: Filter) -> Rows:
    """The rows that a reader brings for a query, without Spark."""
    assert list(reader.pushFilters(list(filters))) == list(filters)  # which Spark applies again
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


def events(url: str, *filters: Filter, **options: str) -> Rows:
    return read(PushdownReader(read_options({"url": url} | options), None), *filters)


def listing(url: str, *filters: Filter, **options: str) -> Rows:
    return read(PushdownListReader(read_options({"url": url} | options), None), *filters)


EXACT: dict[str, tuple[tuple[Filter, ...], Callable[[dict[str, Any]], bool]]] = {
    "queue": ((EqualTo(("queue",), "mail"), IsNotNull(("queue",))), lambda row: row["queue"] == "mail"),
    "queues": ((In(("queue",), ("mail", "embed", "?!")),), lambda row: row["queue"] in ("mail", "embed")),
    "event": ((EqualNullSafe(("event",), "completed"),), lambda row: row["event"] == "completed"),
    "events": ((In(("event",), ("pushed", "failed", "nonsense")),), lambda row: row["event"] in ("pushed", "failed")),
    "both": (
        (EqualTo(("queue",), "mail"), EqualTo(("event",), "pushed")),
        lambda row: (row["queue"], row["event"]) == ("mail", "pushed"),
    ),
    "beginning": ((StringStartsWith(("queue",), "m"),), lambda row: row["queue"].startswith("m")),
    "beginnings": (
        (StringStartsWith(("queue",), "m"), StringStartsWith(("queue",), "mai"), In(("queue",), ("mail", "embed"))),
        lambda row: row["queue"] == "mail",
    ),
    "no name": ((StringStartsWith(("queue",), "?"),), lambda row: False),
    "other events": (
        (Not(In(("event",), ("pushed", "started"))), LessThan(("event",), "p")),
        lambda row: row["event"] < "p",
    ),
    "ends": (
        (StringEndsWith(("event",), "ed"), StringContains(("event",), "l")),
        lambda row: row["event"].endswith("ed") and "l" in row["event"],
    ),
    "shard": ((EqualTo(("shard",), 1),), lambda row: row["shard"] == 1),
    "range": (
        (GreaterThanOrEqual(("sequence",), 5), LessThanOrEqual(("sequence",), 9)),
        lambda row: 5 <= row["sequence"] <= 9,
    ),
    "nothing": ((EqualTo(("queue",), "mail"), EqualTo(("queue",), "sms")), lambda row: False),
    "foreign": ((EqualTo(("tenant",), "acme"),), lambda row: False),
}


def test_what_is_fetched_is_what_the_query_wants(url: str, queue: Client):
    live(queue)
    everything = events(url)
    for name, (filters, wanted) in EXACT.items():
        found = events(url, *filters)
        assert found == [row for row in everything if wanted(row)], name
        assert len(found) < len(everything)


def test_a_job_is_looked_for_in_its_own_shard(url: str, queue: Client):
    live(queue)
    everything = events(url)
    job = everything[-1]["job"]
    found = events(url, EqualTo(("job",), job))
    assert found == [row for row in everything if row["shard"] == shard_of(job)]
    assert len(found) < len(everything)
    assert all(row["shard"] == shard_of(row["job"]) for row in everything if row["job"])


def test_what_happens_to_queues_is_in_any_shard(url: str, queue: Client):
    for name in ("mail", "embed", "report", "sms"):
        queue.pause(name)
    found = events(url, EqualTo(("job",), 0))
    assert len({row["shard"] for row in found}) > 1
    assert len([row for row in found if row["job"] == 0]) == 4


def test_times_narrow_the_log_and_leave_nothing_out(url: str, queue: Client):
    for _ in range(30):
        queue.push("mail", b"x")
        time.sleep(0.002)  # moments that differ are what this is about
    everything = events(url)
    moments = [row["time"] for row in everything]
    middle = moments[15]
    micro = timedelta(microseconds=1)
    for filters, wanted in (
        ((GreaterThan(("time",), middle),), [at for at in moments if at > middle]),
        ((GreaterThanOrEqual(("time",), middle + micro),), [at for at in moments if at > middle]),
        ((LessThan(("time",), middle),), [at for at in moments if at < middle]),
        ((LessThanOrEqual(("time",), middle + micro),), [at for at in moments if at <= middle]),
        ((EqualTo(("time",), middle),), [at for at in moments if at == middle]),
    ):
        found = [row["time"] for row in events(url, *filters)]
        assert set(wanted) <= set(found)
        assert len(found) < len(everything)
        assert len(found) <= len(wanted) + moments.count(middle) + moments.count(wanted[-1])


def test_what_cannot_narrow_is_left_to_spark(url: str):
    options = read_options({"url": url})
    filters: list[Filter] = [
        Not(EqualTo(("queue",), "mail")),
        EqualTo(("payload", "queue"), "mail"),
        EqualTo(("shard",), "1"),
        GreaterThan(("queue",), "mail"),
        EqualNullSafe(("queue",), None),
        StringEndsWith(("queue",), "l"),
        IsNotNull(("time",)),
    ]
    assert narrowed(options, filters) == (options, EVERYTHING)


def test_a_comparison_with_null_narrows_as_spark_means_it(url: str):
    options = read_options({"url": url, "tenants": "a,b"})
    for each, left in (
        (Not(EqualNullSafe(("tenant",), "a")), ("b",)),
        (Not(EqualNullSafe(("tenant",), None)), ("a", "b")),
        (Not(In(("tenant",), ("a", None))), ()),
        (EqualTo(("tenant",), None), ()),
    ):
        assert narrowed(options, [each])[0].tenants == left


def test_options_and_queries_narrow_together(url: str, queue: Client):
    live(queue)
    found = events(url, In(("queue",), ("mail", "embed")), queues="mail,report", events="pushed,completed")
    assert {row["queue"] for row in found} == {"mail"}
    assert {row["event"] for row in found} == {"pushed", "completed"}
    begun = events(url, StringStartsWith(("queue",), "m"), queues="mail,report")
    assert {row["queue"] for row in begun} == {"mail"}
    assert {row["queue"] for row in events(url, StringStartsWith(("queue",), "ma"), subscribePattern="m.*l")} == {
        "mail"
    }
    assert events(url, StringStartsWith(("queue",), "sms"), subscribePattern="m.*l") == []


def test_tables_of_what_there_is_are_narrowed_as_well(url: str, queue: Client):
    live(queue)
    queue.put_schedule("mail", "daily", cron="0 8 * * *", payload=b"x")
    jobs = listing(url, table="jobs")
    assert listing(url, StringStartsWith(("queue",), "m"), table="jobs") == [
        row for row in jobs if row["queue"].startswith("m")
    ]
    found = listing(url, EqualTo(("queue",), "mail"), EqualTo(("state",), "completed"), table="jobs")
    assert found == [row for row in jobs if (row["queue"], row["state"]) == ("mail", "completed")]
    assert 0 < len(found) < len(jobs)
    letters = listing(url, table="dead_letters")
    assert listing(url, EqualTo(("reason",), letters[0]["reason"]), table="dead_letters")
    assert listing(url, EqualTo(("reason",), "nonsense"), table="dead_letters") == []
    assert listing(url, EqualTo(("queue",), "nowhere"), table="schedules") == []
    assert len(listing(url, EqualTo(("queue",), "mail"), table="schedules")) == 1
    assert listing(url, EqualTo(("tenant",), "acme"), table="jobs") == []


# --- by Spark ------------------------------------------------------------------------------------------


def fetched(rows: DataFrame) -> int:
    """How many rows the source has brought for what was collected of these."""
    plan: Any = rows._jdf.queryExecution().executedPlan()
    return int(plan.collectLeaves().apply(0).metrics().apply("numOutputRows").value())


def test_spark_hands_its_filters_on(spark: SparkSession, url: str, queue: Client):
    live(queue)
    moment = datetime.now(UTC) + timedelta(milliseconds=2)
    everything = table(spark, url)
    total = len(everything.collect())
    assert fetched(everything) == total
    completed = queue.get_stats().totals.completed
    for where, count in (
        ("event = 'completed'", completed),
        ("queue in ('mail', 'embed') and event = 'completed' and tenant = 'default'", None),
        (f"time > timestamp'{moment:%Y-%m-%d %H:%M:%S.%f}+00:00'", 0),
        ("shard = 1 and sequence between 2 and 4", None),
        ("queue like 'm%' and event <> 'pushed'", None),
    ):
        rows = everything.where(where)
        found = rows.collect()
        assert fetched(rows) == len(found) < total, where
        assert count is None or len(found) == count


def test_a_session_that_hands_no_filters_on_reads_the_same(spark: SparkSession, url: str, queue: Client):
    live(queue, rounds=10)
    other = spark.newSession()
    other.conf.set(PUSHDOWN, "false")
    register(other)
    rows = table(other, url).where("event = 'pushed'")
    assert len(rows.collect()) == queue.get_stats().totals.pushed < fetched(rows)
