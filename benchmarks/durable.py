"""The speed of the log on disk: each figure beside a floor that only encodes and commits the same bytes.

It measures wall time, because the disk counts. Every part checks that the work was really done; those about restarts
open the data directory in a new process.
"""

import asyncio
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import apsw
import msgspec

import stoker
from benchmarks import measure
from benchmarks.measure import PAYLOAD, Row, rate_of, resident_bytes
from benchmarks.sizes import IS_SMOKE, sized
from stoker.aio import connect as connect_async
from stoker.brokers.local import LocalSettings
from stoker.brokers.shared_directory import SharedBroker
from stoker.cli.measuring import quantiles, times_us
from stoker.journal.directory_store import DirectoryStore
from stoker.journal.sqlite import JournalSettings

MIB = 1024 * 1024
FLUSHES = sized(200, 5)
BATCHES = sized(1_000, 3)
DIFFERENT = sized(200_000, 300)
BACKLOG = sized(10_000_000, 5_000, "STOKER_BENCH_BACKLOG")
STALLS_S = sized(20, 1)


@contextmanager
def place() -> Iterator[str]:
    """A directory on the disk under test (TMPDIR says which), removed afterwards."""
    path = tempfile.mkdtemp(prefix="stoker-bench-")
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def client(path: str, settings: LocalSettings | None = None) -> Iterator[stoker.Client]:
    opened = stoker.connect(f"sqlite:///{path}/data", settings=settings)
    try:
        yield opened
    finally:
        opened.close()


def wall_rate(run: Callable[[], int]) -> float:
    """By wall time: waiting for the disk counts."""
    return rate_of(run, clock=time.perf_counter)


class BareLog:
    """The floor: one table, the same pragmas, one insert and commit a turn."""

    def __init__(self, path: str) -> None:
        self.connection = apsw.Connection(f"{path}/bare.db")
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("wal_autocheckpoint", 0)
        self.connection.pragma("synchronous", 0)
        self.connection.execute("CREATE TABLE log (position INTEGER PRIMARY KEY, data BLOB)")
        self.cursor = self.connection.cursor()
        self.encode = msgspec.msgpack.Encoder().encode
        self.number = 0

    def commit(self, value: object) -> None:
        self.number += 1
        self.cursor.execute("INSERT INTO log VALUES (?, ?)", (self.number, self.encode(value)))


# --- throughput --------------------------------------------------------------------------------------


def pushes() -> list[Row]:
    sizes = ((10_000, 60), (1_000, 400), (100, 1_500), (10, 4_000))
    return [push_row(size, sized(rounds, 2)) for size, rounds in sizes]


def push_row(size: int, rounds: int) -> Row:
    payloads = [PAYLOAD] * size
    with place() as path:
        with client(path) as queue:
            rate = wall_rate(lambda: repeated(rounds, size, lambda: queue.push_batch("q", payloads)))
            waiting = queue.get_counts("q").waiting
            assert waiting == rounds * size, waiting
        bare = BareLog(path)
        floor = wall_rate(lambda: repeated(rounds, size, lambda: bare.commit(payloads)))
    return Row(f"push, uniform batches of {size:,}", rate, floor)


def repeated(rounds: int, size: int, call: Callable[[], object]) -> int:
    """Call `rounds` times for `size` jobs each. Returns the number of jobs."""
    for _ in range(rounds):
        call()
    return rounds * size


def cycles() -> list[Row]:
    return [cycle_row(size, sized(rounds, 2)) for size, rounds in ((10_000, 40), (1_000, 300), (100, 1_000))]


def cycle_row(size: int, rounds: int) -> Row:
    payloads = [PAYLOAD] * size
    with place() as path, client(path) as queue:
        rate = wall_rate(lambda: measure.cycles(queue, size, rounds))
        measure.check(queue, rounds * size)
        bare = BareLog(path)

        def commit() -> None:
            bare.commit(payloads)
            bare.commit([1, 2, 3])
            bare.commit([1, 2, 3])

        floor = wall_rate(lambda: repeated(rounds, size, commit))
    return Row(f"push + pull + ack, uniform batches of {size:,}", rate, floor)


