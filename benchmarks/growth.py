"""How cost grows: with waiting jobs, queues, connections and shards, and with time.

Every point is measured over TCP, level `commit`, payloads of 100 bytes, through the client: a fresh server is filled,
and then single pushes, and a pull and an ack of one job, are timed. The churn pushes, pulls and acknowledges without a
pause and looks at memory, directory and times again and again; `STOKER_BENCH_CHURN_S` says for how long.

Every point is told at once. With `STOKER_BENCH_PICTURES=docs/images`, the curves are drawn there, as SVG.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

import stoker
from benchmarks import PICTURES_VARIABLE
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row, resident_bytes, table
from benchmarks.served import CountingSocket, frame, server_pid, stoker_server
from benchmarks.sizes import IS_SMOKE, sized
from stoker.cli.measuring import push, quantiles, settle, times_us
from stoker.model import commands as c

CALLS = sized(1_000, 5)
BATCH = 1_000
SOME = sized(100_000, 1_000)
"""Jobs that wait where something else grows."""
CHURN_S = sized(30, 1, "STOKER_BENCH_CHURN_S")
LOOKS, ROWS = sized(30, 2), 6
"""How often the churn is looked at, and about how many of these points are in the table."""
STEPS: dict[str, tuple[int, ...]] = {
    "waiting jobs": (1_000, 2_000) if IS_SMOKE else (10_000, 100_000, 1_000_000, 10_000_000),
    "queues": (1, 10) if IS_SMOKE else (1, 10, 100, 1_000, 10_000),
    "connections": (1, 5) if IS_SMOKE else (1, 10, 100, 1_000),
    "shards": (1, 4) if IS_SMOKE else (1, 4, 16, 64),
}
MORE = ("--set", "server.connections_per_second_max=100000")
MIB = 1 << 20


class Point(msgspec.Struct):
    """What was measured at one size, or at one moment of the churn."""

    what: str
    size: float
    push_p50: float
    push_p99: float
    cycle_p50: float
    cycle_p99: float
    rss_mib: float
    directory_mib: float


@contextmanager
def served(shards: int = 16) -> Iterator[tuple[stoker.Client, int, int, str]]:
    """A fresh server: a client, its port, its process and its directory."""
    with (
        place() as path,
        stoker_server(path, "--set", f"shards={shards}", *MORE) as port,
        stoker.connect(f"tcp://127.0.0.1:{port}") as client,
    ):
        yield client, port, server_pid(port), path


def looked(what: str, size: float, client: stoker.Client, pid: int, path: str, queue: str) -> Point:
    pushes = quantiles(times_us(lambda: client.push(queue, PAYLOAD), CALLS))
    cycles = quantiles(times_us(lambda: settle(client, queue, 1), CALLS))
    return Point(what, size, *pushes, *cycles, resident_bytes(pid) / MIB, directory_bytes(path) / MIB)


def directory_bytes(path: str) -> int:
    found = 0
    for file in Path(path).rglob("*"):
        try:
            found += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue  # retention has removed it meanwhile
    return found


def fill(client: stoker.Client, jobs: int, queues: int = 1) -> None:
    """Spread jobs over queues, in batches."""
    each = max(1, jobs // queues)
    for number in range(queues):
        for first in range(0, each, BATCH):
            client.push_batch(f"q{number}", [PAYLOAD] * min(BATCH, each - first))


def by_jobs(size: int) -> Point:
    with served() as (client, _, pid, path):
        fill(client, size)
        return looked("waiting jobs", size, client, pid, path, "q0")


def by_queues(size: int) -> Point:
    with served() as (client, _, pid, path):
        fill(client, SOME, size)
        return looked("queues", size, client, pid, path, f"q{size - 1}")


def by_connections(size: int) -> Point:
    """The other connections are idle, and have asked for something once."""
    with served() as (client, port, pid, path), ExitStack() as stack:
        fill(client, SOME)
        for _ in range(size - 1):
            stack.enter_context(closing(CountingSocket(port))).ask(frame(c.ListQueues()))
        return looked("connections", size, client, pid, path, "q0")


def by_shards(size: int) -> Point:
    with served(size) as (client, _, pid, path):
        fill(client, SOME, 64)
        return looked("shards", size, client, pid, path, "q7")


MEASURE: dict[str, Callable[[int], Point]] = {
    "waiting jobs": by_jobs,
    "queues": by_queues,
    "connections": by_connections,
    "shards": by_shards,
}


def churn() -> Iterator[Point]:
    """Push, pull and acknowledge batches without a pause, and look at it in between."""
    with served() as (client, _, pid, path):
        began = time.perf_counter()
        for look in range(1, LOOKS + 1):
            while time.perf_counter() - began < CHURN_S * look / LOOKS:
                push(client, "q0", [PAYLOAD] * BATCH)
                settle(client, "q0", BATCH)
            yield looked("seconds of churn", round(time.perf_counter() - began, 1), client, pid, path, "q0")


def rows_of(point: Point) -> Row:
    note = (
        f"push p99 {point.push_p99:,.0f} us; pull + ack p50 {point.cycle_p50:,.0f}, p99 {point.cycle_p99:,.0f} us;"
        f" RSS {point.rss_mib:,.0f} MiB, directory {point.directory_mib:,.0f} MiB"
    )
    return Row(f"{point.size:>12,.0f} {point.what}, one push, p50", point.push_p50, unit="us", note=note)


def sizes() -> list[Row]:
    return [rows_of(point) for point in told(MEASURE[what](size) for what in STEPS for size in STEPS[what])]


def times() -> list[Row]:
    found = told(churn())
    return [rows_of(point) for point in found[:: max(1, len(found) // ROWS)]]


def told(points: Iterable[Point]) -> list[Point]:
    """All of them. Each is printed when it comes, because some take minutes; then the curves are drawn if wanted."""
    found = []
    for point in points:
        print(*table([[rows_of(point)]]), file=sys.stderr, flush=True)
        found.append(point)
    if folder := os.environ.get(PICTURES_VARIABLE):
        draw(found, Path(folder))
    return found


# --- the curves ------------------------------------------------------------------------------------------------------


def draw(found: list[Point], folder: Path) -> None:
    """One picture for each thing that grows: times on the left, memory and directory on the right."""
    from matplotlib import pyplot as plt

    from stoker.spark.report.charts import AMBER, BLUE, GREEN, RED, STYLE

    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        for what in dict.fromkeys(point.what for point in found):
            those = [point for point in found if point.what == what]
            sizes = [point.size for point in those]
            figure, (times, space) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
            lines = {"one push": ("push_p50", "push_p99", BLUE), "pull + ack": ("cycle_p50", "cycle_p99", GREEN)}
            for label, (middle, high, colour) in lines.items():
                times.plot(sizes, [getattr(point, middle) for point in those], color=colour, label=f"{label}, p50")
                late = [getattr(point, high) for point in those]
                times.plot(sizes, late, color=colour, linestyle=":", label=f"{label}, p99")
            space.plot(sizes, [point.rss_mib for point in those], color=RED, label="memory of the server")
            space.plot(sizes, [point.directory_mib for point in those], color=AMBER, label="directory")
            for axes, title in ((times, "us"), (space, "MiB")):
                axes.set_title(title)
                axes.set_xlabel(what)
                axes.set_ylim(bottom=0)
                axes.legend(fontsize=7)
                if what in STEPS:
                    axes.set_xscale("log")
            figure.savefig(folder / f"growth-{what.replace(' ', '-')}.svg", metadata={"Date": None})
            plt.close(figure)
