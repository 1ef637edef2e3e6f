"""What a level costs: throughput and p99 of `memory`, `commit` and `fsync`, beside the disk's own fdatasync.

One client, then ten callers, then batches of 1,000, each at every level: in the process of the queue (`sqlite:///`) and
over TCP. The reply of each push says which level was reached, and every push is checked.
"""

import asyncio
import os
import time

import stoker
import stoker.aio
from benchmarks.client import asyncio_run
from benchmarks.durable import FLUSHES, place
from benchmarks.measure import PAYLOAD, Row
from benchmarks.served import stoker_server
from benchmarks.sizes import SECONDS
from stoker.cli.measuring import Quantiles, push, quantiles, rate, times_us
from stoker.model.replies import LEVELS, Level

CALLERS = 10
BATCH = 1_000


def tables() -> list[Row]:
    with place() as path, place() as data, stoker_server(data) as port:
        disk = disk_us(path)
        rows = [
            Row("the disk: write and fdatasync of 4 KB, p50", disk.p50, unit="us"),
            Row("the disk: write and fdatasync of 4 KB, p99", disk.p99, unit="us"),
        ]
        for where, url in (("embedded", f"sqlite:///{path}/data"), ("over TCP", f"tcp://127.0.0.1:{port}")):
            for level in LEVELS:
                rows += rows_of(where, url, level, disk.p50)
    return rows


def disk_us(path: str) -> Quantiles:
    with open(f"{path}/flushed", "wb") as file:

        def flush() -> None:
            os.pwrite(file.fileno(), PAYLOAD * 40, 0)
            os.fdatasync(file.fileno())

        return quantiles(times_us(flush, FLUSHES))


def rows_of(where: str, url: str, level: Level, disk_us: float) -> list[Row]:
    rows = []
    for what, size in (("one caller, single pushes", 1), (f"one caller, batches of {BATCH:,}", BATCH)):
        times: list[float] = []
        with stoker.connect(url) as client:

            def step(client: stoker.Client = client, size: int = size) -> int:
                ids, reached = push(client, "q", [PAYLOAD] * size, level)
                assert reached == level, reached
                return len(ids)

            found = rate(step, SECONDS, times_us=times)
        rows += pair(f"{where}, {level}, {what}", found, times, disk_us if level == "fsync" else 0)
    found, times = asyncio_run(ten_callers(url, level))
    return rows + pair(f"{where}, {level}, {CALLERS} callers, single pushes", found, times, 0)


def pair(what: str, found: float, times: list[float], disk_us: float) -> list[Row]:
    note = f"the disk alone takes {disk_us:.0f} us" if disk_us else ""
    return [Row(what, found), Row(f"{what}, p99", quantiles(times).p99, unit="us", note=note)]


async def ten_callers(url: str, level: Level) -> tuple[float, list[float]]:
    """Tasks of the async client, each with one push at a time."""
    times: list[float] = []
    async with await stoker.aio.connect(url) as client:
        until = time.perf_counter() + SECONDS

        async def produce() -> None:
            while (began := time.perf_counter()) < until:
                assert (await client.push("q", PAYLOAD, durability=level)).level == level
                times.append((time.perf_counter() - began) * 1e6)

        began = time.perf_counter()
        await asyncio.gather(*(produce() for _ in range(CALLERS)))
        return len(times) / (time.perf_counter() - began), times