def latencies() -> list[Row]:
    """One push at a time: the times below which half of them stay, and 99 of 100."""
    pushes = sized(20_000, 100)
    with place() as path, client(path) as queue:
        queue.push("q", PAYLOAD)
        ours = quantiles(times_us(lambda: queue.push("q", PAYLOAD), pushes))
        assert queue.get_counts("q").waiting == pushes + 1
        bare = BareLog(path)
        record = ["pushed", 1, "default", "q", 64, 100, PAYLOAD]
        floor = quantiles(times_us(lambda: bare.commit(record), pushes))
    return [
        Row(f"one push, {name}", us, unit="us", note=f"{us / least:.1f} times a bare insert + commit of {least:.1f} us")
        for name, us, least in zip(ours._fields, ours, floor, strict=True)
    ]


def flushed() -> list[Row]:
    """Pushes that wait for the disk, 64 at a time: one flush serves all that came meanwhile."""
    callers, each = 64, sized(100, 2)
    with place() as path:
        with client(path) as queue:
            started = time.perf_counter()
            threads = [threading.Thread(target=push_flushed, args=(queue, each)) for _ in range(callers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            by_threads = callers * each / (time.perf_counter() - started)
            assert queue.get_counts("q").waiting == callers * each
        by_tasks = asyncio.run(push_flushed_async(path, callers, each))
        floor = flushes_a_second(path)
    note = f"the disk makes {floor:,.0f} flushes/s"
    return [
        Row(f"push with fsync, {callers} threads", by_threads, unit="pushes/s", note=note),
        Row(f"push with fsync, {callers} tasks on one event loop", by_tasks, unit="pushes/s", note=note),
    ]


def push_flushed(queue: stoker.Client, times: int) -> None:
    for _ in range(times):
        assert queue.push("q", PAYLOAD, durability="fsync").level == "fsync"


async def push_flushed_async(path: str, callers: int, each: int) -> float:
    queue = await connect_async(f"sqlite:///{path}/async")

    async def push() -> None:
        for _ in range(each):
            assert (await queue.push("q", PAYLOAD, durability="fsync")).level == "fsync"

    started = time.perf_counter()
    await asyncio.gather(*(push() for _ in range(callers)))
    rate = callers * each / (time.perf_counter() - started)
    assert (await queue.get_counts("q")).waiting == callers * each
    await queue.close()
    return rate


def flushes_a_second(path: str) -> float:
    with open(f"{path}/flushes", "wb") as file:
        started = time.perf_counter()
        for _ in range(FLUSHES):
            os.pwrite(file.fileno(), PAYLOAD * 40, 0)
            os.fdatasync(file.fileno())
        return FLUSHES / (time.perf_counter() - started)


# --- restarts ----------------------------------------------------------------------------------------

OPEN = """
import sys, time
started = time.perf_counter()
import stoker
queue = stoker.connect(sys.argv[1])
opened = time.perf_counter() - started
assert queue.get_stats().counts.waiting == int(sys.argv[2]), queue.get_stats()
delivery = queue.pull(sys.argv[3])
assert len(delivery) == 1
print(opened, time.perf_counter() - started)
queue.close()
"""


def restarts() -> list[Row]:
    """A new process opens an existing directory and serves its first job."""
    rows = []
    with place() as path:
        with client(path) as queue:
            for _ in range(BATCHES):
                queue.push_batch("q", [PAYLOAD] * 1_000)
        rows.append(restart(f"{BATCHES:,},000 waiting in batches of 1,000", path, BATCHES * 1_000))
    with place() as path:
        with client(path) as queue:
            for number in range(DIFFERENT):
                queue.push("q", b"%0100d" % number, priority=number % 10, unique_key=str(number))
        rows.append(restart(f"{DIFFERENT:,} that all differ", path, DIFFERENT))
    return rows


def restart(what: str, path: str, waiting: int) -> Row:
    command = [sys.executable, "-c", OPEN, f"sqlite:///{path}/data", str(waiting), "q"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, serving = map(float, done.stdout.split())
    note = "from import to the first delivery, level commit"
    return Row(f"restart with {what}", serving * 1000, unit="ms", note=note)


# --- larger than memory ------------------------------------------------------------------------------


def backlog() -> list[Row]:
    """More jobs than fit into memory: pushed, one in a hundred changed, drained with every payload verified."""
    jobs, limit = BACKLOG, 512 * MIB
    generator = random.Random(7)
    with place() as path, client(path, LocalSettings(memory_bytes_max=limit)) as queue, MemoryWatch(path) as watch:
        started = time.perf_counter()
        changed: list[int] = []
        for first in range(0, jobs, 1_000):
            ids = queue.push_batch("q", [payload_of(number) for number in range(first, first + 1_000)]).ids
            changed += [ids[place] for place in generator.sample(range(1_000), 10)]
            watch.look()
        pushed = time.perf_counter() - started
        cancelled = change(queue, changed)
        watch.look()
        drained, seconds, checksum = drain(queue, watch)
        assert drained == jobs - cancelled, (drained, jobs, cancelled)
        limit_kept = watch.most < limit and watch.most_child < limit
        told = f"peak RSS {watch.most // MIB} MiB, of the checkpoint process {watch.most_child // MIB} MiB"
        return [
            Row(f"push of {jobs:,}, limit {limit // MIB} MiB, making the payloads included", jobs / pushed, note=told),
            Row(
                "drain with 1 % cancelled, reprioritised or delayed",
                drained / seconds,
                note=f"checksums verified apart ({checksum:.1f} s); the limit was {'kept' if limit_kept else 'BROKEN'}",
            ),
        ]


def payload_of(number: int) -> bytes:
    body = b"%092d" % number
    return body + b"%08x" % crc32(body)


def change(queue: stoker.Client, ids: list[int]) -> int:
    """A third each is cancelled, reprioritised and delayed. Returns how many were cancelled."""
    for number, job in enumerate(ids):
        if number % 3 == 0:
            queue.cancel(job)
        elif number % 3 == 1:
            queue.change_priority(job, 1)
        else:
            queue.move_to_delayed(job, 1_000)
    return len(ids[::3])


def drain(queue: stoker.Client, watch: "MemoryWatch") -> tuple[int, float, float]:
    """How many jobs came, in what time, and the time it took to verify them."""
    drained, busy, checking = 0, 0.0, 0.0
    while True:
        started = time.perf_counter()
        delivery = queue.pull("q", 1_000, wait_ms=2_000)
        if not delivery:
            return drained, busy, checking
        queue.ack_batch(delivery.ids, delivery.token)
        busy += time.perf_counter() - started
        started = time.perf_counter()
        for payload in delivery.payloads:
            assert crc32(payload[:92]) == int(payload[92:], 16), payload
        checking += time.perf_counter() - started
        drained += len(delivery)
        watch.look()


class MemoryWatch:
    """The peak memory of this process and the checkpoint process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.most = 0
        self.most_child = 0

    def __enter__(self) -> "MemoryWatch":
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch_child, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        self.most = max(self.most, resident_bytes())

    def _watch_child(self) -> None:
        while not self._ended.wait(0.05):
            for child in children_of(os.getpid()):
                self.most_child = max(self.most_child, child)


def children_of(pid: int) -> Iterator[int]:
    """The memory of each child process."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            for child in (task / "children").read_text().split():
                yield resident_bytes(child)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile


# --- stalls ------------------------------------------------------------------------------------------


def stalls() -> list[Row]:
    """The longest call under full load, while files are sealed and checkpoints are made all the time."""
    kept = JournalSettings(
        wal_bytes_max=16 * MIB, checkpoint_records=2_000, checkpoint_bytes=32 * MIB, events_bytes_max=64 * MIB
    )
    payloads = [PAYLOAD] * 1_000
    with place() as path, client(path, LocalSettings(journal=kept)) as queue:
        for _ in range(sized(200, 5)):
            queue.push_batch("kept", payloads)
        times: list[float] = []
        until = time.perf_counter() + STALLS_S
        while time.perf_counter() < until:
            started = time.perf_counter()
            queue.push_batch("q", payloads)
            between = time.perf_counter()
            delivery = queue.pull("q", 1_000)
            after = time.perf_counter()
            queue.ack_batch(delivery.ids, delivery.token)
            times += (between - started, after - between, time.perf_counter() - after)
        shared = queue.broker
        assert isinstance(shared, SharedBroker)
        broker = shared.owned
        assert broker is not None
        assert isinstance(broker.store, DirectoryStore)
        assert broker.store.upkeep is not None
        made = broker.store.upkeep.retention.made
        assert made > 1 or IS_SMOKE, "no checkpoints were made: this would show nothing"
    note = f"{len(times):,} calls of 1,000 jobs, {made} checkpoints; p99 {quantiles(times).p99 * 1000:.1f} ms"
    return [Row("longest call while checkpointing", max(times) * 1000, unit="ms", note=note)]
