"""Timing, checking and printing for every benchmark.

Code shared with `stoker bench` is in `stoker.cli.measuring`: rates, times and quantiles, pushing and settling.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

import stoker
from stoker.cli.measuring import settle

PAYLOAD = b"x" * 100


class Row(msgspec.Struct):
    """One line of the table, as one run found it."""

    what: str
    rate: float
    """Per second; or the plain figure where `unit` says so."""
    floor: float = 0.0
    unit: str = "jobs/s"
    note: str = ""


def rate_of(run: Callable[[], int], clock: Callable[[], float] = time.process_time) -> float:
    """Jobs per second of CPU time, or of another clock."""
    gc.collect()
    started = clock()
    jobs = run()
    return jobs / max(clock() - started, 1e-9)


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


# --- the table -------------------------------------------------------------------------------------------------------


def table(runs: Sequence[Sequence[Row]]) -> list[str]:
    """The lines of several runs: the median of each figure, and its range where there is more than one run."""
    kept = list(zip(*runs, strict=True))
    width = max(len(rows[0].what) for rows in kept)
    return [line(rows, width) for rows in kept]


def line(rows: Sequence[Row], width: int) -> str:
    first = rows[0]
    figure = f"{spread([row.rate for row in rows]):>30} {first.unit:<9}"
    floor = ""
    if first.floor:
        ratios = sorted(row.rate / row.floor for row in rows)
        among = f" ({ratios[0]:.2f}-{ratios[-1]:.2f})" if len(ratios) > 1 else ""
        middle = short(statistics.median(row.floor for row in rows))
        floor = f"floor {middle:>9}  ratio {statistics.median(ratios):5.2f}{among}"
    return f"  {first.what:<{width}}  {figure} {floor:<46} {rows[-1].note}".rstrip()


def spread(figures: Sequence[float]) -> str:
    """The median, and the lowest and highest figure."""
    median = short(statistics.median(figures))
    return median if len(figures) == 1 else f"{median} ({short(min(figures))}-{short(max(figures))})"


def short(figure: float) -> str:
    """Three digits are enough: no run is more exact than that."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:,.1f}" if abs(figure) >= 10 else f"{figure:,.2f}"
