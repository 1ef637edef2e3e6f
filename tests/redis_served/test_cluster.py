"""Two servers in front of a Redis Cluster of three: tenants spread over it, and a slot moves while jobs run."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.redis.test_server_away import slot_of
from tests.redis.three_nodes import Cluster
from tests.redis_served.conftest import MakeNode, MakeServer
from tests.redis_served.nodes import NET, Node, until

TENANTS = [f"tenant-{number}" for number in range(9)]
JOBS = 300
MOVED = TENANTS[0]


def produce(node: Node, tenant: str, told: list[int]) -> None:
    with node.connect(tenant=tenant) as client:
        for _ in range(JOBS // 10):
            told += client.push_batch("q", [b"x"] * 10, max_attempts=1_000, max_crashes=1_000).ids


def work(node: Node, tenant: str, done: list[int], is_over: threading.Event) -> None:
    with node.connect(tenant=tenant) as client:
        while not is_over.is_set():
            delivery = client.pull("q", 20, wait_ms=200)
            if ids := list(delivery.ids):
                refused = client.ack_batch(ids, delivery.token).refused
                done += [job for job in ids if job not in refused]


def test_two_servers_in_front_of_a_cluster(make_server: MakeServer, make_node: MakeNode):
    cluster = Cluster(make_server, "redis")
    url = f"redis://127.0.0.1:{cluster.ports[1]}?cluster=true&retry_s=60&{NET}"
    one, two = (make_node(cluster.servers[0], url=url) for _ in range(2))
    for tenant in TENANTS:
        with one.connect("http", tenant) as producer, two.connect("tcp", tenant) as worker:
            job = producer.push("mail", b"hello").id
            delivery = worker.pull("mail", wait_ms=60_000)
            assert list(delivery.ids) == [job]
            worker.ack(job, delivery.token, b"sent")
            assert producer.wait_job(job, 60_000).result == b"sent"
    assert all(client.dbsize() > 0 for client in cluster.clients), "every server of the cluster has tenants"

    told, done, is_over = list[int](), list[int](), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(produce, one, MOVED, told), pool.submit(work, two, MOVED, done, is_over)]
        try:
            for _ in range(2):
                until(partial(len, done))
                source = cluster.owner_of(slot_of(MOVED))
                cluster.move(slot_of(MOVED), source, (source + 1) % 3)
            calls[0].result(60)
            until(lambda: len(done) >= len(told) or calls[1].done())
        finally:
            is_over.set()
        calls[1].result(60)
    assert sorted(done) == sorted(told), "each job was done once"
    cluster.close()
