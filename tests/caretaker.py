"""Ends what a test process has started, and removes its folders, if the process itself is killed.

A process that is killed runs no `atexit`. So another process waits for the end of a pipe, whose other end only the test
process and its forks have; then it cleans up. It has a session of its own, so Ctrl-C does not reach it.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

SOURCE = """
import os, shutil, signal, sys, time
pids, folders = [], []
for line in sys.stdin:
    kind, _, what = line.rstrip("\\n").partition(" ")
    if kind == "folder":
        folders.append(what)
    elif kind == "started":
        pids.append(int(what))
    elif int(what) in pids:
        pids.remove(int(what))
def runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
for pid in pids:
    try:
        os.kill(pid, signal.SIGQUIT)
    except OSError:
        pass
deadline = time.monotonic() + 30
while time.monotonic() < deadline and any(map(runs, pids)):
    time.sleep(0.05)
for folder in folders:
    shutil.rmtree(folder, ignore_errors=True)
"""


class Caretaker:
    """The process that cleans up after this one. Each process that asks has its own."""

    def __init__(self) -> None:
        self._owner = 0
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def started(self, pid: int) -> None:
        """This process is to end with us: by SIGQUIT, which PostgreSQL and PgBouncer take for an immediate end."""
        self._tell(f"started {pid}")

    def ends(self, pid: int) -> None:
        """It will be waited for; its number may then mean another one."""
        self._tell(f"ends {pid}")

    def folder(self, folder: Path) -> None:
        """It is to be removed in the end."""
        self._tell(f"folder {folder}")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._owner != os.getpid():
                self._owner = os.getpid()
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", SOURCE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,
                )
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


CARETAKER = Caretaker()
