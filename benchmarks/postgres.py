"""The speed of one seat of a cluster in PostgreSQL, embedded in this process.

Flushing is on. PostgreSQL and this process share the machine, over TCP on loopback, with payloads of 100 bytes. The
floor is from the same run on the same server: binary INSERTs of the same rows, one statement each, over one connection.
Every part checks that the jobs were there.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import stoker
from benchmarks.measure import PAYLOAD, Row, check
from benchmarks.sizes import SECONDS, sized
from stoker.brokers.local import LocalSettings, open_seat
from stoker.cli.measuring import push, quantiles, rate, settle, times_us
from stoker.journal.postgres.database import Database
from stoker.journal.postgres.log_tables import NEW_TABLE
from stoker.journal.postgres.schema import install
from stoker.records.codec import encode_row
from stoker.records.records import JobsPushed
from tests.postgres_server import fresh_database, shared

BATCH = 1_000
DEEP = sized(100_000, 300, "STOKER_BENCH_JOBS")
CALLS = sized(300, 10)
CALLERS = 32
CYCLE_CALLERS, CYCLE_BATCH = 4, 100

INSERT = """
INSERT INTO {s}.{table} SELECT * FROM unnest(%b::int[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
"""


def all_of_it() -> list[Row]:
    return [*batches(), *singles(), *cycles(), *openings()]


@contextmanager
def cluster() -> Iterator[str]:
    """A new cluster with one seat and 16 shards."""
    with fresh_database(shared()) as name:
        url = shared().url(name)
        install(url, shards=16, seats=1)
        yield url


@contextmanager
def seat(url: str) -> Iterator[stoker.Client]:
    with stoker.Client(open_seat(url, 0, "bench", "", LocalSettings())) as client:
        yield client


class Bare:
    """Inserts rows of the log, without a queue and without a fence."""

    def __init__(self, url: str, jobs: int, table: str = "bare") -> None:
        self._database = Database(url)
        self._connection = self._database.connect()
        self._table = table
        self._connection.execute(self._database.sql(NEW_TABLE, table=table))
        self._numbers = count(1)
        self._row = encode_row([JobsPushed(0, "default", "q", 1, (PAYLOAD,) * jobs)])
        self._jobs = jobs

    def insert(self, rows: int = 1) -> int:
        numbers = [next(self._numbers) for _ in range(rows)]
        asked = ([0] * rows, numbers, numbers, [1] * rows, [self._row] * rows)
        self._connection.execute(self._database.sql(INSERT, table=self._table), asked)
        return rows * self._jobs

    def close(self) -> None:
        self._connection.close()


def batches() -> list[Row]:
    payloads = [PAYLOAD] * BATCH
    with cluster() as url, seat(url) as client:
        bare = Bare(url, BATCH)
        one = rate(lambda: len(push(client, "q", payloads)[0]), SECONDS)
        four = together(lambda: len(push(client, "q", payloads)[0]), CYCLE_CALLERS)
        floor = rate(bare.insert, SECONDS)
        jobs = client.get_counts("q").waiting
        while settle(client, "q", BATCH):
            pass
        check(client, jobs)
        bare.close()
    note = "asked 250,000 and 0.4 of the floor: bare binary INSERTs"
    return [
        Row("push, batches of 1,000, one caller", one, floor, note=note),
        Row("push, batches of 1,000, four callers", four, floor, note=note),
    ]


def singles() -> list[Row]:
    with cluster() as url, seat(url) as client:
        bare = Bare(url, 1)
        pushed = together(lambda: bool(client.push("q", PAYLOAD)), CALLERS)
        floor, alone = rate(lambda: bare.insert(CALLERS), SECONDS), rate(bare.insert, SECONDS)
        p50 = quantiles(times_us(lambda: client.push("q", PAYLOAD), CALLS)).p50
        bare.close()
    return [
        Row(f"one push, {CALLERS} callers", pushed, floor, note=f"asked 8,000; floor: INSERTs of {CALLERS} rows"),
        Row("one push, one caller, p50", p50, 1e6 / alone, "us", "floor: an INSERT of one row"),
    ]


def cycles() -> list[Row]:
    """Push, pull and acknowledge 100 jobs, by four callers, each in a queue of its own."""
    payloads = [PAYLOAD] * CYCLE_BATCH
    with cluster() as url, seat(url) as client:
        bare, queues = Bare(url, CYCLE_BATCH), count(1)

        def cycle() -> Callable[[], int]:
            queue = f"q{next(queues)}"

            def once() -> int:
                client.push_batch(queue, payloads)
                return settle(client, queue, CYCLE_BATCH)

            return once

        found = together(cycle, CYCLE_CALLERS, made=True)
        floor = rate(lambda: bare.insert(CYCLE_CALLERS) // 3, SECONDS / 2)
        bare.close()
    note = "asked 40,000; floor: INSERTs of 4 rows, three of them a cycle"
    return [Row("push, pull and ack, batches of 100, four callers", found, floor, note=note)]


def openings() -> list[Row]:
    """How long a seat with many waiting jobs takes to serve, from the moment when it is asked for."""
    rows = []
    for what, size in (("in batches of 1,000", BATCH), ("pushed one by one", 1)):
        with cluster() as url:
            with seat(url) as client:
                if size > 1:
                    client.push_many("q", [PAYLOAD] * DEEP, batch_jobs=size)
                else:
                    together(lambda: bool(client.push("q", PAYLOAD)), CALLERS, jobs=DEEP)
            began = time.perf_counter()
            with seat(url) as client:
                assert len(client.pull("q", 10)) == 10
                took = time.perf_counter() - began
        rows.append(Row(f"a seat with {DEEP:,} waiting jobs {what} serves after", took * 1000, 0, "ms", "asked 2,000"))
    return rows


def together(call: Callable[..., object], callers: int, *, made: bool = False, jobs: int = 0) -> float:
    """Jobs per second of several threads that call again and again; so many jobs, if the number is given."""
    counts, until = [0] * callers, time.perf_counter() + SECONDS

    def run(place: int) -> None:
        own = call() if made else call
        assert callable(own)
        while (counts[place] < jobs // callers) if jobs else (time.perf_counter() < until):
            counts[place] += int(own())

    began = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        for done in [pool.submit(run, place) for place in range(callers)]:
            done.result()
    return sum(counts) / (time.perf_counter() - began)
