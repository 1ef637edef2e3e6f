"""`stoker demo`: it works by itself, and fails when a number does not add up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import connect
from stoker.cli import exit_codes
from stoker.cli.demo import conclude
from stoker.demo.story import EXPECTED, Demo, DemoCheck
from stoker.spark.jvm_output import NOISE
from tests.cli.conftest import Stoker


def test_the_demo_runs_and_every_number_adds_up(tmp_path: Path):
    """With real workers, one of which is killed, and with Spark; and what it kept can be looked at."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    done = subprocess.run(
        [sys.executable, "-m", "stoker.cli.main", "demo", "--keep", "demo.db"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stderr.encode().splitlines() if line.startswith(NOISE)] == []
    assert "kill -9 of worker-" in done.stdout
    assert done.stdout.count("  ok  ") == 11
    assert "the lake counts" in done.stdout
    assert "<svg" in (tmp_path / "stoker-demo-report.html").read_text()
    with connect(f"sqlite:///{tmp_path}/demo.db") as client:
        assert client.get_stats().totals.pushed == sum(EXPECTED.values())


def test_a_number_that_does_not_add_up_is_a_failure(capsys: pytest.CaptureFixture[str]):
    assert conclude([DemoCheck(True, "fine")], None) == exit_codes.OK
    assert conclude([DemoCheck(True, "fine"), DemoCheck(False, "one is missing")], None) == exit_codes.FAILED
    said = capsys.readouterr()
    assert "NO  one is missing" in said.out
    assert said.err.endswith("(demo)\n")


def test_a_queue_that_lost_everything_passes_no_check(tmp_path: Path):
    with connect("memory://") as client:
        story = Demo(client, tmp_path, lambda text: None, lambda name: False)
        assert not any(check.holds for check in story.checks())


def test_what_is_there_is_not_written_into(stoker: Stoker, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    assert stoker("demo", "--keep", "mine").code == exit_codes.USAGE
