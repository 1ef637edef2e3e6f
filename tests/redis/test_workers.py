"""Apps, workers and the command line on a queue in Redis, as processes of their own. The net is ten minutes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stoker
from tests.redis.servers import RedisServer

APP = """
import os, time
import stoker
app = stoker.App()

@app.job()
def double(number: int) -> int:
    return 2 * number

@app.job(lease="2s", backoff="10ms")
def slow(path: str) -> str:
    attempt = os.path.getsize(path) if os.path.exists(path) else 0
    with open(path, "a") as file:
        file.write("x")
    if attempt == 0:
        time.sleep(600)
    return "done"
"""
SOON_S = 60.0


class Place:
    """A folder with an app, and processes that run there."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder, self.url = folder, server.url + "?net_ms=600000"
        (folder / "jobs.py").write_text(APP)
        self.environment = {**os.environ, "STOKER_URL": self.url, "PYTHONPATH": str(folder)}
        self.started: list[subprocess.Popen[bytes]] = []

    def stoker(self, *words: str, ok: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "stoker", *words],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SOON_S, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    def python(self, text: str) -> str:
        text = f"import jobs\n{text}"
        return subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SOON_S, check=True,
        ).stdout.strip()  # fmt: skip

    def worker(self) -> "subprocess.Popen[bytes]":
        log = (self.folder / "worker.log").open("ab")
        words = [sys.executable, "-m", "stoker", "worker", "jobs:app"]
        self.started.append(subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=log, stderr=log))
        log.close()
        return self.started[-1]


@pytest.fixture
def place(tmp_path: Path, server: RedisServer) -> Iterator[Place]:
    found = Place(tmp_path, server)
    yield found
    for process in found.started:
        process.kill()
        process.wait()


def until(condition: Any, place: Place) -> Any:
    for _ in range(int(SOON_S * 50)):
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError((place.folder / "worker.log").read_text())


def test_an_app_and_an_idle_worker(place: Place, server: RedisServer):
    place.worker()
    with server.client() as client:
        until(lambda: client.info("clients")["blocked_clients"] >= 1, place)
    assert place.python("print(jobs.double.push_sync(21).result_sync(timeout='50s'))") == "42"


def test_the_job_of_a_killed_worker_comes_back(place: Place):
    path = place.folder / "attempts"
    with stoker.connect(place.url) as queue:
        first = place.worker()
        job = int(place.python(f"print(jobs.slow.push_sync({str(path)!r}).id)"))
        until(lambda: path.exists() and path.stat().st_size >= 1, place)
        first.kill()
        first.wait()
        place.worker()
        until(lambda: queue.get_job(job).state == "completed", place)
    assert path.stat().st_size >= 2


def test_the_command_line(place: Place):
    job = json.loads(place.stoker("push", "mail", '{"to": "ann"}', "--json"))
    number = str(job["id"] if isinstance(job, dict) else job)
    assert "mail" in place.stoker("queue", "list")
    assert "mail" in place.stoker("job", "show", number)
    assert place.stoker("stats")
    assert place.stoker("dlq", "list", "mail") is not None
    assert "mail" in place.stoker("top", "--once")
    assert "ann" in place.stoker("pull", "mail")
    said = place.stoker("doctor")
    assert "redis" in said
    assert "durability" in said
