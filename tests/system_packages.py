"""Programs that tests need and no wheel has: found on this machine, or installed by apt where the tests run as root.

`python -m tests.system_packages` installs all of them. `tools/run_tests.py` starts it before the first share, so that
tests do not have to wait.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

INSTALL_S = 420.0
"""For all attempts together. A test that hangs is ended after 600 s, and its failure should say what apt said."""
PAUSE_S = 5.0
"""Between two attempts: a mirror may be away for a moment, or another program may hold the locks of apt."""
OPTIONS = ("-o", "DPkg::Lock::Timeout=60", "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30")
SEARCHED = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


class SystemProgram(NamedTuple):
    """A program under any of its names, the packages of Debian that have it, and what it is for."""

    names: Sequence[str]
    packages: Sequence[str]
    needed_by: str


CHROMIUM = SystemProgram(
    ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge"),
    ("chromium", "chromium-driver", "fonts-liberation"),
    "the tests of the dashboard",
)
PGBOUNCER = SystemProgram(("pgbouncer",), ("pgbouncer",), "the tests of a pooler")


def find(program: SystemProgram) -> str | None:
    """The path of the program, under the first of its names that is there."""
    return next((found for name in program.names if (found := shutil.which(name, path=SEARCHED)) is not None), None)


def find_or_install(program: SystemProgram) -> str:
    """The path of a program. Fails, and never skips, if there is none and none can be installed."""
    if shutil.which("apt-get") is None:
        found, tried = find(program), "apt-get is not there"
    elif os.geteuid() != 0:
        found, tried = find(program), "apt-get needs root"
    else:
        with _one_at_a_time():  # a program is there before its libraries are, so an installation has to end first
            found, tried = find(program), ""
            if found is None:
                tried = _install(program.packages)
                found = find(program)
    assert found is not None, (
        f"{program.needed_by} need {program.names[0]}: install {' and '.join(program.packages)} ({tried})"
    )
    return found


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Only one process of the tests installs: apt refuses a second one."""
    with (Path(tempfile.gettempdir()) / "stoker-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(packages: Sequence[str]) -> str:
    """Try until it is done or the time is up. Returns what apt said in the end."""
    deadline = time.monotonic() + INSTALL_S
    while True:
        _, updated = _apt(["update", "-qq"], deadline)  # if it fails, the lists of before may do
        code, installed = _apt(["install", "-y", "-qq", "--no-install-recommends", *packages], deadline)
        if code == 0 or time.monotonic() + PAUSE_S >= deadline:
            return updated + installed
        time.sleep(PAUSE_S)


def _apt(words: Sequence[str], deadline: float) -> tuple[int, str]:
    """The exit code, and a line that tells it. A file takes what apt says: services that it starts may keep a pipe."""
    command = ["apt-get", *OPTIONS, *words]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with tempfile.TemporaryFile() as output:
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=max(1.0, deadline - time.monotonic()),
                check=False,
                env=environment,
            ).returncode
            how = f"ended with {code}"
        except subprocess.TimeoutExpired:
            code, how = -1, "took too long"
        output.seek(0)
        said = output.read().decode(errors="replace")[-500:].strip()
    return code, f"`apt-get {' '.join(words)}` {how}: {said}\n"


if __name__ == "__main__":
    for needed in (PGBOUNCER, CHROMIUM):
        try:
            find_or_install(needed)
        except AssertionError as problem:
            sys.stderr.write(f"{problem}\n")
