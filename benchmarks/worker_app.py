"""The jobs of the worker benchmarks, and the process that runs them: `python -m benchmarks.worker_app ROLE ...`.

A role prints one line of JSON when it is done. Handlers count themselves, so that a role knows when all jobs have run;
its time ends when the worker has stopped, which is after the last ack.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.measure import resident_bytes
from stoker.app.app import App
from stoker.worker.worker import loop_factory

app = App()
ran = 0
latencies: list[float] = []


@app.job(queue="plain")
def plain(text: str) -> None:
    global ran
    ran += 1


@app.job(queue="batch", batch=1_000, max_wait="5ms")
def batch(texts: list[str]) -> None:
    global ran
    ran += len(texts)


@app.job(queue="async")
async def coroutine(text: str) -> None:
    global ran
    ran += 1


@app.job(queue="cpu", kind="process")
def cpu(ms: float) -> None:
    """Use this much CPU time, even if others want the core."""
    until = time.thread_time() + ms / 1000
    while time.thread_time() < until:
        pass


@app.job(queue="slow")
async def slow() -> None:
    global ran
    ran += 1
    await asyncio.sleep(3_600)


@app.job(queue="idle")
async def begun(at: float) -> None:
    latencies.append(time.perf_counter() - at)


@app.job(queue="idle-plain")
def begun_plain(at: float) -> None:
    latencies.append(time.perf_counter() - at)


def work(names: list[str], is_done: Callable[[], bool], **settings: Any) -> tuple[float, float]:
    """Run a worker until `is_done`. Returns the seconds until it had stopped, and its CPU seconds."""
    worker = app.worker(jobs=names, **settings)
    began, cpu_began = time.perf_counter(), time.process_time()

    def watch() -> None:
        while not is_done():
            time.sleep(0.002)
        worker.stop()

    threading.Thread(target=watch, daemon=True).start()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(worker.serve())
    return time.perf_counter() - began, time.process_time() - cpu_began


# --- roles -----------------------------------------------------------------------------------------------------------


def noop(name: str, jobs: str) -> dict[str, float]:
    """Run this many no-op jobs."""
    wanted = int(jobs)
    seconds, cpu_s = work([name], lambda: ran >= wanted, threads=1)
    assert ran == wanted, f"{ran} of {wanted} jobs"
    return {"rate": wanted / seconds, "cpu_us": cpu_s / wanted * 1e6}


def processes(count: str, before: str, jobs: str) -> dict[str, float]:
    """CPU work in child processes. The rate excludes starting and stopping."""
    wanted = int(before) + int(jobs)
    samples: list[tuple[float, int]] = []

    def is_done() -> bool:
        completed = app.client.get_stats("cpu").totals.completed
        if completed > int(before):
            samples.append((time.perf_counter(), completed))
        time.sleep(0.1)
        return completed >= wanted

    work(["cpu"], is_done, processes=int(count))
    (began, first), (ended, last), used = samples[0], samples[-1], os.times()
    return {
        "rate": (last - first) / (ended - began),
        "own_cpu": used.user + used.system,
        "children_cpu": used.children_user + used.children_system,
    }


def waiting(jobs: str) -> dict[str, float]:
    """Memory with this many slow jobs in flight."""
    wanted = int(jobs)
    before = resident_bytes()
    found: dict[str, float] = {}

    def is_done() -> bool:
        if ran < wanted:
            return False
        time.sleep(1)
        found.update(bytes=resident_bytes(), before=before)
        return True

    worker = app.worker(jobs=["slow"], concurrency=wanted, drain=0)

    def watch() -> None:
        while not is_done():
            time.sleep(0.01)
        worker.stop_now()

    threading.Thread(target=watch, daemon=True).start()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(worker.serve())
    assert ran == wanted
    return found


def idle(name: str, jobs: str) -> dict[str, list[float]]:
    """For this many jobs, one at a time: how long each took from its push to its handler."""
    wanted = int(jobs)
    print("ready", flush=True)
    work([name], lambda: len(latencies) >= wanted)
    return {"latencies": latencies}


def bare(jobs: str) -> dict[str, list[float]]:
    """The same with a client that waits in a pull, without a worker."""
    from stoker.client.aio import AsyncClient

    async def main() -> None:
        client = AsyncClient(app.broker, owner=False)
        print("ready", flush=True)
        while len(latencies) < int(jobs):
            delivery = await client.pull("idle-bare", 1, wait_ms=20_000)
            now = time.perf_counter()
            latencies.extend(now - msgspec.msgpack.decode(payload)["at"] for payload in delivery.payloads)
            if delivery:
                await client.ack_batch(delivery.ids, delivery.token)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())
    return {"latencies": latencies}


ROLES: dict[str, Callable[..., Any]] = {
    "noop": noop,
    "processes": processes,
    "waiting": waiting,
    "idle": idle,
    "bare": bare,
}

if __name__ == "__main__":
    from benchmarks import worker_app  # under its own name, by which child processes find it

    print(json.dumps(worker_app.ROLES[sys.argv[1]](*sys.argv[2:])), flush=True)
