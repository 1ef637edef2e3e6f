"""Timing and printing, the same for every benchmark."""

import gc
import os
import time
from collections.abc import Callable

import msgspec

PAYLOAD = b"x" * 100


class Row(msgspec.Struct):
    """One line of the table."""

    what: str
    rate: float
    """Per second; or the plain figure where `unit` says so."""
    floor: float = 0.0
    unit: str = "jobs/s"
    note: str = ""


def best(run: Callable[[], int], rounds: int = 3) -> float:
    """Jobs per second of CPU time, the best of some rounds: noise only ever slows down."""
    rates = []
    for _ in range(rounds):
        gc.collect()
        started = time.process_time()
        jobs = run()
        rates.append(jobs / (time.process_time() - started))
    return max(rates)


def resident_bytes() -> int:
    """Memory that this process holds in RAM."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def print_rows(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    width = max(len(row.what) for row in rows)
    for row in rows:
        figure = f"{row.rate:>14,.0f} {row.unit:<9}"
        floor = f"floor {row.floor:>12,.0f}  ratio {row.rate / row.floor:5.2f}" if row.floor else ""
        print(f"  {row.what:<{width}}  {figure} {floor:<34} {row.note}".rstrip())
