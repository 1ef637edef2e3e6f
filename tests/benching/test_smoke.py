"""Every part of the benchmarks runs, as small as it gets. No figure is looked at."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import ROOT
from benchmarks.parts import PARTS
from tests.soaking import SOAKS

SPARK = [name for name in PARTS if name == "spark" or name.startswith("lake")]
NODES = ["cluster"]
STORES = ["redis", "inbox", "postgres"]
SERVED = [name for name in PARTS if PARTS[name].function.split(":")[0] in ("served", "client", "processes", "workers")]
REST = [name for name in PARTS if name not in {*SPARK, *NODES, *STORES, *SERVED}]
CHOSEN = {"stores": STORES, "served": SERVED, "rest": REST} | ({"spark": SPARK, "nodes": NODES} if SOAKS else {})
"""Spark and the nodes of a cluster take minutes however small the benchmark is: they run in the soak."""


@pytest.mark.parametrize("names", CHOSEN.values(), ids=CHOSEN)
def test_every_part_runs_and_leaves_nothing_behind(names: list[str], tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_BENCH")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "benchmarks", "--smoke", *names]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    for name in names:
        assert f"({name})\n" in done.stdout, name
    assert list(tmp_path.iterdir()) == []


def test_unknown_parts_are_named() -> None:
    command = [sys.executable, "-m", "benchmarks", "batches", "nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "unknown benchmarks: nonsense; there are batches, " in done.stderr
