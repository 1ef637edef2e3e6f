"""What grows with a lake: generated events in rounds, and after each round what the lake, Spark and the report cost.

Five million events by default; `STOKER_BENCH_LAKE_EVENTS=100000000` for a hundred million. The events of a round are
pushed, delivered and completed in a real server, then taken in, so that the queue's log never has to keep them all.
What the figures mean for ten billion events is in docs/pipeline/growth.md.
"""

from pathlib import Path
from typing import Any

from click.testing import CliRunner

import stoker
from benchmarks.durable import place
from benchmarks.lake import BATCH, history, session
from benchmarks.measure import PAYLOAD, Row, seconds_of
from benchmarks.served import server_pid, stoker_server
from benchmarks.sizes import sized
from stoker.cli.main import stoker as command

EVENTS = sized(5_000_000, 6_000, "STOKER_BENCH_LAKE_EVENTS")
ROUNDS = sized(5, 2)
QUEUES, NAMES, WORKERS = 20, 50, 16


def rounds() -> list[Row]:
    """Rows for the first and the last round: what differs between them grows."""
    from stoker.spark.lake import running

    spark, found = session(), []
    with place() as path, stoker_server(path) as port:
        url, server, lake = f"tcp://127.0.0.1:{port}", server_pid(port), f"{path}/lake"
        history(url, BATCH)
        running.run(spark, f"{path}/warm", {"url": url})  # compiles Spark's code
        running.run(spark, lake, {"url": url})
        taken = 0
        for number in range(ROUNDS):
            generate(url, EVENTS // ROUNDS // 3)
            seconds = seconds_of(lambda: running.run(spark, lake, {"url": url}))
            before, taken = taken, sum(read_ends(url))
            if number in (0, ROUNDS - 1):
                found += told(spark, server, lake, EVENTS // ROUNDS / seconds, (number + 1) * EVENTS // ROUNDS)
            assert taken > before
    return found


def generate(url: str, jobs: int) -> None:
    """Jobs of many queues, kinds and workers, each pushed, started and completed: three events."""
    with stoker.connect(url) as client:
        for number in range(jobs // BATCH):
            queue = f"queue-{number % QUEUES}"
            client.push_batch(queue, [PAYLOAD] * BATCH, name=f"kind-{number % NAMES}")
            delivery = client.pull(queue, BATCH, worker=f"worker-{number % WORKERS}")
            client.ack_batch(delivery.ids, delivery.token)


def read_ends(url: str) -> list[int]:
    with stoker.connect(url) as client:
        first = client.read_records(0, after=2**52, bytes_max=1)
        return [client.read_records(shard, after=2**52, bytes_max=1).last for shard in range(first.shards)]


def told(spark: Any, server: int, lake: str, rate: float, events: int) -> list[Row]:
    about = f"{events:,} events"
    report = ["pipeline", "report", "--lake", lake, "--json"]
    shown = []
    seconds = seconds_of(lambda: shown.append(CliRunner().invoke(command, report, catch_exceptions=False)))
    assert shown[0].exit_code == 0, shown[0].output
    sizes = sizes_of(Path(lake))
    java = spark.sparkContext._gateway.proc.pid
    rows = [
        Row(f"taken in, {about}", rate, unit="events/s", note="asked 100,000, of all layers, in this round"),
        Row(f"report, {about}", seconds, unit="s", note="asked <= 5 on 10,000,000"),
        Row(f"JVM, most, {about}", peak_bytes(java) / 1e6, unit="MB"),
        Row(f"server, most, {about}", peak_bytes(server) / 1e6, unit="MB"),
    ]
    for name, (files, size) in sorted(sizes.items()):
        rows.append(Row(f"{name}, {about}", size / 1e6, unit="MB", note=f"{files:,} files"))
    return rows


def sizes_of(lake: Path) -> dict[str, tuple[int, int]]:
    """Files and bytes of each directory of a lake; the logs of its tables apart."""
    found: dict[str, tuple[int, int]] = {}
    for file in lake.rglob("*"):
        parts = file.relative_to(lake).parts
        if file.is_file() and len(parts) > 1:
            name = "logs of tables" if "_delta_log" in parts else parts[0]
            files, size = found.get(name, (0, 0))
            found[name] = files + 1, size + file.stat().st_size
    return found


def peak_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
