"""The lake on the same 2 cores as the queue: events into bronze, all layers, the lag of a stream, upkeep, a cold run.

The server is a process of its own, level commit, payloads of 100 bytes; Spark is local[2]. Each part counts what
arrived. The first run of a session compiles Spark's code and is not counted, except where a cold run is measured.
"""

import atexit
import subprocess
import sys
import threading
import time
from datetime import datetime
from functools import cache, partial
from typing import Any

import stoker
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row, cpu_seconds, seconds_of
from benchmarks.served import server_pid, stoker_server
from benchmarks.sizes import IS_SMOKE, sized
from stoker.cli.measuring import quantiles, settle

JOBS = sized(300_000, 2_000, "STOKER_BENCH_SPARK_JOBS")
BATCH = 1_000
WARM_S, LAG_S = sized(30, 1), sized(30, 1)
SMALL = sized(2_000, 100)
COLD = sized(3, 1)
A_DAY = sized(12, 1)
"""Batches of a day, in a lake of thirty days."""
TENANTS = ("default", "one", "two")


def history(url: str, jobs: int = JOBS, tenant: str = "default") -> int:
    """Push, pull and acknowledge jobs in batches: three events each. Returns the number of events."""
    with stoker.connect(url, tenant=tenant) as client:
        client.push_many("q", [PAYLOAD] * jobs, name="kind", batch_jobs=BATCH)
        while settle(client, "q", BATCH):
            pass
    return 3 * jobs


@cache
def session() -> Any:
    """One for all parts of this process; it ends with it."""
    import stoker.spark

    spark = stoker.spark.session("local[2]", name="benchmarks", quick=IS_SMOKE)
    atexit.register(end, spark)
    return spark


def end(spark: Any) -> None:
    """Stop Spark, and wait for its JVM: else its CPU time would count as that of other programs (`quiet.py`)."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


# --- events to tables ------------------------------------------------------------------------------------------------


def filling() -> list[Row]:
    spark = session()
    with place() as path, stoker_server(path) as port:
        url, server = f"tcp://127.0.0.1:{port}", server_pid(port)
        before = cpu_seconds(server)
        events = history(url)
        made_s = cpu_seconds(server) - before
        rows, read_s = bronze(spark, path, url, events, server)
        note = f"asked <= 10; CPU of the server for sending {events:,} events, of that for the jobs that made them"
        rows.append(Row("reading the log", 100 * read_s / max(made_s, 0.01), unit="%", note=note))
        rows += [layers(spark, path, url, events, 1)]
        events += history(url, 2 * JOBS)
        rows += [layers(spark, path, url, events, 2)]
    with place() as path, stoker_server(path) as port:
        url = f"tcp://127.0.0.1:{port}"
        events = sum(history(url, JOBS, tenant) for tenant in TENANTS)
        rows += [layers(spark, path, url, events, len(TENANTS))]
    return rows


def bronze(spark: Any, path: str, url: str, events: int, server: int) -> tuple[list[Row], float]:
    """Events into the table, beside a copy of its rows; and the CPU seconds that sending them once cost the server."""
    from stoker.spark.lake.layout import Lake
    from stoker.spark.lake.running import Intake, LogSpan
    from stoker.spark.lake.table import LakeBatch
    from stoker.spark.logs import reaches
    from stoker.spark.source import StokerSource

    schema = spark.read.format("stoker").option("url", url).load().schema
    with stoker.connect(url) as client:
        ends = {shard: reach.last for shard, reach in reaches(client).items()}

    def taken(number: int) -> float:
        lake = Lake(spark, f"{path}/bronze-{number}")
        intake = Intake(lake, StokerSource({"url": url}).streamReader(schema), schema, 2, may_skip=False)
        return seconds_of(lambda: intake.take(LakeBatch("0" * 8, 0), LogSpan(dict.fromkeys(ends, 0), ends)))

    if not IS_SMOKE:
        taken(0)
    before = cpu_seconds(server)
    took = taken(1)
    read_s = cpu_seconds(server) - before
    lake = Lake(spark, f"{path}/bronze-1")
    lake.finish(LakeBatch("0" * 8, 0))
    source = lake.read("bronze")
    assert source is not None
    assert source.count() == events
    floor = min(seconds_of(partial(source.write.parquet, f"{path}/copy-{n}")) for n in range(sized(2, 1)))
    note = "asked 0.8 of Spark copying the same rows from Parquet to Parquet"
    return [Row(f"events to bronze, {events:,} events", events / took, events / floor, "events/s", note)], read_s


def layers(spark: Any, path: str, url: str, events: int, number: int) -> Row:
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake

    several = number == len(TENANTS)
    options = {"url": url} | ({"tenants": ",".join(TENANTS)} if several else {})

    def fill(name: str) -> float:
        return seconds_of(lambda: running.run(spark, f"{path}/{name}", options))

    if number == 1 and not IS_SMOKE:
        fill("lake-first")
    taken = fill(f"lake-{number}")
    lake = Lake(spark, f"{path}/lake-{number}")
    written, gold = lake.read("bronze"), lake.read("minutes")
    assert written is not None
    assert gold is not None
    assert written.count() == events
    totals = gold.selectExpr("sum(pushed)", "sum(completed)").collect()
    assert [tuple(row) for row in totals] == [(events // 3, events // 3)], totals
    asked, whose = ("80,000", ", three tenants") if several else ("100,000", "")
    note = f"asked {asked}; from the start of the stream to its end"
    return Row(f"bronze, silver and gold, {events:,} events{whose}", events / taken, unit="events/s", note=note)


# --- upkeep ----------------------------------------------------------------------------------------------------------

EXPIRE = """
import sys, time
from datetime import UTC, datetime, timedelta
from stoker.spark.lake import upkeep
from stoker.spark.lake.layout import Tables

