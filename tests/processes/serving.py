"""`stoker serve --processes N` as people start it: the supervisor, its processes and their listeners."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stoker.model.ids import process_of, shard_for

SHARDS = 16
QUEUES = {
    number: next(
        name
        for name in (f"q{candidate}" for candidate in range(1_000))
        if process_of(shard_for("default", name, SHARDS), 2) == number
    )
    for number in range(2)
}
"""For each of two processes a queue that lives there."""
END_S = 60
OFF = ("--http", "off", "--grpc", "off")


class Served:
    def __init__(
        self,
        directory: Path,
        *options: str,
        processes: int = 2,
        listen: tuple[str, ...] = OFF,
        errors: IO[str] | int = subprocess.PIPE,
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        command = [sys.executable, "-m", "stoker", "serve", "--processes", str(processes)]
        command += ["--data", str(directory / "data"), "--tcp", "127.0.0.1:0", *listen, *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=directory, env=environment
        )
        self.errors = ""
        assert self.process.stdout is not None
        wanted = 1 + ("--unix" in command) + sum(name in command and "off" not in after(command, name) for name in ALL)
        lines = [self.process.stdout.readline() for _ in range(wanted)]
        self.where = dict(line.split(maxsplit=1) for line in lines if line)
        self.where = {name: where.strip() for name, where in self.where.items()}

    @property
    def url(self) -> str:
        return f"tcp://{self.where['tcp']}"

    @property
    def children(self) -> list[int]:
        """In the order of their numbers, as long as none was started again."""
        pid = self.process.pid
        try:
            found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:  # it has ended
            return []
        return sorted(map(int, found))

    def child(self, number: int) -> int:
        """The process that has this number now: the one that listens on its socket in the data directory."""
        for _ in range(6_000):
            if (pid := self.find_child(number)) is not None:
                return pid
            time.sleep(0.01)
        raise AssertionError(f"no process has number {number}")

    def find_child(self, number: int) -> int | None:
        """The same, if there is one at the moment."""
        return next((pid for pid in self.children if is_listening(pid, f"peer-{number}")), None)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """How, and what it said on its standard error."""
        if self.process.stderr is not None and not self.process.stderr.closed:
            _, self.errors = self.process.communicate(timeout=END_S)
        return self.process.returncode, self.errors

    def said(self, words: str) -> str:
        """The next line of its log with these words."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if re.search(words, line))


ALL = ("--http", "--grpc")


def after(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def is_listening(pid: int, name: str) -> bool:
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{descriptor}") for descriptor in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    table = Path("/proc/net/unix").read_text().splitlines()[1:]
    listening = {line.split()[6] for line in table if line.endswith(f"/{name}") and line.split()[3] == "00010000"}
    return any(f"socket:[{inode}]" in links for inode in listening)


@contextmanager
def serving(directory: Path, *options: str, processes: int = 2, listen: tuple[str, ...] = OFF) -> Iterator[Served]:
    server = Served(directory, *options, processes=processes, listen=listen)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.signal(signal.SIGTERM)
            server.signal(signal.SIGTERM)
        try:
            server.ended()
        except subprocess.TimeoutExpired:
            server.process.kill()
            raise


def until(condition: object, what: str) -> None:
    """Look again and again, for something that happens in another process."""
    assert callable(condition)
    for _ in range(12_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"{what} never happened")
