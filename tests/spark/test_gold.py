"""What gold says of schedules and of dead letters that came back, against a history whose moments the test knows."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from stoker.client.sync import Client
from stoker.model.options import Backoff
from stoker.records import records as rec
from stoker.spark.columns import BufferedRuns
from stoker.spark.lake import gold, reading
from stoker.spark.tables import EVENTS
from stoker.testing import World

MINUTE = 60_000
HOUR = 60 * MINUTE


def events_of(spark: SparkSession, records: list[tuple[int, rec.Record]]) -> DataFrame:
    """Records as executors read them."""
    gathered = BufferedRuns(0)
    for sequence, record in records:
        gathered.add(sequence, record)
    return spark.createDataFrame(pa.Table.from_batches([gathered.batch(EVENTS)]))


def history(world: World) -> list[tuple[int, rec.Record]]:
    return world.broker.runtime.journal.read(0, 0, 10_000)


def run_a_slot(world: World, later_ms: int) -> int:
    """Advance to the next push of the schedule, and start its job so much later; how late that is for its slot."""
    while not world.client.get_counts("report").waiting:
        world.advance(MINUTE)
    world.advance(later_ms)
    (job,) = world.client.pull("report", 1)
    world.client.ack(job.id, job.token)
    return world.now - job.options.slot


def test_the_lag_of_a_schedule_is_from_the_slot_to_the_start(spark: SparkSession):
    """Not from the push: a schedule whose jobs are pushed late is late, however soon they start then."""
    with World() as world:
        world.client.put_schedule("report", "hourly", every_ms=HOUR, jitter_ms=20 * MINUTE)
        lags = [run_a_slot(world, later_ms) for later_ms in (0, 7_000, 90_000)]
        records = history(world)
    assert sum(lags) > 100_000, "jobs were pushed later than their slots"
    (told,) = (
        gold.schedules(events_of(spark, records))
        .groupBy("schedule")
        .agg({"runs": "sum", "lag_ms_sum": "sum", "lag_ms_max": "max"})
        .collect()
    )
    assert (told["sum(runs)"], told["sum(lag_ms_sum)"], told["max(lag_ms_max)"]) == (3, sum(lags), max(lags))


def test_logs_that_tell_no_slot_of_a_start_count_from_the_push(spark: SparkSession):
    labels = rec.Labels(schedule="hourly")
    started = rec.Started(10_000, "default", "report", 1, "w", None, None, (rec.JobRun(64, 1, 7_000, labels=labels),))
    (told,) = gold.schedules(events_of(spark, [(1, started)])).collect()
    assert (told["runs"], told["lag_ms_sum"]) == (1, 3_000)


def fail(client: Client) -> None:
    (job,) = client.pull("mail", 1)
    client.fail(job.id, job.token, "no")


def test_the_backlog_of_a_kind_is_right_after_a_revival(spark: SparkSession):
    with World() as world:
        world.client.push("mail", b"dear all", name="welcome", max_attempts=1)
        fail(world.client)
        world.advance(MINUTE)
        world.client.retry_dead("mail")
        events = events_of(spark, history(world))
    days = reading.added(gold.minutes(events), "day", reading.ReportSettings())
    assert [(row["name"], row["revived"], row["backlog"]) for row in days.collect()] == [("welcome", 1, 1)]
    told = events.where("event IN ('pushed', 'revived')").select("name", "pushed_at", "payload_bytes").collect()
    assert told[0] == told[1]


def test_an_intended_delay_is_no_latency(spark: SparkSession):
    """Nor is a backoff, or a stay among the dead letters: each delivery counts from the moment at which it was due."""
    later = Backoff("fixed", HOUR, jitter="none")
    with World() as world:
        world.client.push_batch("mail", [b"later"] * 2, delay_ms=HOUR)
        world.client.push("mail", b"again", max_attempts=2, backoff=later)
        world.client.push("mail", b"dead", max_attempts=1)
        fail(world.client)
        fail(world.client)
        world.advance(HOUR)
        world.client.retry_dead("mail")
        world.advance(100)
        delivery = world.client.pull("mail", 10)
        world.advance(30)
        world.client.ack_batch(delivery.ids, delivery.token)
        events = events_of(spark, history(world))
    settings = reading.ReportSettings(objective_ms=1_000)
    (day,) = reading.added(gold.minutes(events), "day", settings).collect()
    assert (day["completed"], day["started"]) == (4, 6)
    assert (day["ready_ms_sum"], day["latency_ms_sum"]) == (4 * 100, 4 * 130)
    assert day["total_ms_sum"] == 4 * (HOUR + 130)
    assert (day["late"], day["missed"]) == (0, 1), "the one that died"


def test_a_log_that_does_not_know_when_a_job_was_due_counts_from_the_push(spark: SparkSession):
    run = rec.JobRun(64, 1, 7_000, 1, 9_000, "w")
    events = events_of(spark, [(1, rec.Completed(10_000, "default", "mail", (run,)))])
    (day,) = gold.minutes(events).collect()
    assert (day["latency_ms_sum"], day["total_ms_sum"]) == (3_000, 3_000)


def test_a_revival_of_an_older_log_names_no_kind(spark: SparkSession):
    told = events_of(spark, [(1, rec.Revived(10_000, "default", "mail", 64))])
    found = told.select("event", "job", "name", "pushed_at", "payload_bytes").collect()
    assert [tuple(row) for row in found] == [("revived", 64, None, None, 0)]
