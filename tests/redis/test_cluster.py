"""A cluster of three nodes on loopback, and a tenant's slot that moves from node to node under load.

It takes a while to meet, so it runs in the soak; one node in cluster mode is in `test_server_away.py`.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import stoker
from stoker import Client
from tests.redis.conftest import MakeServer
from tests.redis.test_server_away import slot_of
from tests.redis.three_nodes import Cluster, until
from tests.soaking import SOAKS

JOBS = 3_000
MOVES = 6
TENANT = "moves"


def has_more(done: list[int], than: int) -> bool:
    return len(done) > than


def produce(queue: Client, told: list[int]) -> None:
    while len(told) < JOBS:
        told += queue.push_batch("q", [b"x"] * 10, max_attempts=1_000, max_crashes=1_000).ids
        time.sleep(0.005)


def work(queue: Client, done: list[int], is_over: threading.Event) -> None:
    while not is_over.is_set():
        delivery = queue.pull("q", 20, wait_ms=200)
        if ids := list(delivery.ids):
            refused = queue.ack_batch(ids, delivery.token).refused
            done += [job for job in ids if job not in refused]


if SOAKS:

    @pytest.mark.parametrize("kind", ["redis", "valkey"])
    def test_a_slot_that_moves_under_load_loses_nothing(make_server: MakeServer, kind: str):
        cluster, slot, is_over = Cluster(make_server, kind), slot_of(TENANT), threading.Event()
        told, done = list[int](), list[int]()
        url = f"redis://127.0.0.1:{cluster.ports[0]}?cluster=true&retry_s=120"
        with (
            stoker.connect(url, tenant=TENANT) as producer,
            stoker.connect(url, tenant=TENANT) as worker,
            ThreadPoolExecutor(3) as pool,
        ):
            calls = [
                pool.submit(produce, producer, told),
                *(pool.submit(work, worker, done, is_over) for _ in range(2)),
            ]
            try:
                for _ in range(MOVES):
                    until(partial(has_more, done, len(done)), "they work")
                    source = cluster.owner_of(slot)
                    cluster.move(slot, source, (source + 1) % 3)
                calls[0].result(600)
                until(lambda: len(set(done)) >= len(told) or any(call.done() for call in calls[1:]), "all is done")
            finally:
                is_over.set()
            for call in calls:
                call.result(600)
            assert sorted(done) == sorted(told), "each job was done once"
            assert producer.get_stats("q").totals.completed == len(told)
            assert [broker.losses for broker in (producer.broker, worker.broker)] == [0, 0]  # type: ignore[attr-defined]
        cluster.close()

    def test_tenants_spread_over_the_nodes(make_server: MakeServer):
        cluster = Cluster(make_server, "redis")
        with stoker.connect(f"redis://127.0.0.1:{cluster.ports[2]}?cluster=true&retry_s=60") as queue:
            for number in range(30):
                tenant = queue.as_tenant(f"tenant-{number}")
                job = tenant.push("q", b"x").id
                delivery = tenant.pull("q", wait_ms=60_000)
                assert list(delivery.ids) == [job]
                tenant.ack(job, delivery.token)
            assert all(client.dbsize() > 0 for client in cluster.clients)
        cluster.close()
