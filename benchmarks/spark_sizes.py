"""Bytes per event in the queue's log and in each layer of the lake: `python -m benchmarks.spark_sizes`.

The figures are those of docs/pipeline/cluster.md. Neither bytes nor CPU seconds depend much on how busy the machine is;
rates are in `python -m benchmarks spark`. Jobs have random payloads of 100 bytes, 20 names and 5 queues. The second
history is loaded by a warm Spark: its CPU counts, with that of all processes below this one.
"""

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import apsw

from benchmarks.durable import place
from stoker.client.sync import Client

ONE_BY_ONE = int(os.environ.get("STOKER_BENCH_ONE_BY_ONE", "10000"))
IN_BATCHES = int(os.environ.get("STOKER_BENCH_IN_BATCHES", "200000"))
BATCH = 1_000
QUEUES = [f"queue-{number}" for number in range(5)]
LAYERS = {
    "bronze": ("bronze",),
    "silver": ("attempts", "jobs"),
    "gold": ("minutes", "failures", "workers", "schedules"),
}


def one_by_one(client: Client) -> None:
    chance = random.Random(1)
    for number in range(ONE_BY_ONE):
        queue = QUEUES[number % 5]
        client.push(queue, chance.randbytes(100), name=f"kind-{number % 20}", max_attempts=1)
        (job,) = client.pull(queue, 1, worker=f"worker-{number % 8}")
        if number % 50:
            client.ack(job.id, job.token)
        else:
            client.fail(job.id, job.token, f"cannot reach host 10.0.0.{number % 7}", error_class="OSError")


def in_batches(client: Client) -> None:
    chance = random.Random(1)
    for number in range(IN_BATCHES // BATCH):
        queue = QUEUES[number % 5]
        client.push_batch(queue, [chance.randbytes(100) for _ in range(BATCH)], name=f"kind-{number % 20}")
        delivery = client.pull(queue, BATCH, worker=f"worker-{number % 8}")
        client.ack_batch(delivery.ids, delivery.token)


def bytes_of_log(path: Path) -> int:
    """After SQLite has moved everything from its write-ahead files into place."""
    files = list(path.glob("log-*.db"))
    for file in files:
        with apsw.Connection(str(file)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in files)


def measured(name: str, live: Callable[[Client], None]) -> None:
    """Make a history, load it into a lake, and measure both."""
    import stoker
    import stoker.spark
    from stoker.spark.lake import running
    from stoker.spark.lake.layout import Lake

    spark = stoker.spark.session("local[2]", name="sizes", quick=False)
    with place() as path:
        url = f"sqlite:///{path}/data?shards=4"
        with stoker.connect(url) as client:
            live(client)
        before = cpu_s()
        done = running.run(spark, f"{path}/lake", {"url": url})
        used = cpu_s() - before
        log = bytes_of_log(Path(path, "data"))
        print(f"\n{name}: {done.events:,} events in {done.batches} batches")
        print(f"  {'log of the queue':<28} {log / done.events:8.1f} bytes an event, payloads of 100 bytes and all")
        total = 0
        for layer, tables in LAYERS.items():
            sizes = {table: bytes_of_tables(Path(path, "lake", table)) for table in tables}
            total += sum(sizes.values())
            parts = ", ".join(f"{table} {size / done.events:.1f}" for table, size in sizes.items())
            print(f"  {layer:<28} {sum(sizes.values()) / done.events:8.1f} bytes an event ({parts})")
        print(f"  {'lake':<28} {total / done.events:8.1f} bytes an event")
        minutes = Lake(spark, f"{path}/lake").read("minutes")
        assert minutes is not None
        rows = minutes.count()
        row = bytes_of_tables(Path(path, "lake", "minutes")) / rows
        print(f"  {'a row of minutes':<28} {row:8.1f} bytes ({rows} rows)")
        print(f"  {'all layers':<28} {done.events / used:8,.0f} events a second of CPU ({used:.0f} s)")


def cpu_s() -> float:
    """CPU time of this process and all below it: the JVM, its Python processes, and the queue, which runs in
    this one.
    """
    told = subprocess.run(["ps", "-eo", "pid=,ppid=,cputimes="], capture_output=True, text=True, check=True).stdout
    processes = [tuple(map(int, line.split())) for line in told.splitlines()]
    ours = {os.getpid()}
    for pid, parent, _ in sorted(processes):  # children have higher numbers, unless the numbers wrapped around
        if parent in ours:
            ours.add(pid)
    return sum(seconds for pid, _, seconds in processes if pid in ours)


def bytes_of_tables(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.parquet"))


if __name__ == "__main__":
    measured("pushed and settled one by one", one_by_one)
    measured(f"in batches of {BATCH:,}", in_batches)
