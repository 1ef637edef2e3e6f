"""Timing, checking and printing for every benchmark.

Code shared with `stoker bench` is in `stoker.cli.measuring`: rates, times and quantiles, pushing and settling.
"""

import gc
import os
import time
from collections.abc import Callable

import msgspec

import stoker
from stoker.cli.measuring import settle

PAYLOAD = b"x" * 100


class Row(msgspec.Struct):
    """One line of the table."""

    what: str
    rate: float
    """Per second; or the plain figure where `unit` says so."""
    floor: float = 0.0
    unit: str = "jobs/s"
    note: str = ""


def best(run: Callable[[], int], rounds: int = 3, clock: Callable[[], float] = time.process_time) -> float:
    """Jobs per second of CPU time, the best of several rounds: noise only slows down."""
    rates = []
    for _ in range(rounds):
        gc.collect()
        started = clock()
        jobs = run()
        rates.append(jobs / (clock() - started))
    return max(rates)


def seconds_of(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def cycles(client: stoker.Client, size: int, rounds: int) -> int:
    """Push a uniform batch, pull it and acknowledge it, `rounds` times. Returns the number of jobs."""
    payloads = [PAYLOAD] * size
    for _ in range(rounds):
        client.push_batch("q", payloads)
        settle(client, "q", size)
    return size * rounds


def check(client: stoker.Client, jobs: int, queue: str = "q", before: int = 0) -> None:
    """Check that every job was pushed, delivered once and completed."""
    totals = client.get_stats(queue).totals
    found = (totals.pushed - before, totals.started - before, totals.completed - before)
    assert found == (jobs, jobs, jobs), totals


def resident_bytes(pid: int | str = "self") -> int:
    """Memory that a process holds in RAM."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int | str = "self") -> float:
    """User and system time of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        user, system = stat.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def print_rows(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    width = max(len(row.what) for row in rows)
    for row in rows:
        figure = f"{row.rate:>14,.0f} {row.unit:<9}"
        floor = f"floor {row.floor:>12,.0f}  ratio {row.rate / row.floor:5.2f}" if row.floor else ""
        print(f"  {row.what:<{width}}  {figure} {floor:<34} {row.note}".rstrip())
