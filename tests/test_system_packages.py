"""Installing a program that tests need: one process at a time, again where apt fails, and with a clear failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import system_packages
from tests.system_packages import SystemProgram, find_or_install

ROOT = Path(__file__).parent.parent
PROGRAM = SystemProgram(("needed",), ("needed-package",), "these tests")

APT = """#!/bin/sh
# An apt-get that is refused while another one runs, as the real one is, and that fails for the first FAILS times.
cd FOLDER
mkdir busy || exit 100
echo "$@" >> calls
code=0
if [ "$(wc -l < calls)" -le FAILS ]; then
    echo "the mirror is away"
    code=100
elif echo "$@" | grep -q needed-package; then
    printf half > bin/needed
    chmod +x bin/needed
    sleep 0.3
    printf whole > bin/needed
fi
rmdir busy
exit $code
"""
CHILD = """
import os, sys
from pathlib import Path
os.geteuid = lambda: 0
from tests import system_packages
from tests.test_system_packages import PROGRAM
system_packages.SEARCHED, system_packages.PAUSE_S = sys.argv[1], 0.0
print(Path(system_packages.find_or_install(PROGRAM)).read_text())
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with programs, of which `apt-get` is one."""
    (tmp_path / "bin").mkdir()
    return tmp_path


def fake_apt(machine: Path, fails: int) -> None:
    path = machine / "bin" / "apt-get"
    path.write_text(APT.replace("FOLDER", str(machine)).replace("FAILS", str(fails)))
    path.chmod(0o755)


def start(machine: Path) -> "subprocess.Popen[str]":
    programs = str(machine / "bin")
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(machine)}
    command = [sys.executable, "-c", CHILD, programs]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)


def calls(machine: Path) -> int:
    return len((machine / "calls").read_text().splitlines())


def test_of_processes_at_once_one_installs_and_none_uses_a_program_that_is_half_there(machine: Path):
    fake_apt(machine, fails=0)
    processes = [start(machine) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["whole\n"] * 3
    assert calls(machine) == 2, "one update and one installation"


def test_apt_is_tried_again(machine: Path):
    fake_apt(machine, fails=5)
    assert start(machine).communicate(timeout=60)[0] == "whole\n"
    assert calls(machine) == 6


def test_the_failure_tells_what_to_install_and_what_apt_said(machine: Path, monkeypatch: pytest.MonkeyPatch):
    fake_apt(machine, fails=1_000)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(machine / "bin"), prepend=os.pathsep)
    monkeypatch.setattr(system_packages, "INSTALL_S", 0.0)
    words = r"(?s)these tests need needed: install needed-package .*install .* ended with 100: the mirror is away"
    with pytest.raises(AssertionError, match=words):
        find_or_install(PROGRAM)


def test_without_root_it_says_so(machine: Path, monkeypatch: pytest.MonkeyPatch):
    fake_apt(machine, fails=0)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    monkeypatch.setenv("PATH", str(machine / "bin"), prepend=os.pathsep)
    with pytest.raises(AssertionError, match="apt-get needs root"):
        find_or_install(PROGRAM)
