"""The cost of the client itself: loading it, and sending single pushes of many threads or tasks together.

Loading is measured as CPU time in a fresh interpreter, the best of several runs, beside msgspec, which it needs.
"""

import asyncio
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import stoker
import stoker.aio
from benchmarks.durable import place
from benchmarks.measure import PAYLOAD, Row
from benchmarks.served import SECONDS, in_turn, stoker_server
from stoker.cli.measuring import push, rate

IMPORT_MS_MAX = 50
HELP_MS_MAX = 200
THREADS = 16
TASKS = 200


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


def cpu_ms(statement: str, rounds: int = 9) -> float:
    script = f"import time; began = time.process_time()\n{statement}\nprint(time.process_time() - began)"
    run = [sys.executable, "-c", script]
    return min(float(subprocess.run(run, capture_output=True, check=True).stdout) for _ in range(rounds)) * 1000


def whole_ms(module: str, *arguments: str, rounds: int = 9) -> float:
    """CPU time of a command from beginning to end."""
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times) * 1_000


def gathering() -> list[Row]:
    with place() as path, stoker_server(path) as port:
        url = f"tcp://127.0.0.1:{port}"
        alone, gathered = in_turn([lambda: thread_rate(url), lambda: thread_rate(f"{url}?batch_ms=2")])
        lone, together = in_turn([lambda: task_rate(url), lambda: task_rate(f"{url}?batch_ms=2")])
    return [
        Row(f"{THREADS} threads, each push alone", alone),
        Row(f"{THREADS} threads, batch_ms=2", gathered, alone, note="floor: alone"),
        Row(f"{TASKS} tasks, each push alone", lone),
        Row(f"{TASKS} tasks, batch_ms=2", together, lone, note="floor: alone"),
    ]


def thread_rate(url: str) -> float:
    with stoker.connect(url) as client, ThreadPoolExecutor(THREADS) as pool:

        def produce(_: int) -> float:
            return rate(lambda: len(push(client, "gathered", [PAYLOAD])[0]), SECONDS)

        return sum(pool.map(produce, range(THREADS)))


def task_rate(url: str) -> float:
    async def main() -> int:
        count = 0
        async with await stoker.aio.connect(url) as client:
            until = time.perf_counter() + SECONDS

            async def produce() -> None:
                nonlocal count
                while time.perf_counter() < until:
                    await client.push("gathered", PAYLOAD)
                    count += 1

            await asyncio.gather(*(produce() for _ in range(TASKS)))
        return count

    return asyncio.run(main()) / SECONDS
