"""The commands of `docs/cluster.md` that start three nodes and kill one, typed into a shell as they are written."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.nodes import until
from tests.ports import kept_port
from tests.postgres_server import fresh_database, shared

ROOT = Path(__file__).parents[2]
URL = "postgresql://stoker@db/stoker"
PORTS = ("7001", "7002", "7003")
BOUND_S = 120.0


def commands(page: Path, heading: str) -> list[str]:
    """The lines that a section tells its reader to type."""
    section = page.read_text().partition(heading)[2].partition("\n## ")[0]
    return [
        line.removeprefix("$ ")
        for block in re.findall(r"```console\n(.*?)```", section, re.S)
        for line in block.splitlines()
    ]


class Shell:
    """A shell with job control, and with `stoker` on its path."""

    def __init__(self, folder: Path) -> None:
        program = folder / "bin" / "stoker"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m stoker "$@"\n')
        program.chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        environment["PATH"] = f"{program.parent}:{environment['PATH']}"
        self._out = folder / "out"
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                ["bash", "-m"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        self._typed = 0

    @property
    def shown(self) -> str:
        return self._out.read_text()

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def done(self, line: str) -> str:
        """Type a line again until it succeeds, as a reader would while a node is away; what it showed."""
        self._typed += 1
        before, mark = len(self.shown), f"--- done {self._typed}"
        self.type(f"until {line}; do sleep 0.3; done; echo '{mark}'")
        until(lambda: mark in self.shown, f"the end of {line!r} after {self.shown[before:][-2_000:]}", BOUND_S)
        return self.shown[before:]

    def close(self) -> None:
        self.type("kill $(jobs -p); wait; exit")
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(BOUND_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path)
    yield found
    found.close()


def test_a_reader_starts_three_nodes_kills_one_and_loses_nothing(shell: Shell):
    with fresh_database(shared()) as name, ExitStack() as kept:
        lines = commands(ROOT / "docs" / "cluster.md", "## Three nodes")
        for port in PORTS:
            free = str(kept.enter_context(kept_port()))
            lines = [line.replace(port, free) for line in lines]
        lines = [line.replace(URL, shared().url(name)) for line in lines]
        pushes = [line for line in lines if line.startswith("stoker push")]
        counted = ""
        for line in lines:
            if line.endswith("&") or line.startswith(("export", "kill")):
                shell.type(line)
            else:
                counted = shell.done(line)
            if "--node c" in line:
                until(lambda: shell.shown.count("\ntcp ") == len(PORTS), f"three nodes: {shell.shown}", BOUND_S)
        assert pushes
        assert re.search(rf"waiting +{len(pushes)}\b", counted), counted
        shell.done("kill %1 %3")


def test_the_readme_starts_the_same_nodes():
    page = commands(ROOT / "docs" / "cluster.md", "## Three nodes")
    readme = commands(ROOT / "README.md", "**On PostgreSQL**")
    assert [line for line in readme if "--node" in line] == [line for line in page if "--node" in line]
