"""The lake on the same 2 cores as the queue: events into bronze, all layers, the lag of a stream, and a cold run.

The server is a process of its own, level commit, payloads of 100 bytes; Spark is local[2]. Each part counts what
arrived. The first run of a session compiles Spark's code and is not counted, except where a cold run is measured.
"""

import os
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

import stoker
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row, cpu_seconds, seconds_of
from benchmarks.served import server_pid, stoker_server
from stoker.cli.measuring import quantiles, settle

JOBS = int(os.environ.get("STOKER_BENCH_SPARK_JOBS", "300000"))
BATCH = 1_000
WARM_S, LAG_S = 30, 30
SMALL = 2_000


def history(url: str, jobs: int = JOBS) -> int:
    """Push, pull and acknowledge jobs in batches: three events each. Returns the number of events."""
    with stoker.connect(url) as client:
        client.push_many("q", [PAYLOAD] * jobs, name="kind", batch_jobs=BATCH)
        while settle(client, "q", BATCH):
            pass
    return 3 * jobs


def session() -> Any:
    import stoker.spark

    return stoker.spark.session("local[2]", name="benchmarks", quick=False)


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
        rows.append(Row("reading the log", 100 * read_s / made_s, unit="%", note=note))
        rows += [layers(spark, path, url, events, 1)]
        events += history(url, 2 * JOBS)
        rows += [layers(spark, path, url, events, 2)]
    spark.stop()
    return rows


def bronze(spark: Any, path: str, url: str, events: int, server: int) -> tuple[list[Row], float]:
    """Events to Parquet, beside a copy of it; and the CPU seconds that sending them once cost the server."""

    def copied(number: int) -> float:
        source = spark.read.format("stoker").option("url", url).load()
        return seconds_of(lambda: source.write.parquet(f"{path}/bronze-{number}"))

    copied(0)
    before = cpu_seconds(server)
    taken = copied(1)
    read_s = cpu_seconds(server) - before
    assert spark.read.parquet(f"{path}/bronze-1").count() == events
    source = spark.read.parquet(f"{path}/bronze-1")
    floor = min(seconds_of(partial(source.write.parquet, f"{path}/copy-{n}")) for n in range(2))
    note = "asked 0.5 of Spark copying the same rows from Parquet to Parquet"
    return [Row(f"events to bronze, {events:,} events", events / taken, events / floor, "events/s", note)], read_s


def layers(spark: Any, path: str, url: str, events: int, number: int) -> Row:
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake

    def fill(name: str) -> float:
        return seconds_of(lambda: running.run(spark, f"{path}/{name}", {"url": url}))

    if number == 1:
        fill("lake-first")
    taken = fill(f"lake-{number}")
    lake = Lake(spark, f"{path}/lake-{number}")
    written, gold = lake.read("bronze"), lake.read("minutes")
    assert written is not None
    assert gold is not None
    assert written.count() == events
    totals = gold.selectExpr("sum(pushed)", "sum(completed)").collect()
    assert [tuple(row) for row in totals] == [(events // 3, events // 3)], totals
    note = "asked 100,000; from the start of the stream to its end"
    return Row(f"bronze, silver and gold, {events:,} events", events / taken, unit="events/s", note=note)


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
        found = lags(lake, f"{path}/lake", 3 * pushed, counted)
    spark.stop()
    lag_ms = quantiles(found)
    return [
        Row("from an event to gold, p50", lag_ms.p50, unit="ms", note="asked < 3,000; a batch every second"),
        Row("from an event to gold, p99", lag_ms.p99, unit="ms"),
    ]


def lags(lake: Any, path: str, events: int, since: float) -> list[float]:
    """In milliseconds. A batch became visible when the last of its directories got its name."""
    from pyspark.sql import functions as F

    rows = lake.read("bronze").select("batch", F.unix_millis("time").alias("at")).collect()
    assert len(rows) == events
    shown = {
        batch: max(os.stat(f"{path}/{layer}/batch={batch}").st_ctime for layer in ("bronze", "jobs", "minutes"))
        for batch in {row.batch for row in rows}
    }
    return [shown[row.batch] * 1000 - row.at for row in rows if row.at / 1000 >= since]


def cold() -> list[Row]:
    """`stoker pipeline run` on a small history, from nothing to its end."""
    with place() as path:
        url = f"sqlite:///{path}/queue"
        history(url, SMALL)
        command = [sys.executable, "-m", "stoker", "pipeline", "run", "--url", url, "--lake"]
        taken = [
            seconds_of(partial(subprocess.run, [*command, f"{path}/lake-{n}"], check=True, capture_output=True))
            for n in range(3)
        ]
    note = f"asked < 20; the first of three took {taken[0]:.1f}"
    return [Row(f"stoker pipeline run, {3 * SMALL:,} events", min(taken), unit="s", note=note)]
