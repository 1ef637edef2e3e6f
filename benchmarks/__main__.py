"""Prints the tables: `python -m benchmarks`, or some of them: `python -m benchmarks batches memory`.

Each part runs five times, and its table shows medians and ranges. A run does not count if other programs used the
machine meanwhile; it is repeated a few times, and the table says so. Every part works in a directory of its own, which
is removed: nothing is left in the current one. `--keep` writes what was measured into `docs/figures.md`.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from benchmarks import PICTURES_VARIABLE, SMOKE_VARIABLE, figures
from benchmarks.parts import PARTS, RUNS
from benchmarks.quiet import LOUD, Watch, adopt_orphans

if TYPE_CHECKING:
    from benchmarks.measure import Row

ROOT = Path(__file__).parents[1]


class Run(NamedTuple):
    """What one run found, and the share of the machine that other programs used meanwhile."""

    others: float
    rows: "list[Row]"


def rows_of(name: str) -> "list[Row]":
    """Measure a part once, in this process."""
    module, _, function = PARTS[name].function.partition(":")
    rows: list[Row] = getattr(import_module(f"benchmarks.{module}"), function)()
    return rows


def run_apart(name: str) -> Run:
    """Measure a part once, in a process of its own: what a run leaves in memory must not help or hurt the next."""
    from benchmarks.measure import Row

    watch = Watch()
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--once", name], stdout=subprocess.PIPE, check=True)
    return Run(watch.others(), msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Row]))


def measure(name: str, runs: int, *, keep: bool) -> None:
    """Run a part until enough runs were quiet, print its table, and keep it if that is wanted."""
    quiet: list[Run] = []
    loud: list[Run] = []
    began = time.perf_counter()
    while len(quiet) < runs and len(loud) < max(PARTS[name].loud_max, runs):
        run = run_apart(name)
        (quiet if run.others < LOUD else loud).append(run)
    loud.sort(key=lambda run: run.others)
    borrowed = loud[: runs - len(quiet)]
    found = [run.rows for run in quiet + borrowed]
    show(name, found, len(loud) - len(borrowed))
    remark = ""
    if borrowed:
        remark = (
            f"NOT QUIET: other programs used up to {borrowed[-1].others:.0%} of the machine in {len(borrowed)} runs"
        )
        print(f"  {remark}")
    print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
    if keep:
        figures.keep_part(name, found, remark)


def show(name: str, runs: "list[list[Row]]", dropped: int = 0) -> None:
    from benchmarks.measure import table

    said = figures.counted(len(runs))
    if dropped:
        said += f"; {dropped} more dropped because other programs used the machine"
    print(f"\n{PARTS[name].title} ({name})\n  payloads of 100 bytes; {PARTS[name].how}; {said}")
    print("\n".join(table(runs)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all by default")
    parser.add_argument("--runs", type=int, help=f"runs of each part; {RUNS} by default, fewer where a run takes long")
    parser.add_argument("--smoke", action="store_true", help="as small as it gets, once: only whether it runs")
    parser.add_argument("--keep", action="store_true", help="write the tables into docs/figures.md, too")
    parser.add_argument("--once", metavar="PART", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once:
        sys.stdout.buffer.write(msgspec.json.encode(rows_of(given.once)) + b"\n")
        return
    unknown = set(given.names) - PARTS.keys()
    if unknown:
        sys.exit(f"unknown benchmarks: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if given.smoke:
        os.environ[SMOKE_VARIABLE] = "1"
    os.environ.pop("STOKER_URL", None)
    if PICTURES_VARIABLE in os.environ:  # the parts run in another directory
        os.environ[PICTURES_VARIABLE] = os.path.abspath(os.environ[PICTURES_VARIABLE])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        os.chdir(folder)
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        for name in given.names or PARTS:
            if given.smoke:
                show(name, [rows_of(name)])
            else:
                measure(name, given.runs or PARTS[name].runs, keep=given.keep)
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
