"""What grows with a lake: generated events in rounds, and after each round what the lake, Spark and the report cost.

Five million events by default; `STOKER_BENCH_LAKE_EVENTS=100000000` for a hundred million. The events of a round are
pushed, delivered and completed in a real server, then taken in, so that the queue's log never has to keep them all.
Every round prints its figures to stderr; the table has the first and the last. What the figures mean for ten billion
events is in docs/pipeline/growth.md.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import stoker
from benchmarks.durable import place
from benchmarks.lake import BATCH, history, session
from benchmarks.measure import PAYLOAD, Row, seconds_of, table
from benchmarks.served import server_pid, stoker_server
from benchmarks.sizes import sized
from stoker.cli.main import stoker as command

EVENTS = sized(5_000_000, 6_000, "STOKER_BENCH_LAKE_EVENTS")
ROUND_EVENTS_MAX = 10_000_000
"""A third of the GiB that the queue's log keeps by default."""
ROUNDS = max(sized(5, 2), -(-EVENTS // ROUND_EVENTS_MAX))
JOBS = EVENTS // ROUNDS // 3 // BATCH * BATCH
"""Of a round; each makes three events."""
QUEUES, NAMES, WORKERS = 20, 50, 16


def rounds() -> list[Row]:
    """Rows for the first and the last round: what differs between them grows."""
    from stoker.spark.lake import running

    spark, found, began = session(), [], time.perf_counter()
    with place() as path, stoker_server(path) as port:
        url, server, lake = f"tcp://127.0.0.1:{port}", server_pid(port), f"{path}/lake"
        events = history(url, BATCH)
        for name in (f"{path}/warm", lake):  # the first compiles Spark's code
            running.run(spark, name, {"url": url})
            report_seconds(name)
        for number in range(1, ROUNDS + 1):
            made_s = seconds_of(lambda: generate(url, JOBS))
            taken_s = seconds_of(lambda: running.run(spark, lake, {"url": url}))
            events += 3 * JOBS
            rows = told(spark, server, lake, events)
            rows[:0] = [
                Row("jobs pushed, pulled and completed", JOBS / made_s, note="this round"),
                Row("taken in", 3 * JOBS / taken_s, unit="events/s", note="asked 100,000; all layers, this round"),
            ]
            progress(f"round {number} of {ROUNDS}, {events:,} events, {time.perf_counter() - began:,.0f} s", rows)
            if number in (1, ROUNDS):
                found += [labelled(row, f"{events:,} events") for row in rows]
    return found


def progress(title: str, rows: list[Row]) -> None:
    print(f"\n{title}", *table([rows]), sep="\n", file=sys.stderr, flush=True)


def labelled(row: Row, about: str) -> Row:
    return Row(f"{row.what}, {about}", row.rate, row.floor, row.unit, row.note)


def generate(url: str, jobs: int) -> None:
    """Jobs of many queues, kinds and workers, each pushed, started and completed: three events."""
    with stoker.connect(url) as client:
        for number in range(jobs // BATCH):
            queue = f"queue-{number % QUEUES}"
            client.push_batch(queue, [PAYLOAD] * BATCH, name=f"kind-{number % NAMES}")
            delivery = client.pull(queue, BATCH, worker=f"worker-{number % WORKERS}")
            client.ack_batch(delivery.ids, delivery.token)


def told(spark: Any, server: int, lake: str, events: int) -> list[Row]:
    from stoker.spark.lake.layout import Tables
    from stoker.spark.lake.upkeep import status

    rows_of = {one["layer"]: one["rows"] for one in status(Tables(lake))["layers"]}
    assert (rows_of["bronze"], rows_of["jobs"]) == (events, events // 3), rows_of
    java = spark.sparkContext._gateway.proc.pid
    rows = [
        Row("report", report_seconds(lake), unit="s", note="asked <= 5 on 10,000,000 events"),
        Row("JVM, most", peak_bytes(java) / 1e6, unit="MB"),
        Row(
            "Spark's Python processes, most", sum(map(peak_bytes, children(java))) / 1e6, unit="MB", note="all together"
        ),
        Row("driver's Python, most", peak_bytes("self") / 1e6, unit="MB"),
        Row("server, most", peak_bytes(server) / 1e6, unit="MB"),
        Row("queue's files", bytes_of(Path(lake).parent / "data") / 1e6, unit="MB"),
    ]
    for name, (files, size) in sorted(sizes_of(Path(lake)).items()):
        note = f"{files:,} files" + (f", {rows_of[name]:,} rows" if name in rows_of else "")
        rows.append(Row(name, size / 1e6, unit="MB", note=note))
    return rows


def report_seconds(lake: str) -> float:
    shown = []
    words = ["pipeline", "report", "--lake", lake, "--json"]
    seconds = seconds_of(lambda: shown.append(CliRunner().invoke(command, words, catch_exceptions=False)))
    assert shown[0].exit_code == 0, shown[0].output
    return seconds


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


def bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def children(process: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, listed.read_text().split()):
            yield child
            yield from children(child)


def peak_bytes(process: int | str) -> int:
    """0 if it has just ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
