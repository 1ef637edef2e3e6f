"""Redis with `appendfsync always`, its producers and its workers, all killed at random: nothing is lost."""

import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stoker
from stoker.model.event_table import TABLE
from stoker.model.events import Event, EventKind
from tests.redis import load
from tests.redis.conftest import MakeServer
from tests.redis.servers import RedisServer
from tests.soaking import SOAKS

ROUNDS = 60 if SOAKS else 4
KINDS = ("produce", "produce", "work", "work")
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no")


class Scene:
    """A Redis, and processes that use it."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.url = f"{server.url}?retry_s=60"
        self.processes = [self.start(kind) for kind in KINDS]

    def start(self, kind: str) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "tests.redis.load", kind, self.url, str(self.folder / kind)]
        return subprocess.Popen(words)

    def kill_one(self, place: int) -> None:
        self.processes[place].kill()
        self.processes[place].wait()
        self.processes[place] = self.start(KINDS[place])

    def end(self, *kinds: str) -> None:
        for place, process in enumerate(self.processes):
            if KINDS[place] in kinds:
                process.kill()
                process.wait()

    def noted(self, kind: str) -> list[list[int]]:
        path = self.folder / kind
        text = path.read_text() if path.exists() else ""
        return [[int(part) for part in line.split()[1:]] for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def until_more(self, kind: str) -> None:
        before = len(self.noted(kind))
        until(lambda: len(self.noted(kind)) > before + 20, f"they {kind}")


def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(6_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(what)


@pytest.fixture
def scene(make_server: MakeServer, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(make_server("redis", *DURABLE), tmp_path)
    yield made
    made.end(*KINDS)


def test_nothing_is_lost_and_no_two_leases_are_valid(scene: Scene):
    rng = random.Random(7)
    for number in range(ROUNDS):
        scene.until_more("produce")
        scene.until_more("work")
        if number % 2:
            scene.kill_one(rng.randrange(len(KINDS)))
        else:
            scene.server.restart()
    scene.until_more("work")
    scene.end("produce")
    with stoker.connect(scene.url) as queue:
        assert queue.push(load.QUEUE, b"", load.OPTIONS).level == "fsync"
        until(lambda: not any(live(queue)), "everything is worked off")
        scene.end("work")
        pushed, acked = {job for (job,) in scene.noted("produce")}, scene.noted("work")
        completed = {event.job for event in events(queue) if event.kind == "completed"}
        assert len(pushed) > 100
        assert pushed - completed == set(), "an answered push is there"
        assert {job for job, _ in acked} - completed == set(), "an answered ack holds"
        settled = defaultdict(set)
        for job, token in acked:
            settled[job].add(token)
        assert not [job for job, tokens in settled.items() if len(tokens) > 1], "two deliveries were settled"
        assert queue.broker.losses == 0  # type: ignore[attr-defined]
        check_leases(queue)


def live(queue: stoker.Client) -> tuple[int, int, int]:
    counts = queue.get_counts(load.QUEUE)
    return counts.waiting, counts.active, counts.delayed


def events(queue: stoker.Client) -> Iterator[Event]:
    after = 0
    while (page := queue.read_events(after=after)).events:
        yield from page.events
        after = page.next_after


def check_leases(queue: stoker.Client) -> None:
    """By the history: no job starts while a delivery of it is valid."""
    held: dict[int, int] = {}
    for event in events(queue):
        if event.kind == "started":
            assert event.job not in held, f"job {event.job} was given out twice"
            held[event.job] = event.token
        elif TABLE[EventKind(event.kind)].delivery:
            held.pop(event.job, None)
    assert not held
