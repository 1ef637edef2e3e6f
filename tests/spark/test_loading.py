"""Spark starts a Python process for each step of a plan, and waits for what it imports."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("stoker.spark.source", {"pyarrow.compute", "pyarrow.parquet", "stoker.spark.sink", "stoker.spark.fleet"}),
        ("stoker.spark.sink", {"pyarrow.compute", "pyarrow.fs", "stoker.spark.columns", "stoker.records"}),
        ("stoker.spark.fleet.work", {"pyarrow.compute", "stoker.spark.fleet.rounds", "stoker.spark.columns"}),
    ],
)
def test_a_process_loads_what_it_needs(module: str, needless: set[str]):
    said = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert needless.isdisjoint(loaded)
