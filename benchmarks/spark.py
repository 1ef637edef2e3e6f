"""Spark and the queue on the same 2 cores: a DataFrame into a queue, and executors as workers.

The server is a process of its own, level commit, payloads of 100 bytes; Spark is local[2]. Each part counts what
arrived, and runs once before it is counted: the first use starts Python processes and compiles Spark's code.
"""

from typing import Any

import stoker
from benchmarks.durable import place
from benchmarks.lake import BATCH, JOBS, session
from benchmarks.measure import PAYLOAD, Row, seconds_of
from benchmarks.served import stoker_server


def all_of_it() -> list[Row]:
    spark = session()
    with place() as path, stoker_server(path) as port:
        url = f"tcp://127.0.0.1:{port}"
        rows = pushed(spark, url) + fleet(spark, url)
    return rows


def pushed(spark: Any, url: str) -> list[Row]:
    from pyspark.sql import functions as F

    frame = spark.range(JOBS, numPartitions=2).select(F.lit(PAYLOAD).alias("payload")).localCheckpoint()

    def written(queue: str) -> None:
        frame.write.format("stoker").mode("append").option("url", url).option("queue", queue).save()

    written("warm")
    taken = seconds_of(lambda: written("pushed"))
    with stoker.connect(url) as client:
        assert client.get_counts("pushed").waiting == JOBS
        floor = seconds_of(lambda: client.push_many("plain", [PAYLOAD] * JOBS, batch_jobs=BATCH))
        for queue in ("warm", "pushed", "plain"):
            client.obliterate(queue)
    note = "asked 0.5 of the plain client's batches of 1,000"
    return [Row(f"DataFrame to queue, {JOBS:,} rows", JOBS / taken, JOBS / floor, note=note)]


def fleet(spark: Any, url: str) -> list[Row]:
    import stoker.spark

    done: Any = None

    def run() -> None:
        nonlocal done
        done = stoker.spark.process(spark, "fleet", lambda payloads: [None] * len(payloads), url=url, batch=10_000)

    with stoker.connect(url) as client:
        client.push_batch("fleet", [PAYLOAD] * BATCH)
        run()  # the first use starts Python processes
        client.push_many("fleet", [PAYLOAD] * JOBS, batch_jobs=BATCH)
    taken = seconds_of(run)
    assert done.completed == JOBS
    return [Row("fleet, no-op jobs, 2 tasks of 10,000", JOBS / taken, note="asked 60,000")]
