"""Prints the tables: `python -m benchmarks`, or some of them: `python -m benchmarks batches memory`.

Each part runs five times, and its table shows medians and ranges. A run does not count if other programs used the
machine meanwhile; it is repeated a few times, and the table says so. Every part works in a directory of its own, which
is removed: nothing is left in the current one.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks import SMOKE_VARIABLE
from benchmarks.quiet import LOUD, Watch

if TYPE_CHECKING:
    from benchmarks.measure import Row

ROOT = Path(__file__).parents[1]
RUNS = 5


class Part(msgspec.Struct, frozen=True):
    """One table: what it shows, how it was measured, and the function that measures it once."""

    title: str
    function: str
    """`module:function` below this package."""
    how: str
    runs: int = RUNS
    """Fewer for parts that take minutes."""
    loud_max: int = 2
    """So many runs on a machine that is not quiet, and the part is over; 1 for what may take half an hour."""


MEMORY = "memory://, in one process, one caller"
DISK = "sqlite:///, level commit, in one process, one caller"
TCP = "tcp:// on loopback, level commit, client and server in two processes"
WORKER = f"{TCP}, the worker in a third"
SPARK = "local[2]; tcp:// on loopback, level commit, batches of 1,000"
PARTS = {
    "batches": Part("Uniform batches", "speed:batches", MEMORY),
    "singles": Part("One job at a time", "speed:singles", MEMORY),
    "features": Part("Cost of an option, beside the plain cycle", "speed:features", f"{MEMORY}, one job at a time", 3),
    "flows": Part("Workflows: the same jobs with a graph, beside those without", "flows:fans", f"{MEMORY}, or on disk"),
    "flow-stalls": Part("Workflows: the longest that others wait", "flows:stalls", f"{MEMORY}; CPU time"),
    "memory": Part("Memory", "scale:memory", MEMORY, 3),
    "depth": Part("Deep backlogs", "scale:depth", MEMORY, 3),
    "obstacles": Part("Pull of one ready job behind many that cannot run", "scale:obstacles", MEMORY, 3),
    "pushes": Part("On disk: pushes", "durable:pushes", DISK),
    "cycles": Part("On disk: full cycles", "durable:cycles", DISK),
    "latencies": Part("On disk: one push at a time", "durable:latencies", DISK),
    "flushed": Part("On disk: level fsync", "durable:flushed", "sqlite:///, level fsync, 64 callers, single pushes"),
    "levels": Part("Levels: memory, commit and fsync", "levels:tables", "tcp:// and sqlite:///, each level"),
    "restarts": Part("On disk: restarts", "durable:restarts", "sqlite:///, level commit, a new process", 3),
    "stalls": Part("On disk: the worst while everything happens", "durable:stalls", f"{DISK}, batches of 1,000", 3),
    "backlog": Part("On disk: more jobs than fit into memory", "durable:backlog", f"{DISK}, batches of 1,000", 1),
    "tcp-pushes": Part("Over TCP: pushes", "served:pushes", TCP, 3),
    "tcp-singles": Part("Over TCP: one job at a time, raw frames", "served:singles", TCP),
    "tcp-cycles": Part("Over TCP: pull and ack", "served:cycles", f"{TCP}, through the client"),
    "tcp-crowds": Part("Over TCP: many connections", "served:crowds", f"{TCP}, raw frames"),
    "processes": Part("Over TCP: pushes to one process and to two", "processes:pushes", f"{TCP}, raw frames", 3),
    "client-import": Part("The client: what loading it costs", "client:loading", "CPU time of a fresh interpreter"),
    "client-singles": Part("The client: single pushes", "client:singles", TCP),
    "idle": Part("From a push to its handler, idle", "idle:table", "level commit, one job every 5 ms, p50 and p99", 3),
    "workers": Part("Workers: no-op jobs, acknowledged", "workers:noop", f"{WORKER}; pulls of up to 1,000"),
    "worker-processes": Part("Workers: CPU work in child processes", "workers:processes", WORKER, 3),
    "worker-memory": Part("Workers: memory", "workers:memory", WORKER, 3),
    "worker-loading": Part("Workers: what loading costs", "workers:loading", "CPU time of a fresh interpreter"),
    "growth": Part("How cost grows", "growth:rows", f"{TCP}; one caller, single jobs, through the client", 1),
    "schedules": Part("Schedules", "schedules:all_of_it", f"{TCP}, idle; then memory://", 1),
    "transports": Part("HTTP and gRPC", "transports:tables", "on loopback, level commit, server in another process", 3),
    "dashboard": Part("The dashboard, beside /health", "dashboard:pages", "HTTP on loopback, in memory", 3),
    "redis": Part("The queue in Redis", "redis:all_of_it", "redis:// on loopback, nothing on disk unless told", 1),
    "inbox": Part("The inbox in PostgreSQL", "inbox:all_of_it", "on loopback, flushing on, single rows", 1),
    "postgres": Part("One seat of a cluster in PostgreSQL", "postgres:all_of_it", "on loopback, level fsync", 3),
    "cluster": Part("Two nodes of a cluster in PostgreSQL", "cluster:all_of_it", "on loopback, level fsync", 3),
    "spark": Part("Spark: into a queue, and through it", "spark:all_of_it", SPARK, 1),
    "lake": Part("The lake", "lake:filling", SPARK, 1),
    "lake-lag": Part("The lake: how far a stream is behind", "lake:lag", SPARK, 1),
    "lake-report": Part("The lake: its report", "lake_report:reporting", SPARK, 1),
    "lake-growth": Part("The lake: what grows", "lake_growth:rounds", SPARK, 1, 1),
    "lake-cold": Part("The lake: a small run from nothing", "lake:cold", "sqlite:///", 1),
    "lake-upkeep": Part("The lake: a day expires, and a run with nothing new", "lake:upkeep", "sqlite:///", 1),
}


class Run(NamedTuple):
    """What one run found, and the share of the machine that other programs used meanwhile."""

    others: float
    rows: "list[Row]"


def rows_of(name: str) -> "list[Row]":
    """Measure a part once, in this process."""
    module, _, function = PARTS[name].function.partition(":")
    rows: list[Row] = getattr(import_module(f"benchmarks.{module}"), function)()
    return rows


def run_apart(name: str) -> Run:
    """Measure a part once, in a process of its own: what a run leaves in memory must not help or hurt the next."""
    from benchmarks.measure import Row

    watch = Watch()
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--once", name], stdout=subprocess.PIPE, check=True)
    return Run(watch.others(), msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Row]))


def measure(name: str, runs: int) -> None:
    """Run a part until enough runs were quiet, and print its table."""
    quiet: list[Run] = []
    loud: list[Run] = []
    began = time.perf_counter()
    while len(quiet) < runs and len(loud) < max(PARTS[name].loud_max, runs):
        run = run_apart(name)
        (quiet if run.others < LOUD else loud).append(run)
    loud.sort(key=lambda run: run.others)
    borrowed = loud[: runs - len(quiet)]
    show(name, [run.rows for run in quiet + borrowed], len(loud) - len(borrowed))
    if borrowed:
        print(
            f"  NOT QUIET: other programs used up to {borrowed[-1].others:.0%} of the machine in {len(borrowed)} runs"
        )
    print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)


def show(name: str, runs: "list[list[Row]]", dropped: int = 0) -> None:
    from benchmarks.measure import table

    said = "1 run" if len(runs) == 1 else f"{len(runs)} runs, median and range"
    if dropped:
        said += f"; {dropped} more dropped because other programs used the machine"
    print(f"\n{PARTS[name].title} ({name})\n  payloads of 100 bytes; {PARTS[name].how}; {said}")
    print("\n".join(table(runs)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all by default")
    parser.add_argument("--runs", type=int, help=f"runs of each part; {RUNS} by default, fewer where a run takes long")
    parser.add_argument("--smoke", action="store_true", help="as small as it gets, once: only whether it runs")
    parser.add_argument("--once", metavar="PART", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        sys.stdout.buffer.write(msgspec.json.encode(rows_of(given.once)) + b"\n")
        return
    unknown = set(given.names) - PARTS.keys()
    if unknown:
        sys.exit(f"unknown benchmarks: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if given.smoke:
        os.environ[SMOKE_VARIABLE] = "1"
    os.environ.pop("STOKER_URL", None)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.chdir(folder)
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        for name in given.names or PARTS:
            if given.smoke:
                show(name, [rows_of(name)])
            else:
                measure(name, given.runs or PARTS[name].runs)
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
