"""Runs the whole test suite on all cores: `make test`, or `python tools/run_tests.py`.

The suite is cut into independent shares: the conformance suite for a broker or two at a time, the crash tests, and so
on. One more share runs at once than there are cores, because some wait now and then. The longest start first, so that
none is left over at the end. The output of a share is shown when it has ended, with its wall and CPU time. Nothing is
left out: folders of tests that no share names form their own shares.

A test that hangs prints the stacks of all threads, and then its share ends.
"""
# ruff: noqa: T201  it prints for the person who runs it

import compileall
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
SUMMARY = re.compile(r"\d+ (passed|failed|errors?|skipped)\b.* in \d[\d.]*s\b")
"""The line with which pytest ends. A warning of the interpreter may follow it."""
TEST_S = 600
"""No test takes a tenth of this on a quiet machine, and few take a hundredth."""

SECONDS: dict[str, int] = {
    # conformance, by brokers
    "memory sqlite strangers-lines": 60,
    "redis": 15,
    "valkey": 6,
    "redis-served": 17,
    "postgres": 25,
    "cluster": 35,
    "sqlite-restarted": 90,
    "tcp-2-processes sqlite-shared strangers-rest": 60,
    "tcp-msgpack tcp-json memory-unbatched toy-journal": 46,
    "http grpc": 55,
    "unix tcp-without-turns strangers-frames strangers-command": 28,
    # everything else, by folders
    "tests/spark": 290,
    "tests/spark_cluster": 120,
    "tests/crash": 80,
    "tests/processes": 60,
    "tests/cluster": 100,
    "tests/cli": 60,
    "tests/mutants": 75,
    "tests/security": 45,
    "tests/worker_kill": 45,
    "tests/lanes": 45,
    "tests/redis": 45,
    "tests/redis_served": 45,
    "tests/faults": 40,
    "tests/test_installed.py": 30,
    "tests/test_docs.py": 25,
    "tests/unit": 32,
    "tests/examples": 30,
    "tests/worker": 25,
    "tests/histories": 30,
    "tests/sharing": 32,
    "tests/leaks": 15,
    "tests/http": 20,
    "tests/dashboard": 75,
    "tests/model": 18,
    "tests/wire": 15,
    "tests/postgres": 45,
    "tests/inbox": 60,
    "tests/benching": 60,
    "tests/journal": 15,
    "tests/waking": 15,
    "tests/schedules": 12,
    "tests/webhooks": 12,
    "tests/client": 12,
    "tests/test_invariants.py": 10,
    "tests/app": 8,
    "tests/typed": 8,
    "tests/contradictions": 8,
}
"""Rough measured seconds, work and waiting; only the order and the grouping depend on them."""
SLOWEST = 10
"""How many files are named at the end."""
UNKNOWN_S = 6
"""For a folder that was not measured, or was too short for it."""
PART_S = 100
"""Folders are grouped to about this much."""


