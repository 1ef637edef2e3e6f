"""Spark and the queue on the same 2 cores: events into the lake, a DataFrame into a queue, executors as workers.

A server in a process of its own, level commit, payloads of 100 bytes; Spark in local[2]. Each figure stands beside what
Spark or the plain client do with the same rows in the same run. Every part counts what arrived.
"""

import os
import time
from typing import Any

import stoker
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row
from benchmarks.served import stoker_server

JOBS = int(os.environ.get("STOKER_BENCH_SPARK_JOBS", "300000"))
BATCH = 1_000


def timed(run: Any) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def history(url: str) -> None:
    """Jobs pushed, pulled and acknowledged in batches: three events each."""
    with stoker.connect(url) as client:
        for _ in range(JOBS // BATCH):
            client.push_batch("q", [PAYLOAD] * BATCH, name="kind")
        while len(delivery := client.pull("q", BATCH)):
            client.ack_batch(delivery.ids, delivery.token)


def all_of_it() -> list[Row]:
    import stoker.spark
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake

    spark = stoker.spark.session("local[2]", name="benchmarks", quick=False)
    rows: list[Row] = []
    with place() as path, stoker_server(path) as port:
        url = f"tcp://127.0.0.1:{port}"
        history(url)
        events = spark.read.format("stoker").option("url", url).load()
        events.limit(10).collect()  # the first use of a Python source starts Python processes

        def copied(number: int) -> float:
            return timed(lambda: events_of().write.parquet(f"{path}/bronze-{number}"))

        def events_of() -> Any:
            return spark.read.format("stoker").option("url", url).load()

        taken = min(copied(number) for number in range(2))
        count = spark.read.parquet(f"{path}/bronze-0").count()
        assert count == 3 * JOBS
        source = spark.read.parquet(f"{path}/bronze-0")
        floor = min(timed(lambda n=n: source.write.parquet(f"{path}/copy-{n}")) for n in range(2))
        note = "asked 0.5 of Spark copying the same rows from Parquet to Parquet"
        rows.append(Row(f"events to bronze, {count:,} events", count / taken, count / floor, "events/s", note))

        lake = Lake(spark, f"{path}/lake")
        filling = timed(lambda: running.run(spark, f"{path}/lake", {"url": url, "maxRecordsPerTrigger": "300"}))
        bronze = lake.read("bronze")
        assert bronze is not None
        assert bronze.count() == count
        note = "asked 100,000; from the start of the stream to its end"
        rows.append(Row("bronze, silver and gold", count / filling, unit="events/s", note=note))
        rows += pushed(spark, url) + fleet(spark, url)
    spark.stop()
    return rows


def pushed(spark: Any, url: str) -> list[Row]:
    from pyspark.sql import functions as F

    frame = spark.range(JOBS, numPartitions=2).select(F.lit(PAYLOAD).alias("payload")).localCheckpoint()

    def written(queue: str) -> None:
        frame.write.format("stoker").mode("append").option("url", url).option("queue", queue).save()

    written("warm")
    taken = timed(lambda: written("pushed"))
    with stoker.connect(url) as client:
        assert client.get_counts("pushed").waiting == JOBS
        floor = timed(lambda: [client.push_batch("plain", [PAYLOAD] * BATCH) for _ in range(JOBS // BATCH)])
        for queue in ("warm", "pushed", "plain"):
            client.obliterate(queue)
    note = "asked 0.5 of the plain client's batches of 1,000"
    return [Row(f"DataFrame to queue, {JOBS:,} rows", JOBS / taken, JOBS / floor, note=note)]


def fleet(spark: Any, url: str) -> list[Row]:
    done: Any = None

    def run() -> None:
        nonlocal done
        done = stoker.spark.process(spark, "fleet", lambda payloads: [None] * len(payloads), url=url, batch=10_000)

    with stoker.connect(url) as client:
        client.push_batch("fleet", [PAYLOAD] * BATCH)
        run()  # the first use starts Python processes
        for _ in range(JOBS // BATCH):
            client.push_batch("fleet", [PAYLOAD] * BATCH)
    taken = timed(run)
    assert done.completed == JOBS
    return [Row("fleet, no-op jobs, 2 tasks of 10,000", JOBS / taken, note="asked 60,000")]
