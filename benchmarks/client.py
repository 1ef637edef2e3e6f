"""The cost of the client itself: loading it, and single pushes of one caller and of many.

Loading is measured as CPU time in a fresh interpreter, the best of several runs, beside msgspec, which it needs.
"""

import asyncio
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import uvloop

import stoker
import stoker.aio
from benchmarks.measure import PAYLOAD, Row
from benchmarks.served import CALLS, LENGTH, frame, latencies_us, three_servers
from benchmarks.sizes import SECONDS, sized
from stoker.brokers.connect import open_broker
from stoker.cli.measuring import Quantiles, push, quantiles, rate, times_us
from stoker.model import commands as c

T = TypeVar("T")

IMPORT_MS_MAX = 50
HELP_MS_MAX = 200
THREADS = 10
CALLERS = (10, 100, 1_000)
STARTS = sized(5, 1)

app = stoker.App()


@app.job(queue="q")
def stored(text: str) -> None:
    """A job that is only pushed."""


def loading() -> list[Row]:
    first, others = cpu_ms("import msgspec"), "of it msgspec alone"
    return [
        Row("import stoker", cpu_ms("import stoker"), unit="ms", note=f"at most {IMPORT_MS_MAX}; {others} {first:.0f}"),
        Row("and connect to tcp://", cpu_ms("import stoker; stoker.connect('tcp://127.0.0.1:1')"), unit="ms"),
        Row(
            "stoker --help",
            whole_ms("stoker.cli.main", "--help"),
            unit="ms",
            note=f"at most {HELP_MS_MAX}, Python's start included",
        ),
    ]


def cpu_ms(statement: str, rounds: int = STARTS) -> float:
    script = f"import time; began = time.process_time()\n{statement}\nprint(time.process_time() - began)"
    run = [sys.executable, "-c", script]
    return min(float(subprocess.run(run, capture_output=True, check=True).stdout) for _ in range(rounds)) * 1000


def whole_ms(module: str, *arguments: str, rounds: int = STARTS) -> float:
    """CPU time of a command from beginning to end."""
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times) * 1_000


# --- single pushes ---------------------------------------------------------------------------------------------------


def singles() -> list[Row]:
    """One push a call, through the clients that users have; beside raw frames and a bare echo of them."""
    with three_servers() as (port, _, echo):
        url, request = f"tcp://127.0.0.1:{port}", frame(c.Push("q", PAYLOAD))
        raw, bare = (quantiles(latencies_us(which, request)) for which in (port, echo))
        with stoker.connect(url) as client:
            plain = quantiles(times_us(lambda: client.push("q", PAYLOAD), CALLS))
        waiting = asyncio_run(async_times_us(url))
        rows = [
            Row("1 caller, raw frames, p50", raw.p50, bare.p50, "us", "floor: a bare echo"),
            Row("1 caller, sync client, p50", plain.p50, raw.p50, "us", "asked <= 1.25 of raw frames, the floor"),
            Row("1 caller, async client, p50", waiting.p50, raw.p50, "us", "asked <= 1.25 of raw frames, the floor"),
        ]
        for callers in CALLERS:
            floor = asyncio_run(echo_rate(echo, request, callers))
            found = asyncio_run(push_rate(url, callers))
            note = "asked 0.5 of a bare echo by an asyncio client that awaits one future a call"
            rows.append(Row(f"{callers:,} callers, async client", found, floor, "pushes/s", note))
            if callers == THREADS:
                threads = thread_rate(url)
                rows.append(Row(f"{callers} callers, sync client, threads", threads, floor, "pushes/s"))
        rows += app_push(url)
        with stoker.connect(url) as client:
            assert client.get_counts("q").waiting > 4 * CALLS
    return rows


def app_push(url: str) -> list[Row]:
    """CPU time of this process for a push of an app's job (arguments checked, encoded) and of a bare one."""
    text = PAYLOAD.decode()
    with stoker.connect(url) as client:
        bare = cpu_us(lambda: client.push("q", PAYLOAD))
    app.use(open_broker(url))
    try:
        own = cpu_us(lambda: stored.push_sync(text))
    finally:
        app.broker.close()
        app.use(None)
    return [Row("push of an app's job, CPU", own, bare, "us", "floor: the bare client; asked at most 10 us more")]


def cpu_us(call: Callable[[], object]) -> float:
    call()
    began = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - began) * 1e6 / CALLS


def asyncio_run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def async_times_us(url: str) -> Quantiles:
    times = []
    async with await stoker.aio.connect(url) as client:
        for _ in range(CALLS):
            began = time.perf_counter()
            await client.push("q", PAYLOAD)
            times.append((time.perf_counter() - began) * 1e6)
    return quantiles(times)


def thread_rate(url: str) -> float:
    with stoker.connect(url) as client, ThreadPoolExecutor(THREADS) as pool:

        def produce(_: int) -> float:
            return rate(lambda: len(push(client, "q", [PAYLOAD])[0]), SECONDS)

        return sum(pool.map(produce, range(THREADS)))


async def push_rate(url: str, callers: int) -> float:
    async with await stoker.aio.connect(url) as client:
        return await calling(callers, lambda: client.push("q", PAYLOAD))


async def echo_rate(port: int, request: bytes, callers: int) -> float:
    transport, peer = await asyncio.get_running_loop().create_connection(EchoClient, "127.0.0.1", port)
    found = await calling(callers, lambda: peer.ask(request))
    transport.close()
    return found


class EchoClient(asyncio.Protocol):
    """One connection; each call sends a frame and awaits one future. Answers come in the order of the requests."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._got = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[None]:
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        self._transport.write(request)
        return waiting

    def data_received(self, data: bytes) -> None:
        got, position = self._got + data, 0
        while len(got) - position >= 4 and len(got) - position - 4 >= (size := LENGTH.unpack_from(got, position)[0]):
            position += 4 + size
            self._waiting.popleft().set_result(None)
        self._got = got[position:]


async def calling(callers: int, call: Callable[[], Awaitable[object]]) -> float:
    """Calls a second of several tasks, each with one call at a time."""
    until, count = time.perf_counter() + SECONDS, 0

    async def repeat() -> None:
        nonlocal count
        while time.perf_counter() < until:
            await call()
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*(repeat() for _ in range(callers)))
    return count / (time.perf_counter() - began)