@dataclass
class TestShare:
    """Tests that run in one process."""

    name: str
    paths: Sequence[str]
    seconds: int
    """How long it takes, as far as known."""
    brokers: str = ""
    """The brokers, for the conformance suite."""
    cases: int = 0
    """Cases of each test; 0 = all."""
    every: int = 1
    """One in this many of its tests runs."""
    started: float = 0.0
    process: "subprocess.Popen[bytes] | None" = None
    output: "IO[bytes] | None" = None
    code: int = 0
    cpu_s: float = 0.0
    """CPU time of the share and of all processes that it started and waited for."""
    counts: dict[str, int] = field(default_factory=dict)
    times: "IO[bytes] | None" = None
    """Where it writes how long each test file took."""

    def start(self) -> None:
        self.started = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  closed when the share has ended
        environment = {**os.environ, "CONFORMANCE_CASES": str(self.cases), "CONFORMANCE_EVERY": str(self.every)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every share would rewrite all modules for itself
        if self.brokers:
            environment["STOKER_BROKERS"] = self.brokers
        self.times = tempfile.NamedTemporaryFile()  # noqa: SIM115  closed when the share has ended
        environment["TEST_TIMES_FILE"] = self.times.name
        hanging = ["-o", f"faulthandler_timeout={TEST_S}", "-o", "faulthandler_exit_on_timeout=true"]
        unused = ["-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio"]
        options = [*unused, *hanging, "-rfE", "-vv", "-q", "-q"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *self.paths],
            cwd=ROOT,
            env=environment,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def has_ended(self) -> bool:
        assert self.process is not None
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if not pid:
            return False
        self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = used.ru_utime + used.ru_stime
        return True

    def end(self) -> bool:
        """Print the outcome. Returns whether all tests passed."""
        assert self.output is not None
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        self.output.close()
        lines = text.rstrip().splitlines()
        summary = next((line for line in reversed(lines) if SUMMARY.search(line)), "")
        for number, word in COUNTED.findall(summary):
            self.counts[word.rstrip("s")] = self.counts.get(word.rstrip("s"), 0) + int(number)
        well = self.code == 0
        took = f"{time.monotonic() - self.started:.0f} s, {self.cpu_s:.0f} s of work"
        print(f"--- {self.name}: {'passed' if well else 'FAILED'}, {took}")
        print(summary if well else "\n".join(lines), flush=True)
        return well

    def seconds_by_file(self) -> dict[str, float]:
        """As the share has written it; empty if it died before."""
        assert self.times is not None
        text = self.times.read()
        self.times.close()
        return json.loads(text) if text else {}


def conformance(brokers: str, cases: int = 0, every: int = 1) -> TestShare:
    """The tests over some brokers: all cases over brokers that decide something, one case of each test over those that
    only carry decisions, and a different third of the tests over each that carries them like another one. Redis
    decides, too, and has one case of each, because `tests/redis` compares it with the engine. `make soak` runs
    everything over all.
    """
    return TestShare(f"conformance: {brokers}", ["tests/conformance"], SECONDS[brokers], brokers, cases, every)


def all_shares() -> list[TestShare]:
    """The longest first."""
    shares = [
        conformance("memory sqlite strangers-lines"),
        conformance("redis", cases=1),
        conformance("valkey", cases=1, every=3),
        conformance("redis-served", cases=1, every=2),
        conformance("postgres", cases=1, every=3),
        conformance("cluster", cases=1, every=8),
        conformance("sqlite-restarted", cases=1),
        conformance("tcp-2-processes sqlite-shared strangers-rest", cases=1),
        conformance("tcp-msgpack tcp-json memory-unbatched toy-journal", cases=1),
        conformance("http grpc", cases=1),
        conformance("unix tcp-without-turns strangers-frames strangers-command", cases=1, every=3),
    ]
    taken = {path for share in shares for path in share.paths}
    rest = [f"tests/{entry.name}" for entry in sorted(TESTS.iterdir()) if is_tests(entry)]
    shares += in_parts([path for path in rest if path not in taken])
    return sorted(shares, key=lambda share: -share.seconds)


def in_parts(paths: Sequence[str]) -> list[TestShare]:
    """All other tests: each folder, the longest first, goes to the part with the least so far."""
    taking = {path: SECONDS.get(path, UNKNOWN_S) for path in paths}
    parts = max(1, round(sum(min(seconds, PART_S) for seconds in taking.values()) / PART_S))
    groups: list[list[str]] = [[] for _ in range(parts)]
    sums = [0] * parts
    for path in sorted(taking, key=lambda path: -taking[path]):
        least = sums.index(min(sums))
        groups[least].append(path)
        sums[least] += taking[path]
    return [TestShare(named(group), group, total) for group, total in zip(groups, sums, strict=True) if group]


def named(paths: Sequence[str]) -> str:
    return ", ".join(path.removeprefix("tests/") for path in paths)


def is_tests(entry: Path) -> bool:
    return (entry.is_dir() and any(entry.rglob("test_*.py"))) or entry.match("test_*.py")


def compile_all() -> None:
    """Compile once: the tests start hundreds of processes, and none of them should compile its imports."""
    for folder in ("src", "tests"):
        compileall.compile_dir(ROOT / folder, quiet=2, workers=0)


def show_slowest(shares: Sequence[TestShare]) -> None:
    """The test files that took the longest, over all shares."""
    taken: dict[str, float] = {}
    for share in shares:
        for name, seconds in share.seconds_by_file().items():
            taken[name] = taken.get(name, 0.0) + seconds
    print(f"\nThe {SLOWEST} slowest files:")
    for name in sorted(taken, key=lambda name: -taken[name])[:SLOWEST]:
        print(f"{taken[name]:6.0f} s  {name}")


def install_programs() -> "subprocess.Popen[bytes]":
    """Begin to install what tests need and this machine lacks. A test that comes to it earlier waits for it."""
    return subprocess.Popen([sys.executable, "-m", "tests.system_packages"], cwd=ROOT, stdin=subprocess.DEVNULL)


def main() -> int:
    installing = install_programs()
    compile_all()
    waiting = all_shares()
    running: list[TestShare] = []
    ended: list[TestShare] = []
    failed: list[str] = []
    at_once = (os.cpu_count() or 1) + 1
    started = time.monotonic()
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(waiting.pop(0))
            running[-1].start()
        for share in [share for share in running if share.has_ended()]:
            running.remove(share)
            ended.append(share)
            if not share.end():
                failed.append(share.name)
        time.sleep(0.1)
    installing.wait()
    words = ("passed", "failed", "error", "skipped")
    totals = {word: sum(share.counts.get(word, 0) for share in ended) for word in words}
    show_slowest(ended)
    work_s = sum(share.cpu_s for share in ended)
    print(
        f"\n{time.monotonic() - started:.0f} s, {work_s:.0f} s of work"
        + "".join(f"\nfailed: {name}" for name in failed)
    )
    print(f"{totals['passed']} passed, {totals['failed'] + totals['error']} failed, {totals['skipped']} skipped")
    return 1 if failed or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
