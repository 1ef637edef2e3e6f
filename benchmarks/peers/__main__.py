"""Prints the table: `python -m benchmarks.peers`, or some of it: `python -m benchmarks.peers celery stoker --runs 1`.

Each queue runs the same work in a fresh place, run by run: W1 push many jobs in bulk, W2 single pushes of ten callers,
W3 single pushes of one caller, W4 run all jobs with a handler that only counts, W5 the memory or disk that a waiting
job takes, W6 from a push to its handler on an idle worker. Every job has to run; jobs that ran twice are reported. A
queue that cannot be installed here is named with the reason. STOKER_BENCH_NOISY=1 shows the output of the workers.
`--keep` writes what was measured into `docs/figures.md`.
"""

import argparse
import mmap
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks import figures
from benchmarks.durable import place
from benchmarks.measure import resident_bytes, spread
from benchmarks.peers.places import CannotBeHad, place_of
from benchmarks.peers.queues import OURS, PEERS, OtherQueue, OurQueue
from benchmarks.quiet import LOUD, Watch, adopt_orphans
from benchmarks.served import server_pid, stoker_server

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"
HOME = ROOT / ".venv-peers"
"""An environment for each of them: their dependencies exclude each other."""
RUNS = 5
SINGLES = 2_000
IDLE = 100
WORD, DOUBLE = struct.Struct("=Q"), struct.Struct("=d")
PLACES = 1024
LIMIT_S = 60.0
"""A queue that is not done by then is measured by what it has done."""
SHARE = 20
"""`--quick` does this part of the work."""


class Found(msgspec.Struct):
    """What one run of one queue found."""

    bulk: float = 0.0
    callers: float = 0.0
    one_us: float = 0.0
    drain: float = 0.0
    job_bytes: float = 0.0
    idle_us: float = 0.0
    remark: str = ""


COLUMNS = {
    "bulk": "W1 bulk push, jobs/s",
    "callers": "W2 ten callers, pushes/s",
    "one_us": "W3 one caller, us",
    "drain": "W4 no-op jobs/s",
    "job_bytes": "W5 bytes a job",
    "idle_us": "W6 idle, us",
}


