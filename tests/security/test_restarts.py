"""A server that is killed and started again under load, with live clients: what was acknowledged is there, once."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.brokers.connect import open_broker
from stoker.model import commands as c
from stoker.model.errors import StokerError
from tests.ports import kept_port

KILLS = 4
PUSHES_BETWEEN = 60


class ServerProcess:
    """`stoker serve` as people start it."""

    def __init__(self, directory: Path, port: int) -> None:
        command = [sys.executable, "-m", "stoker", "serve", "--data", str(directory), "--http", "off", "--grpc", "off"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
        self.process = subprocess.Popen(
            [*command, "--tcp", f"127.0.0.1:{port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory.parent,
            env=environment,
        )
        assert self.process.stdout is not None
        assert b"tcp" in self.process.stdout.readline()

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(how)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


class Producer(threading.Thread):
    """Pushes as fast as it is answered, and remembers what it was promised."""

    def __init__(self, number: int, port: int) -> None:
        super().__init__(daemon=True)
        self._number, self._port = number, port
        self.over = threading.Event()
        self.pushed: dict[bytes, int] = {}
        self.unsure: set[bytes] = set()
        self.surprise: BaseException | None = None

    def run(self) -> None:
        broker = open_broker(f"tcp://127.0.0.1:{self._port}?retry_s=60&timeout_s=20")
        try:
            count = 0
            while not self.over.is_set():
                count += 1
                payload = b"%d-%d" % (self._number, count)
                try:
                    self.pushed[payload] = broker.execute("default", c.Push("q", payload)).id
                except StokerError:
                    self.unsure.add(payload)
        except BaseException as error:
            self.surprise = error
        finally:
            broker.close()


@contextmanager
def producing(port: int, count: int) -> Iterator[list[Producer]]:
    producers = [Producer(number, port) for number in range(count)]
    for producer in producers:
        producer.start()
    try:
        yield producers
    finally:
        for producer in producers:
            producer.over.set()


def wait_for_progress(producers: list[Producer], more: int) -> None:
    """Until each has been promised so many more jobs."""
    goals = [len(producer.pushed) + more for producer in producers]
    for _ in range(6_000):
        if all(len(one.pushed) >= goal for one, goal in zip(producers, goals, strict=True)):
            return
        for producer in producers:
            producer.join(0.01)
            assert producer.is_alive(), producer.surprise
    raise AssertionError("no progress in a minute")


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


def test_every_acknowledged_push_survives_kills_once(tmp_path: Path, port: int):
    server = ServerProcess(tmp_path / "data", port)
    try:
        with producing(port, 3) as producers:
            for _ in range(KILLS):
                wait_for_progress(producers, PUSHES_BETWEEN)
                server.end()
                server = ServerProcess(tmp_path / "data", port)
            wait_for_progress(producers, PUSHES_BETWEEN)
        for producer in producers:
            producer.join(60)
            assert not producer.is_alive()
            assert producer.surprise is None
        found, ids = everything(port)
        assert server.end(signal.SIGTERM) == 0
    finally:
        if server.process.poll() is None:
            server.end()
    promised = {payload: job for producer in producers for payload, job in producer.pushed.items()}
    unsure = {payload for producer in producers for payload in producer.unsure}
    assert len(promised) > 3 * KILLS * PUSHES_BETWEEN
    assert [payload for payload in promised if found[payload] != 1] == []
    assert [payload for payload, count in found.items() if count != 1] == []
    assert found.keys() <= promised.keys() | unsure
    assert {payload: ids[payload] for payload in promised} == promised


def everything(port: int) -> tuple[Counter[bytes], dict[bytes, int]]:
    """What is in the queue, taken out of it by pulling."""
    broker = open_broker(f"tcp://127.0.0.1:{port}?retry_s=60")
    found: Counter[bytes] = Counter()
    ids: dict[bytes, int] = {}
    try:
        while delivery := broker.execute("default", c.Pull(["q"], 1_000)):
            for job in delivery:
                found[job.payload] += 1
                ids[job.payload] = job.id
            broker.execute("default", c.Ack(delivery.ids, delivery.token))
    finally:
        broker.close()
    return found, ids
