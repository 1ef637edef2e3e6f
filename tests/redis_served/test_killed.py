"""Servers in front of one Redis are killed at random under load. Nothing is lost, and no job has two leases at once."""

import os
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import stoker
from stoker.client.sync import Client
from stoker.model.errors import LostLease
from stoker.model.event_table import ENDS_DELIVERY
from stoker.model.events import Event
from stoker.model.options import Options
from tests.redis.servers import shared
from tests.redis_served.balancer import Balancer
from tests.redis_served.nodes import SOON_S, Node, until
from tests.soaking import SOAKS

JOBS = 6_000 if SOAKS else 900
KILLS = 20 if SOAKS else 3
PRODUCERS, WORKERS = 3, 4
LEASE_MS = 2_000


class Load:
    """Producers and workers that know one address, and come back when a server dies."""

    def __init__(self, url: str, jobs: int) -> None:
        self.url, self.jobs = url, jobs
        self.pushed: list[int] = []
        self.acked: list[int] = []
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            *(threading.Thread(target=self._guarded, args=(self._produce, number)) for number in range(PRODUCERS)),
            *(threading.Thread(target=self._guarded, args=(self._work, number)) for number in range(WORKERS)),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(SOON_S)

    def has_done(self, count: float) -> bool:
        return len(self.acked) >= count or bool(self.errors)

    def _guarded(self, act: Callable[[int], None], number: int) -> None:
        try:
            act(number)
        except BaseException as error:
            self.errors.append(error)

    def _connect(self) -> Client:
        return stoker.connect(self.url)

    def _produce(self, number: int) -> None:
        options = Options(lease_ms=LEASE_MS, max_attempts=100, max_crashes=100)
        with self._connect() as client:
            for batch in range(self.jobs // PRODUCERS // 10):
                payloads = [b"%d" % (batch * 10 + place) for place in range(10)]
                if batch % 2:
                    ids = list(client.push_many("q", payloads, options).ids)
                else:
                    ids = [client.push("q", payload, options).id for payload in payloads]
                with self._lock:
                    self.pushed += ids

    def _work(self, number: int) -> None:
        with self._connect() as client:
            while not self._over.is_set():
                delivery = client.pull("q", 5, wait_ms=200, worker=f"w{number}")
                for job in delivery:
                    try:
                        client.ack(job.id, job.token)
                    except LostLease:
                        continue  # it came too late: another worker gets the job
                    with self._lock:
                        self.acked.append(job.id)


@pytest.fixture
def seed() -> int:
    drawn = random.SystemRandom().randrange(1 << 32) if SOAKS else 1
    return int(os.environ.get("STOKER_SEED", "0")) or drawn


def test_servers_are_killed_at_random_under_load(tmp_path: Path, seed: int):
    print(f"STOKER_SEED={seed}")  # noqa: T201  shown if the test fails
    chance = random.Random(seed)
    server = shared("redis")
    folders = iter(tmp_path / f"node{number}" for number in range(100))
    nodes = [Node(next(folders), server) for _ in range(2)]
    balancer = Balancer(chance)
    balancer.targets = [port_of(node) for node in nodes]
    load = Load(f"tcp://127.0.0.1:{balancer.port}?retry_s=60", JOBS)
    try:
        load.start()
        for number in range(KILLS):
            until(partial(load.has_done, JOBS * (number + chance.random()) / (KILLS + 1)))
            victim = chance.randrange(2)
            nodes[victim].kill()
            nodes[victim] = Node(next(folders), server)
            balancer.targets = [port_of(node) for node in nodes]
        until(lambda: len(load.pushed) >= JOBS or load.errors)
        with nodes[0].connect() as client:
            until(lambda: client.get_stats("q").totals.completed >= JOBS or load.errors)
    finally:
        load.end()
        balancer.close()
        with nodes[0].connect() as client:
            events = all_events(client)
        for node in nodes:
            node.kill()
    assert not load.errors
    assert len(load.pushed) == len(set(load.pushed)) == JOBS
    check(events, set(load.pushed))
    with server.client() as redis:
        redis.flushall()


def port_of(node: Node) -> int:
    return int(node.urls["tcp"].rpartition(":")[2])


def all_events(client: Client) -> list[Event]:
    events, after = list[Event](), 0
    while True:
        page = client.read_events(0, after, limit=1_000)
        events += page.events
        if page.next_after == after:
            return events
        after = page.next_after


def check(events: list[Event], pushed: set[int]) -> None:
    """Each job is started only while no worker has it, and completed once."""
    running: dict[int, Event] = {}
    completed: set[int] = set()
    for event in events:
        if event.kind == "started":
            assert event.job not in running, f"two leases of job {event.job}: {running[event.job]}, {event}"
            assert event.job not in completed
            running[event.job] = event
        elif event.kind in ENDS_DELIVERY:
            running.pop(event.job, None)
            if event.kind == "completed":
                assert event.job not in completed
                completed.add(event.job)
    assert {event.job for event in events if event.kind == "pushed"} == pushed
    assert completed == pushed
    assert not running
