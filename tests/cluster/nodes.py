"""Nodes of a cluster as people start them: `stoker serve --cluster postgresql://...`, with all of their processes."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import stoker
from stoker.journal.postgres.cluster import ClusterStatus, status_of
from stoker.journal.postgres.schema import install

START_S = 60.0
OFF = ("--grpc", "off", "--http", "off")


class ClusterNode:
    """One node. It may be killed with all of its processes, stopped, and started again under the same name."""

    def __init__(self, url: str, name: str, folder: Path, *options: str, listen: Sequence[str] = OFF) -> None:
        self.url, self.name, self._folder = url, name, folder
        self._options = (*listen, *options)
        self.tcp = "127.0.0.1:0"
        self.where: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> "ClusterNode":
        self.begin()
        self.await_served()
        return self

    def begin(self) -> None:
        """Start it, without waiting until it serves."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        command = [sys.executable, "-m", "stoker", "serve", "--cluster", self.url, "--node", self.name]
        command += ["--tcp", self.tcp, *self._options]
        log = (self._folder / f"{self.name}.log").open("a")
        with log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._folder, env=environment
            )

    def await_served(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        stdout = self.process.stdout
        wanted = 1 + ("--http" in self._options and self._options[self._options.index("--http") + 1] != "off")

        def read() -> None:
            with stdout:
                for line in stdout:
                    lines.put(line)

        threading.Thread(target=read, daemon=True).start()
        deadline = time.monotonic() + START_S
        while len(self.where) < wanted:
            try:
                line = lines.get(timeout=0.5)
            except queue.Empty:
                alive = self.process.poll() is None
                assert alive and time.monotonic() < deadline, f"{self.name} does not serve:\n{self.last_log}"  # noqa: PT018
                continue
            name, _, where = line.partition(" ")
            self.where[name] = where.strip()
        self.tcp = self.where["tcp"]

    @property
    def log(self) -> str:
        return (self._folder / f"{self.name}.log").read_text()

    @property
    def last_log(self) -> str:
        """Its end, for the text of a failure."""
        return self.log[-6_000:]

    @property
    def children(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    @property
    def all(self) -> list[int]:
        """The supervisor and its processes."""
        assert self.process is not None
        return [self.process.pid, *self.children]

    def signal(self, number: int) -> None:
        """To all of its processes, as if the machine did it."""
        for pid in self.all:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        assert self.process is not None
        self.signal(signal.SIGKILL)
        self.process.wait(START_S)
        self.where.clear()

    def stop(self) -> int:
        """As an operator does it: it hands over all of its seats."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(START_S)
        finally:
            if self.process.poll() is None:
                self.kill()
            self.where.clear()


class TestCluster:
    """Three nodes, or as many as are wanted."""

    __test__ = False

    def __init__(
        self, url: str, folder: Path, nodes: int = 3, shards: int = 16, seats: int = 4, listen: Sequence[str] = OFF
    ) -> None:
        self.url = url
        install(url, shards, seats)
        self.nodes = [ClusterNode(url, f"node{number}", folder, listen=listen) for number in range(nodes)]

    def start(self) -> None:
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.await_served()
        self.until_balanced()

    def status(self) -> ClusterStatus:
        return status_of(self.url)

    def held(self) -> dict[str, list[int]]:
        found = self.status()
        return {node.node: found.seats_of(node.node) for node in found.nodes if node.is_alive}

    def until_balanced(self) -> None:
        """All seats are held, and no node has two more than another."""

        def is_balanced() -> bool:
            found = self.status()
            held = {node.node: found.seats_of(node.node) for node in found.nodes if node.is_alive}
            counts = [len(seats) for seats in held.values()]
            return not found.unserved and len(held) == len(self.running) and max(counts) - min(counts) < 2

        until(is_balanced, "a balance", 120)
        self.until_served()

    def until_served(self) -> None:
        """Every seat answers."""
        client = stoker.connect(f"{self.running_address}?retry_s=1")

        def is_served() -> bool:
            try:
                client.get_stats()
                return True
            except (stoker.StokerError, OSError):
                return False

        until(is_served, "an answer of every seat", 120)
        client.close()

    @property
    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.process is not None and node.process.poll() is None]

    @property
    def running_address(self) -> str:
        return "tcp://" + ",".join(node.tcp for node in self.running)

    @property
    def address(self) -> str:
        """All nodes, for clients."""
        return "tcp://" + ",".join(node.tcp for node in self.nodes)

    def close(self) -> None:
        for node in self.running:
            assert node.process is not None
            node.signal(signal.SIGCONT)
            node.process.send_signal(signal.SIGTERM)
        for node in self.running:
            node.stop()


@contextmanager
def cluster_of(
    url: str, folder: Path, nodes: int = 3, shards: int = 16, seats: int = 4, listen: Sequence[str] = OFF
) -> Iterator[TestCluster]:
    cluster = TestCluster(url, folder, nodes, shards, seats, listen)
    try:
        cluster.start()
        yield cluster
    except BaseException:
        sys.stderr.write("".join(f"--- {node.name}\n{node.last_log}\n" for node in cluster.nodes))
        raise
    finally:
        cluster.close()


def until(condition: Callable[[], object], what: str, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.05)
