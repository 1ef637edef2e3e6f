"""Run the whole test suite on all cores: `make test`, or `python tools/run_tests.py`.

The suite is cut into shares that know nothing of each other: the conformance suite a broker or two at a time, the crash
tests, and so on. One more runs at once than there are cores, because some wait now and then; the longest first, so that
none is left over at the end. The output of a share is shown when it has ended, its failures and all, with the time that
it took and the work that it was. Nothing is left out: folders of tests that no share names make shares of their own.

A test that hangs says where, in every thread, and then its share ends.
"""

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
TEST_S = 240
"""No test takes a tenth of this, whatever else the machine has to do."""


@dataclass
class Share:
    """Some tests that run in one process."""

    name: str
    paths: Sequence[str]
    brokers: str = ""
    """Of the conformance suite: which ones."""
    cases: int = 0
    """Of each of its tests: so many cases; 0 = all of them."""
    started: float = 0.0
    process: "subprocess.Popen[bytes] | None" = None
    output: "IO[bytes] | None" = None
    code: int = 0
    cpu_s: float = 0.0
    """Of it and of all processes that it has started and waited for."""
    counts: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        self.started = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  closed when the share has ended
        environment = {**os.environ, "CONFORMANCE_CASES": str(self.cases)}
        if self.brokers:
            environment["STOKER_BROKERS"] = self.brokers
        hanging = ["-o", f"faulthandler_timeout={TEST_S}", "-o", "faulthandler_exit_on_timeout=true"]
        options = ["-p", "no:cacheprovider", *hanging, "-rfE", "-vv", "-q", "-q"]
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
        """Show what came of it; whether all was well."""
        assert self.output is not None
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        self.output.close()
        lines = text.rstrip().splitlines()
        for number, word in COUNTED.findall(lines[-1] if lines else ""):
            self.counts[word.rstrip("s")] = self.counts.get(word.rstrip("s"), 0) + int(number)
        well = self.code == 0
        took = f"{time.monotonic() - self.started:.0f} s, {self.cpu_s:.0f} s of work"
        print(f"--- {self.name}: {'passed' if well else 'FAILED'}, {took}")
        print("\n".join(lines[-1:] if well else lines), flush=True)
        return well


def conformance(brokers: str) -> Share:
    """All cases of all tests over a broker that decides something."""
    return Share(f"conformance: {brokers}", ["tests/conformance"], brokers)


def carried(brokers: str) -> Share:
    """All tests over brokers that only carry what was decided, of each some cases: all of them are in `make soak`."""
    return Share(f"conformance: {brokers}", ["tests/conformance"], brokers, cases=1)


def all_shares() -> list[Share]:
    """The longest first, as far as that is known; those that nobody names stand in the middle."""
    longest = [
        Share("spark", ["tests/spark"]),
        Share("crash", ["tests/crash"]),
        Share("model", ["tests/model"]),
        Share("mutants", ["tests/mutants"]),
        conformance("memory memory-unbatched sqlite"),
        carried("sqlite-restarted"),
        Share("security", ["tests/security"]),
        Share("faults, sharing", ["tests/faults", "tests/sharing"]),
    ]
    shortest = [
        carried("tcp-msgpack tcp-json unix"),
        carried("http grpc"),
        carried("sqlite-shared"),  # tcp-2-processes is in `make soak`: its clock of the tests is not free of luck yet
        conformance("strangers-lines"),
        carried("strangers-frames strangers-rest strangers-command"),
    ]
    taken = {path for share in longest + shortest for path in share.paths}
    rest = [f"tests/{entry.name}" for entry in sorted(TESTS.iterdir()) if is_tests(entry)]
    return [*longest, *in_parts([path for path in rest if path not in taken]), *shortest]


def in_parts(paths: Sequence[str], parts: int = 4) -> list[Share]:
    """All other tests, in parts of about the same length as text: nobody knows more about them."""
    groups: list[list[str]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for size, path in sorted(((size_of(ROOT / path), path) for path in paths), reverse=True):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(path)
        sizes[smallest] += size
    return [Share(", ".join(path.removeprefix("tests/") for path in group), group) for group in groups if group]


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("test_*.py") if path.is_dir() else [path]))


def is_tests(entry: Path) -> bool:
    return (entry.is_dir() and any(entry.rglob("test_*.py"))) or entry.match("test_*.py")


def main() -> int:
    waiting = all_shares()
    running: list[Share] = []
    ended: list[Share] = []
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
    words = ("passed", "failed", "error", "skipped")
    totals = {word: sum(share.counts.get(word, 0) for share in ended) for word in words}
    work_s = sum(share.cpu_s for share in ended)
    print(
        f"\n{time.monotonic() - started:.0f} s, {work_s:.0f} s of work"
        + "".join(f"\nfailed: {name}" for name in failed)
    )
    print(f"{totals['passed']} passed, {totals['failed'] + totals['error']} failed, {totals['skipped']} skipped")
    return 1 if failed or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
