"""What there is now as tables: read with the client alone, and by Spark itself."""

from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.listing import listed, shared, shares
from stoker.spark.options import read_options
from stoker.spark.tables import arrow_schema
from tests.spark.story import live
from tests.spark.test_source import table


def rows_of(client: Client, **given: str) -> list[dict[str, Any]]:
    """A table without Spark."""
    options = read_options(given)
    batches = [batch for queues in shares(client, options) for batch in listed(client, options, queues)]
    assert all(batch.schema == arrow_schema(options.columns) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_readable_job_is_a_row(queue: Client):
    live(queue)
    rows = rows_of(queue, table="jobs", batchRows="7")
    counts = msgspec.structs.asdict(queue.get_stats().counts)
    assert {state: sum(row["state"] == state for row in rows) for state in counts} == counts
    assert len({row["job"] for row in rows}) == len(rows)


@pytest.mark.parametrize("states", ["waiting", "waiting,failed"])
def test_jobs_are_chosen_by_state_and_queue(queue: Client, states: str):
    live(queue)
    rows = rows_of(queue, table="jobs", states=states, queues="mail,nowhere")
    counts = queue.get_counts("mail")
    assert len(rows) == sum(getattr(counts, state) for state in states.split(","))
    assert {row["queue"] for row in rows} == {"mail"}


def test_dead_letters_say_why_and_when(queue: Client):
    live(queue)
    rows = rows_of(queue, table="dead_letters")
    assert len(rows) == queue.get_stats().counts.failed > 0
    one = rows[0]
    letter = queue.get_job(one["job"])
    assert letter.dead is not None
    assert one["payload"] == letter.payload
    assert one["entered_at"].timestamp() * 1000 == letter.dead.entered_at
    assert rows_of(queue, table="dead_letters", reasons="timeout") == []


def test_results_name_their_codec(queue: Client):
    ids = queue.push_batch("sum", [b"1", b"2", b"3"]).ids
    delivery = queue.pull("sum", 3)
    for job in delivery:
        if job.id != ids[1]:
            queue.ack(job.id, job.token, b"\x2a", codec="msgpack")
        else:
            queue.ack(job.id, job.token)
    rows = rows_of(queue, table="results")
    assert [(row["job"], row["result"], row["codec"]) for row in rows] == [
        (ids[0], b"\x2a", "msgpack"),
        (ids[2], b"\x2a", "msgpack"),
    ]


def test_schedules_and_workers_are_rows(queue: Client):
    queue.put_schedule("mail", "daily", cron="0 8 * * *", zone="Europe/Vienna", payload=b"x")
    queue.put_schedule("sms", "often", every_ms=60_000, payload=b"x")
    rows = rows_of(queue, table="schedules")
    assert [(row["queue"], row["schedule"], row["cron"], row["every_ms"]) for row in rows] == [
        ("mail", "daily", "0 8 * * *", None),
        ("sms", "often", None, 60_000),
    ]
    assert rows[0]["next_run"] is not None
    assert [row["schedule"] for row in rows_of(queue, table="schedules", queues="sms")] == ["often"]
    queue.kv_set("stoker:worker:w1", b'{"id":"w1","host":"here","queues":["mail"],"slots":8}')
    (worker,) = rows_of(queue, table="workers")
    assert (worker["worker"], worker["queues"], worker["slots"], worker["polled_at"]) == ("w1", ["mail"], 8, None)


def test_small_queues_share_a_task():
    assert shared({"a": 5, "b": 0, "c": 5, "d": 30, "e": 1}, 10) == [("a", "c"), ("d",), ("e",)]
    assert shared({"a": 0}, 10) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "jobs", "events": "pushed"}, "unknown option events of table jobs"),
        ({"table": "workers", "queues": "mail"}, "unknown option queues of table workers"),
        ({"table": "jobs", "states": "done"}, "there is no state 'done'"),
        ({"table": "results", "payloadSchema": "a int"}, "unknown option payloadSchema"),
        ({"table": "dead_letters", "payloadSchema": "a int>, b int"}, "expected fields and types"),
        ({"table": "dead_letters", "columns": "job,event"}, "there is no column 'event'"),
    ],
)
def test_what_a_table_does_not_have_is_refused(options: dict[str, str], said: str):
    with pytest.raises(InvalidRequest, match=said):
        read_options(options)


# --- by Spark ------------------------------------------------------------------------------------------


def test_spark_reads_every_table(spark: SparkSession, url: str, queue: Client):
    live(queue, rounds=10)
    jobs = table(spark, url, table="jobs")
    assert jobs.count() == sum(msgspec.structs.astuple(queue.get_stats().counts))
    queue.put_schedule("mail", "daily", cron="0 8 * * *", payload=b"x")
    for name in ("results", "schedules", "workers"):
        assert table(spark, url, table=name).count() == len(rows_of(queue, table=name))
    with pytest.raises(PySparkException, match="unknown option startingOffsets of table jobs"):
        table(spark, url, table="jobs", startingOffsets="latest")