begun = time.perf_counter()
done = upkeep.expire(Tables(sys.argv[1]), timedelta(days=29), now=datetime(2026, 11, 30, 12, tzinfo=UTC))
assert [one.days for one in done] == [["2026-10-31"]] * len(done), done
print(time.perf_counter() - begun)
"""
NOTHING = "import stoker.spark; stoker.spark.session('local[2]').stop()"


def upkeep() -> list[Row]:
    """A day of thirty expires; and a run that finds nothing new, beside a session that does nothing."""
    with place() as path:
        month(f"{path}/month")
        expired = float(subprocess.check_output([sys.executable, "-c", EXPIRE, f"{path}/month"]))
        url = f"sqlite:///{path}/queue"
        history(url, SMALL)
        run = [sys.executable, "-m", "stoker", "pipeline", "run", "--master", "local[2]", "--url", url, "--lake"]
        subprocess.run([*run, f"{path}/lake"], check=True, capture_output=True)
        idle = min(seconds_of(partial(printed, [*run, f"{path}/lake"])) for _ in range(COLD))
        bare = min(seconds_of(partial(printed, [sys.executable, "-c", NOTHING])) for _ in range(COLD))
    return [
        Row("expire a day of 30, in two tables", expired, unit="s", note="asked <= 2; only the list of files changes"),
        Row("a run with nothing new", idle, bare, "s", "floor: a Spark session; asked at most 1 s more"),
    ]


def printed(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


def month(path: str) -> None:
    """Thirty days of a lake, with batches of a few rows."""
    from datetime import UTC, datetime, timedelta

    import pyarrow as pa

    from stoker.spark.lake.layout import Tables, derived
    from stoker.spark.lake.table import Change, LakeBatch
    from stoker.spark.lake.writing import FileWriter

    tables = Tables(path, make=True)
    schema = {"fields": [{"name": "time", "type": "timestamp"}, {"name": "tenant", "type": "string"}]}
    begin = datetime(2026, 10, 31, tzinfo=UTC)
    for number in range(30 * A_DAY):
        batch, at = LakeBatch("0" * 8, number), begin + timedelta(days=number / A_DAY)
        rows = pa.record_batch({"time": pa.array([at] * 3, pa.timestamp("us", "UTC")), "tenant": ["default"] * 3})
        for layer in ("bronze", "jobs"):
            table = tables.table(layer)
            if number == 0:
                table.create(schema)
            table.commit(Change(list(FileWriter(tables.files, layer, batch.label).write([rows]))), derived(batch))
    tables.finish(LakeBatch("0" * 8, 30 * A_DAY - 1))


# --- how far behind --------------------------------------------------------------------------------------------------


def lag() -> list[Row]:
    """From an event to the moment at which the last layer shows it, with 1,000 jobs a second going through.

    A stream runs for days, so the time in which the first batches compile Spark's code is not counted.
    """
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake

    spark = session()
    with place() as path, stoker_server(path) as port:
        url, over = f"tcp://127.0.0.1:{port}", threading.Event()
        lake = Lake(spark, f"{path}/lake")
        query = running.start(spark, lake, {"url": url}, {"processingTime": "1 second"})
        pushed = 0
        with stoker.connect(url) as client:
            until, counted = time.monotonic() + WARM_S + LAG_S, time.time() + WARM_S
            while time.monotonic() < until:
                client.push_batch("q", [PAYLOAD] * 100, name="kind")
                pushed += 100
                settle(client, "q", 100)
                over.wait(0.1)
        query.processAllAvailable()
        query.stop()
        found = lags(lake, 3 * pushed, counted)
    lag_ms = quantiles(found)
    return [
        Row("from an event to gold, p50", lag_ms.p50, unit="ms", note="asked < 3,000; a batch every second"),
        Row("from an event to gold, p99", lag_ms.p99, unit="ms"),
    ]


def lags(lake: Any, events: int, since: float) -> list[float]:
    """In milliseconds. A batch became visible when the mark was set that all tables have it."""
    from pyspark.sql import functions as F

    from stoker.spark.lake.upkeep import history as versions

    batch = F.regexp_extract("_metadata.file_name", r"-(\d{10})-", 1).cast("int").alias("batch")
    rows = lake.read("bronze").select(batch, F.unix_millis("time").alias("at")).collect()
    assert len(rows) == events
    told = versions(lake, ["bronze"], 1_000_000)
    marks = {one["batch"]: datetime.fromisoformat(one["at"]) for one in told if one["operation"] == "whole"}
    return [marks[row.batch].timestamp() * 1000 - row.at for row in rows if row.at / 1000 >= since]


def cold() -> list[Row]:
    """`stoker pipeline run` on a small history, from nothing to its end."""
    with place() as path:
        url = f"sqlite:///{path}/queue"
        history(url, SMALL)
        command = [sys.executable, "-m", "stoker", "pipeline", "run", "--url", url, "--lake"]
        taken = [
            seconds_of(partial(subprocess.run, [*command, f"{path}/lake-{n}"], check=True, capture_output=True))
            for n in range(COLD)
        ]
    note = f"asked < 20; the first of {COLD} took {taken[0]:.1f}"
    return [Row(f"stoker pipeline run, {3 * SMALL:,} events", min(taken), unit="s", note=note)]
