"""Programs that tests need and no wheel has: found on this machine, or installed by apt where the tests run as root."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

INSTALL_S = 600
SEARCHED = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))


def find(names: Sequence[str]) -> str | None:
    """The path of the first of these programs that is there."""
    return next((found for name in names if (found := shutil.which(name, path=SEARCHED)) is not None), None)


def find_or_install(names: Sequence[str], packages: Sequence[str], needed_by: str) -> str:
    """The path of a program. Fails, and never skips, if there is none and none can be installed."""
    found = find(names)
    if found is not None:
        return found
    tried = "apt-get is not there"
    if shutil.which("apt-get") is not None:
        tried = _install(names, packages) if os.geteuid() == 0 else "apt-get needs root"
        found = find(names)
    assert found is not None, f"{needed_by} need {names[0]}: install {' and '.join(packages)} ({tried})"
    return found


def _install(names: Sequence[str], packages: Sequence[str]) -> str:
    """What came of it. One process of the tests at a time: apt refuses a second one."""
    tried = ""
    with (Path(tempfile.gettempdir()) / "stoker-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find(names) is None:
            for command in (["update", "-qq"], ["install", "-y", "-qq", *packages]):
                done = subprocess.run(
                    ["apt-get", *command],
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_S,
                    check=False,
                    env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                )
                tried = f"`apt-get {' '.join(command)}` ended with {done.returncode}: {done.stderr[-500:]}"
    return tried