class Counter:
    """The files in which handlers count jobs, and note how long they took to begin."""

    def __init__(self, folder: str) -> None:
        self.path, self.latencies = f"{folder}/counter", f"{folder}/latencies"
        Path(self.path).write_bytes(bytes(PLACES * WORD.size))
        Path(self.latencies).write_bytes(b"")
        with open(self.path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @property
    def env(self) -> dict[str, str]:
        return {"STOKER_COUNTER": self.path, "STOKER_LATENCIES": self.latencies}

    def sum(self) -> int:
        return sum(count for (count,) in WORD.iter_unpack(self._memory))

    def wait(self, jobs: int) -> int:
        until = time.perf_counter() + LIMIT_S
        while (done := self.sum()) < jobs and time.perf_counter() < until:
            time.sleep(0.001)
        return done

    def idle_us(self) -> float:
        times = [seconds for (seconds,) in DOUBLE.iter_unpack(Path(self.latencies).read_bytes())]
        return statistics.median(times) * 1e6 if times else 0.0


def drained(counter: Counter, jobs: int, found: Found) -> None:
    """W4: jobs a second from the first to the last."""
    counter.wait(1)
    first, began = counter.sum(), time.perf_counter()
    done = counter.wait(jobs)
    found.drain = (done - first) / max(time.perf_counter() - began, 1e-9)
    time.sleep(0.5)  # a queue that runs jobs a second time does it now
    done = counter.sum()
    if done < jobs:
        found.remark = f"only {done:,} of {jobs:,} jobs within {LIMIT_S:g} s"
    elif done > jobs:
        found.remark = f"{done - jobs:,} jobs ran twice"


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


def said(command: list[str], env: dict[str, str], cwd: Path) -> float:
    """The number that a program prints on its last line."""
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise CannotBeHad(f"{' '.join(command[-4:])} failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout.split()[-1])


# --- the others ------------------------------------------------------------------------------------------------------


def install(name: str, peer: OtherQueue) -> None:
    """An environment of its own, once."""
    home = HOME / name
    ready, wanted = home / ".ready", "\n".join(peer.packages)
    if not (ready.exists() and ready.read_text() == wanted):
        print(f"installing {name}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        try:
            subprocess.run(installing(home, peer), cwd=home, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", "") or str(error)
            raise CannotBeHad(f"it cannot be installed: {why.strip().splitlines()[-1]}") from None
        ready.write_text(wanted)
    if peer.is_node:
        shutil.copy(APPS / "bullmq_app.mjs", home / "app.mjs")


def installing(home: Path, peer: OtherQueue) -> list[str]:
    if peer.is_node:
        return ["npm", "install", "--no-audit", "--no-fund", "--silent", *peer.packages]
    venv.create(home, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "--disable-pip-version-check"]
    return [*pip, "install", "--quiet", *peer.packages]


def version_of(name: str, peer: OtherQueue) -> str:
    home, package = HOME / name, peer.packages[0].partition(">")[0].partition("[")[0]
    if peer.is_node:
        return str(msgspec.json.decode((home / "node_modules" / package / "package.json").read_bytes())["version"])
    ask = [str(home / "bin" / "python"), "-c", f"import importlib.metadata as m; print(m.version('{package}'))"]
    return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


def peer_run(name: str, peer: OtherQueue, share: int) -> Found:
    home, jobs, found = HOME / name, peer.jobs // share, Found()
    with place_of(peer.place, home) as kept, tempfile.TemporaryDirectory() as folder:
        counter = Counter(folder)
        env = {**os.environ, **peer.env, **kept.env, **counter.env, "PYTHONPATH": str(APPS)}
        bun = "node_modules/.bin/bun" if peer.place == "bunqueue" else "node"
        driver = (
            [bun, "app.mjs"] if peer.is_node else [str(home / "bin/python"), str(APPS / "driver.py"), f"{name}_app"]
        )
        if name == "procrastinate":
            prepare = "import procrastinate_app; procrastinate_app.prepare()"
            subprocess.run([str(home / "bin/python"), "-c", prepare], env=env, check=True, capture_output=True)
        said([*driver, "bulk", "10"], env, home)
        before = kept.bytes_now()
        found.bulk = said([*driver, "bulk", str(jobs)], env, home)
        found.job_bytes = (kept.bytes_now() - before) / jobs
        worker = [word.replace("BIN", str(home / "bin")).replace("APP", str(APPS)) for word in peer.worker]
        with ExitStack() as stack:
            for _ in range(peer.copies):
                stack.enter_context(running(worker, env, home if peer.is_node else APPS))
            drained(counter, jobs + 10, found)
            said([*driver, "idle", str(IDLE)], env, home)
            counter.wait(jobs + 10 + IDLE)
            found.idle_us = counter.idle_us()
        found.callers = said([*driver, "callers", str(SINGLES // share)], env, home)
        found.one_us = said([*driver, "one", str(SINGLES // share // 2)], env, home)
    return found


# --- ours ------------------------------------------------------------------------------------------------------------


@contextmanager
def our_place(queue: OurQueue) -> Iterator[tuple[str, Callable[[], int]]]:
    """The URL of a new queue, and what tells the bytes that it takes: memory of its server, or its files."""
    with place() as path:
        if queue.has_server:
            with stoker_server(path) as port:
                server = server_pid(port)
                yield f"tcp://127.0.0.1:{port}", lambda: resident_bytes(server)
        else:
            yield f"sqlite:///{path}/queue", lambda: file_bytes(Path(path))


def file_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def our_run(queue: OurQueue, share: int) -> Found:
    jobs, found = queue.jobs // share, Found()
    with our_place(queue) as (url, bytes_now), tempfile.TemporaryDirectory() as folder:
        counter = Counter(folder)
        env = {**os.environ, **counter.env, "STOKER_URL": url, "STOKER_KIND": queue.kind}
        env["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(APPS)))
        driver = [sys.executable, str(APPS / "driver.py"), "benchmarks.peers.stoker_app"]
        said([*driver, "bulk", "10"], env, ROOT)
        before = bytes_now()
        found.bulk = said([*driver, "bulk", str(jobs)], env, ROOT)
        found.job_bytes = (bytes_now() - before) / jobs
        with running([sys.executable, "-m", "benchmarks.peers.stoker_app", "work", queue.kind], env, ROOT):
            drained(counter, jobs + 10, found)
            said([*driver, "idle", str(IDLE)], env, ROOT)
            counter.wait(jobs + 10 + IDLE)
            found.idle_us = counter.idle_us()
        found.callers = said([*driver, "callers", str(SINGLES // share * 5)], env, ROOT)
        found.one_us = said([*driver, "one", str(SINGLES // share // 2)], env, ROOT)
    return found


# --- the table -------------------------------------------------------------------------------------------------------


def measured(name: str, share: int) -> Found:
    if name in OURS:
        return our_run(OURS[name], share)
    return peer_run(name, PEERS[name], share)


def remarks_on(runs: Sequence[Found], loud: int) -> list[str]:
    remarks = sorted({run.remark for run in runs if run.remark})
    if loud:
        remarks.append(f"NOT QUIET: other programs used the machine in {loud} of {len(runs)} runs")
    return remarks


def print_found(name: str, title: str, runs: Sequence[Found], remarks: Sequence[str]) -> None:
    print(f"\n{name}: {title}")
    for field, column in COLUMNS.items():
        print(f"  {column:<26} {spread([getattr(run, field) for run in runs])}")
    for remark in remarks:
        print(f"  {remark}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="QUEUE", help=f"one of stoker, {', '.join(PEERS)}; all by default")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each queue")
    parser.add_argument("--keep", action="store_true", help="write the figures into docs/figures.md, too")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the work: only whether it runs")
    given = parser.parse_args()
    unknown = set(given.names) - PEERS.keys() - {"stoker"}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are stoker, {', '.join(PEERS)}")
    wanted = given.names or [*PEERS, "stoker"]
    adopt_orphans()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    print("Jobs of 100 bytes that only count; Redis in memory and without a disk; median and range of the runs")
    for name in wanted:
        try:
            title = ""
            if name in PEERS:
                install(name, PEERS[name])
                title = f"{version_of(name, PEERS[name])}; {PEERS[name].note}"
            for own in [name] if name in PEERS else OURS:
                told = title or f"{OURS[own].note}; every push and ack committed to disk"
                show(own, told, given.runs, SHARE if given.quick else 1, keep=given.keep)
        except (CannotBeHad, subprocess.SubprocessError) as error:
            print(f"\n{name}: NOT MEASURED: {error}", flush=True)


def show(name: str, title: str, runs: int, share: int, *, keep: bool) -> None:
    """Run until enough runs were quiet, twice as often at most."""
    quiet: list[Found] = []
    loud: list[Found] = []
    while len(quiet) < runs and len(loud) < runs:
        watch = Watch()
        found = measured(name, share)
        (quiet if watch.others() < LOUD else loud).append(found)
    borrowed = loud[: runs - len(quiet)]
    kept = quiet + borrowed
    remarks = remarks_on(kept, len(borrowed))
    print_found(name, title, kept, remarks)
    if keep:
        cells = {column: spread([getattr(run, field) for run in kept]) for field, column in COLUMNS.items()}
        figures.keep_peer(name, title, len(kept), cells, "; ".join(remarks))


if __name__ == "__main__":
    main()
