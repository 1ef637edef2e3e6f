"""Pushes through the client of one queue, and prints what it took: `driver.py APP bulk|callers|one|idle NUMBER`.

It runs in the environment of that queue. `bulk` prints jobs a second of its bulk push (W1), `callers` single pushes a
second of ten callers (W2): tasks where its client is asynchronous, threads where it is not. `one` prints the median of
single pushes in microseconds (W3). `idle` pushes one job every 5 ms, which notes when its handler began (W6).
"""

import asyncio
import importlib
import inspect
import sys
import threading
import time

from counting import PAYLOAD, STAMP

CALLERS = 10
PAUSE_S = 0.005


def bulk(app, jobs):
    began = time.perf_counter()
    app.push(jobs)
    return jobs / (time.perf_counter() - began)


def callers(app, jobs):
    if inspect.iscoroutinefunction(app.one):
        return asyncio.run(tasks(app, jobs))
    app.one(PAYLOAD)
    began = time.perf_counter()
    threads = [threading.Thread(target=repeat, args=(app, jobs // CALLERS)) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs // CALLERS * CALLERS / (time.perf_counter() - began)


def repeat(app, jobs):
    for _ in range(jobs):
        app.one(PAYLOAD)


async def tasks(app, jobs):
    await app.connect()
    await app.one(PAYLOAD)

    async def caller():
        for _ in range(jobs // CALLERS):
            await app.one(PAYLOAD)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return jobs // CALLERS * CALLERS / (time.perf_counter() - began)


def one(app, jobs):
    times = asyncio.run(paused(app, jobs, 0)) if inspect.iscoroutinefunction(app.one) else timed(app, jobs, 0)
    return sorted(times)[len(times) // 2] * 1e6


def idle(app, jobs):
    if inspect.iscoroutinefunction(app.one):
        asyncio.run(paused(app, jobs, PAUSE_S))
    else:
        timed(app, jobs, PAUSE_S)
    return jobs


def text_for(pause_s):
    return f"{STAMP}{time.perf_counter()!r}" if pause_s else PAYLOAD


def timed(app, jobs, pause_s):
    times = []
    for _ in range(jobs):
        time.sleep(pause_s)
        began = time.perf_counter()
        app.one(text_for(pause_s))
        times.append(time.perf_counter() - began)
    return times


async def paused(app, jobs, pause_s):
    await app.connect()
    times = []
    for _ in range(jobs):
        if pause_s:
            await asyncio.sleep(pause_s)
        began = time.perf_counter()
        await app.one(text_for(pause_s))
        times.append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    found = {"bulk": bulk, "callers": callers, "one": one, "idle": idle}[sys.argv[2]]
    print(found(importlib.import_module(sys.argv[1]), int(sys.argv[3])))
