"""The dashboard's pages over a full queue, beside `/health` in the same run; and what live pages cost the pushes.

`STOKER_BENCH_JOBS` jobs wait and as many have ended, over 200 queues. A time is from the first byte of a request to the
last of its answer, over one connection that stays open. Chromium tells when it paints first, and how much it loads.
Live pages do what a browser does: each holds a stream, and asks for its page when the stream tells it to. What they
cost is counted in the server's CPU time, because the browsers are elsewhere.
"""

import http.client
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import stoker
from benchmarks.measure import PAYLOAD, Row, cpu_seconds
from benchmarks.served import process_and_id
from benchmarks.sizes import SECONDS, sized
from stoker.cli.measuring import settle, times_us
from tests.dashboard.chromium import browser

JOBS = sized(20_000, 400, "STOKER_BENCH_JOBS")
"""As many wait, and as many have ended. The figures of the documentation are with 1,000,000."""
QUEUES = sized(200, 8)
ROUNDS = sized(100, 3)
PAGES = ("/ui/", "/ui/queues", "/ui/jobs", "/ui/jobs?state=waiting", "/ui/queue?name=q7", "/ui/dead")
LIVE = sized(20, 2)
PUSH_S = 2 * SECONDS
PAINTS, PUSHES = sized(5, 1), sized(3, 1)


@contextmanager
def served() -> Iterator[tuple[int, int]]:
    """A server in memory: its HTTP port and its process."""
    command = ("-m", "stoker.cli.main", "serve", "--tcp", "off", "--grpc", "off", "--http", "127.0.0.1:0")
    keeps = ("--set", f"engine.retention.completed_count={JOBS}")
    with process_and_id(*command, *keeps) as found:
        yield found


def fill(url: str) -> None:
    each = max(1, JOBS // QUEUES)
    with stoker.connect(url) as client:
        for number in range(QUEUES):
            queue = f"q{number}"
            for start in range(0, each, 5_000):
                size = min(5_000, each - start)
                client.push_batch(queue, [PAYLOAD] * size)
                settle(client, queue, size)
                client.push_batch(queue, [PAYLOAD] * size)


def asked(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str] = MappingProxyType({})) -> int:
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    assert answer.status == 200, (path, answer.status)
    return len(answer.read())


def p95_ms(connection: http.client.HTTPConnection, path: str) -> float:
    return sorted(times_us(lambda: asked(connection, path), ROUNDS))[ROUNDS * 95 // 100] / 1_000


def pages() -> list[Row]:
    """How long pages take, and what they cost others."""
    return list(_pages())


def _pages() -> Iterator[Row]:
    with served() as (port, server):
        url = f"http://127.0.0.1:{port}"
        fill(url)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        floor = p95_ms(connection, "/health")
        note = f"{JOBS:,} wait, {JOBS:,} have ended, {QUEUES} queues; p95"
        yield Row("/health", floor, unit="ms", note=note)
        for path in PAGES:
            asked(connection, path)
            before = cpu_seconds(server)
            took = p95_ms(connection, path)
            cpu_ms = (cpu_seconds(server) - before) / ROUNDS * 1_000
            yield Row(path, took, floor, "ms", f"{cpu_ms:.1f} ms of the server's CPU time")
        connection.close()
        yield from paints(url)
        yield from pushes(url, port, server)


def paints(url: str) -> Iterator[Row]:
    """When a browser that has nothing in its cache paints, and what it loads for that."""
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as driver:
        driver.get(f"{url}/ui/help")  # the first page waits for the browser to start
        for path in PAGES[:3]:
            seen = [painted(driver, url + path) for _ in range(PAINTS)]
            ms, loaded = sorted(seen)[PAINTS // 2]
            yield Row(f"{path} in Chromium", ms, unit="ms", note=f"to the first paint; {loaded / 1_000:.0f} KB loaded")


def painted(driver: Any, address: str) -> tuple[float, int]:
    driver.execute_cdp_cmd("Network.clearBrowserCache", {})
    driver.get(address)
    script = """
        const paints = performance.getEntriesByName('first-contentful-paint')
        const loaded = performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))
        return paints.length ? [paints[0].startTime, loaded.reduce((sum, one) => sum + one.transferSize, 0)] : null"""
    until = time.monotonic() + 60
    while (found := driver.execute_script(script)) is None:
        assert time.monotonic() < until, f"{address} was not painted"
        time.sleep(0.05)
    return float(found[0]), int(found[1])


def pushes(url: str, port: int, server: int) -> Iterator[Row]:
    """The server's CPU time for each job tells what it takes without pages; what is more with pages, is theirs."""
    alone, watched = list[Pushed](), list[Pushed]()
    for _ in range(PUSHES):
        alone.append(pushed(url, server))
        with watching(port):
            watched.append(pushed(url, server))
    each = median(one.cpu_s / one.jobs for one in alone)
    share = median((one.cpu_s - one.jobs * each) / one.seconds for one in watched)
    yield Row("pushes, no page open", 1 / each, unit="jobs/CPU s")
    note = f"{100 * share:.1f} % of a core is for the pages"
    yield Row(f"pushes, {LIVE} live pages", (1 - share) / each, 1 / each, "jobs/CPU s", note)


class Pushed(NamedTuple):
    jobs: int
    seconds: float
    cpu_s: float
    """Of the server."""


def pushed(url: str, server: int) -> Pushed:
    """Push batches of 100 for a while."""
    with stoker.connect(url) as client:
        jobs, began, before = 0, time.perf_counter(), cpu_seconds(server)
        while time.perf_counter() < began + PUSH_S:
            client.push_batch("live", [PAYLOAD] * 100)
            jobs += 100
        return Pushed(jobs, time.perf_counter() - began, cpu_seconds(server) - before)


@contextmanager
def watching(port: int) -> Iterator[None]:
    """Live pages in another process, open meanwhile."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.dashboard", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    try:
        yield
    finally:
        child.stdin.close()
        child.wait(60)
        child.stdout.close()


def watch_all(port: int) -> None:
    """Open the pages, say so, and watch until the standard input ends."""
    over, opened = threading.Event(), threading.Barrier(LIVE + 1)
    for _ in range(LIVE):
        threading.Thread(target=watch, args=(port, over, opened)).start()
    opened.wait(60)
    print("open", flush=True)
    sys.stdin.read()
    over.set()


def watch(port: int, over: threading.Event, opened: threading.Barrier) -> None:
    stream = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    page = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    stream.request("GET", "/ui/live")
    answer = stream.getresponse()
    opened.wait(60)
    while not over.is_set() and (line := answer.readline()):
        if line == b"event: tick\n" and not over.is_set():
            asked(page, "/ui/", {"HX-Request": "true"})
    stream.close()
    page.close()


if __name__ == "__main__":
    watch_all(int(sys.argv[1]))
