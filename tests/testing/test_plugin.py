"""The plugin for pytest, in runs of its own: what it gives to those who use it, and what it costs those who do not."""

import subprocess
import sys
from pathlib import Path

import pytest

from stoker.testing import Harness
from tests.reading import ONLY_OUR_PLUGIN
from tests.test_layers import modules_loaded_by

JOBS = """
import stoker
app = stoker.App("sqlite:///must-not-be-made.db")

@app.job
def greet(name: str) -> str:
    return f"hello, {name}"
"""
TEST = """
from jobs import greet

def test_one(stoker_world):
    job = greet.push_sync("Ada")
    assert stoker_world.drain().check().completed == (job.id,)
    assert job.result_sync() == "hello, Ada"

def test_two(stoker_world):
    assert stoker_world.pushed() == []
"""


def run(directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", *ONLY_OUR_PLUGIN.split(), "-W", "error", *options]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)


def test_the_app_that_the_configuration_names_is_put_into_a_world(tmp_path: Path):
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "test_jobs.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nstoker_app = jobs:app\n")
    done = run(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "must-not-be-made.db").exists()


def test_an_app_that_is_not_there_is_told(tmp_path: Path):
    (tmp_path / "test_jobs.py").write_text("def test_one(stoker_world): pass")
    done = run(tmp_path, "-o", "stoker_app=nowhere:app")
    assert done.returncode != 0
    assert "stoker_app = 'nowhere:app' in pytest's configuration: there is no module 'nowhere'" in done.stdout


def test_without_configuration_the_app_is_an_empty_one(stoker_world: Harness):
    assert dict(stoker_world.app.jobs) == {}
    stoker_world.client.push("mail", b"")
    assert stoker_world.client.get_counts("mail").waiting == 1


def test_nothing_of_the_queue_is_loaded_for_those_who_do_not_use_it():
    loaded = modules_loaded_by("import stoker.testing.plugin")
    assert not {name for name in loaded if name.startswith(("stoker.engine", "stoker.worker", "stoker.app", "asyncio"))}


def test_names_that_are_not_there_are_told():
    import stoker.testing

    with pytest.raises(AttributeError, match="nonsense"):
        stoker.testing.nonsense  # noqa: B018 - asking is the point
