"""Run the whole test suite on all cores: `make test`, or `python tools/run_tests.py`.

The suite is cut into shares that know nothing of each other: the conformance suite a few brokers at a time, the crash
tests, and so on. As many run at once as there are cores, the longest first; the output of a share is shown when it
has ended, its failures and all. Nothing is left out: a folder of tests that no share names belongs to the last one.
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


@dataclass
class Share:
    """Some tests that run in one process."""

    name: str
    paths: Sequence[str]
    brokers: str = ""
    """Of the conformance suite: which ones."""
    started: float = 0.0
    process: "subprocess.Popen[bytes] | None" = None
    output: "IO[bytes] | None" = None
    counts: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        self.started = time.monotonic()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  closed when the share has ended
        environment = {**os.environ, **({"STOKER_BROKERS": self.brokers} if self.brokers else {})}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rfE", "-vv", "-q", "-q", *self.paths]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )

    def end(self) -> bool:
        """Show what came of it; whether all was well."""
        assert self.process is not None
        assert self.output is not None
        self.output.seek(0)
        text = self.output.read().decode(errors="replace")
        self.output.close()
        lines = text.rstrip().splitlines()
        for number, word in COUNTED.findall(lines[-1] if lines else ""):
            self.counts[word.rstrip("s")] = self.counts.get(word.rstrip("s"), 0) + int(number)
        well = self.process.returncode == 0
        print(f"--- {self.name}: {'passed' if well else 'FAILED'}, {time.monotonic() - self.started:.0f} s")
        print("\n".join(lines[-1:] if well else lines), flush=True)
        return well


def conformance(brokers: str) -> Share:
    return Share(f"conformance: {brokers}", ["tests/conformance"], brokers)


def all_shares() -> list[Share]:
    named = [
        conformance("sqlite-restarted"),
        Share("crash", ["tests/crash"]),
        conformance("tcp-msgpack tcp-json unix"),
        conformance("http grpc"),
        conformance("sqlite-shared tcp-2-processes"),
        Share("mutants, model", ["tests/mutants", "tests/model"]),
        conformance("memory memory-unbatched sqlite"),
        Share("faults, security, sharing", ["tests/faults", "tests/security", "tests/sharing"]),
    ]
    taken = {path for share in named for path in share.paths}
    rest = [f"tests/{entry.name}" for entry in sorted(TESTS.iterdir()) if is_tests(entry)]
    return [*named, Share("everything else", [path for path in rest if path not in taken])]


def is_tests(entry: Path) -> bool:
    return (entry.is_dir() and any(entry.rglob("test_*.py"))) or entry.match("test_*.py")


def main() -> int:
    waiting = all_shares()
    running: list[Share] = []
    ended: list[Share] = []
    failed: list[str] = []
    cores = os.cpu_count() or 1
    started = time.monotonic()
    while waiting or running:
        while waiting and len(running) < cores:
            running.append(waiting.pop(0))
            running[-1].start()
        for share in [share for share in running if share.process is not None and share.process.poll() is not None]:
            running.remove(share)
            ended.append(share)
            if not share.end():
                failed.append(share.name)
        time.sleep(0.1)
    words = ("passed", "failed", "error", "skipped")
    totals = {word: sum(share.counts.get(word, 0) for share in ended) for word in words}
    print(f"\n{time.monotonic() - started:.0f} s" + "".join(f"\nfailed: {name}" for name in failed))
    print(f"{totals['passed']} passed, {totals['failed'] + totals['error']} failed, {totals['skipped']} skipped")
    return 1 if failed or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
