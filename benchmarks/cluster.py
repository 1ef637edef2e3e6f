"""The speed of a cluster: two nodes, started as people start them, and a PostgreSQL on the same machine.

Flushing is on, payloads have 100 bytes, and all of it goes through the real client. Each node has one of two seats, and
so one process. The same load goes to the node that has the queue, and to the other node, which passes it on. Then nodes
are killed, stopped and started while one caller pushes again and again: what counts is how long no push is accepted.
Every part checks that the jobs were there.
"""

import asyncio
import http.client
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import stoker
import stoker.aio
from benchmarks.measure import PAYLOAD, Row
from benchmarks.postgres import BATCH, CALLERS, CYCLE_BATCH, CYCLE_CALLERS, DEEP, Bare, together
from benchmarks.sizes import IS_SMOKE, SECONDS
from stoker.cli.measuring import quantiles, rate, settle
from stoker.model.errors import StokerError
from stoker.model.ids import process_of, shard_for
from stoker.worker.worker import loop_factory
from tests.cluster.nodes import ClusterNode, TestCluster, cluster_of, until
from tests.postgres_server import PostgresServer, fresh_database, shared

SHARDS, SEATS = 16, 2
PATIENCE_S = 120.0
CALM_S = 0.5 if IS_SMOKE else 3.0
"""Served before, and after, a seat changes hands."""
LOOK_S = 0.002
OLD_SIZE = 4
"""So many times larger are the payloads of old jobs: the newest 16 MiB are in memory."""
OUTAGE_S = 0.2 if IS_SMOKE else 1.0
"""How long PostgreSQL is away, besides its stop and its start."""

Load = Callable[[str, list[int]], float]
"""Jobs a second of callers that use this URL; how many were pushed is added to the list."""


def all_of_it() -> list[Row]:
    return [*passed_on(), *changes_of_hands(), *restart_of_postgres()]


@contextmanager
def nodes(
    server: PostgresServer, *, listen: tuple[str, ...] = ("--grpc", "off", "--http", "off")
) -> Iterator[TestCluster]:
    """Two nodes with a seat each."""
    with (
        fresh_database(server) as name,
        tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder,
        cluster_of(server.url(name), Path(folder), 2, SHARDS, SEATS, listen) as found,
    ):
        yield found


def queue_of(seat: int, number: int = 0) -> str:
    """The name of a queue that lies in a seat."""
    names = (f"q{tried}" for tried in range(10_000))
    return [name for name in names if process_of(shard_for("default", name, SHARDS), SEATS) == seat][number]


def holder(cluster: TestCluster, seat: int) -> ClusterNode:
    name = next(name for name, seats in cluster.held().items() if seat in seats)
    return next(node for node in cluster.nodes if node.name == name)


def other(cluster: TestCluster, node: ClusterNode) -> ClusterNode:
    return next(found for found in cluster.nodes if found is not node)


def client_of(node: ClusterNode, **settings: float) -> stoker.Client:
    parameters = "&".join(f"{name}={value}" for name, value in settings.items())
    return stoker.connect(f"tcp://{node.tcp}?{parameters}")


# --- by the node that has the seat, and by another one ---------------------------------------------------------------


def passed_on() -> Iterator[Row]:
    """Each load beside bare INSERTs of the same rows; by another node beside the one that has the seat."""
    with nodes(shared()) as cluster:
        held = cluster.held()
        assert sorted(map(len, held.values())) == [1, 1], held
        near = holder(cluster, 0)
        yield from both(cluster, near, batches, "push, batches of 1,000, one caller", BATCH, 1)
        yield from both(cluster, near, many_batches, "push, batches of 1,000, four callers", BATCH, 1)
        yield from both(cluster, near, singles, f"one push, {CALLERS} callers", 1, CALLERS)
        yield from both(cluster, near, cycles, "push, pull and ack, batches of 100, four callers", CYCLE_BATCH, 4, 3)


def both(
    cluster: TestCluster, near: ClusterNode, load: Load, what: str, jobs: int, rows: int, writes: int = 1
) -> list[Row]:
    """A load at both nodes. The floor INSERTs as many rows at once as gather, as often as a job is written."""
    bare, pushed = Bare(cluster.url, jobs, f"bare_{load.__name__}"), list[int]()
    before = pushed_to(near)
    own = load(f"tcp://{near.tcp}", pushed)
    passed = load(f"tcp://{other(cluster, near).tcp}", pushed)
    floor = rate(lambda: bare.insert(rows) // writes, SECONDS / 2)
    bare.close()
    assert pushed_to(near) - before == sum(pushed)
    return [
        Row(f"{what}, by the node that has the seat", own, floor, note=f"floor: bare INSERTs of {rows} rows"),
        Row(f"{what}, by another node", passed, own, note="asked 0.7 of the node that has it"),
    ]


def pushed_to(node: ClusterNode) -> int:
    with client_of(node) as client:
        return client.get_stats().totals.pushed


def batches(url: str, pushed: list[int]) -> float:
    with stoker.connect(url) as client:
        return rate(pushing(client, pushed), SECONDS / 2)


def many_batches(url: str, pushed: list[int]) -> float:
    with stoker.connect(url) as client:
        return together(pushing(client, pushed), CYCLE_CALLERS)


def pushing(client: stoker.Client, pushed: list[int]) -> Callable[[], int]:
    payloads, queue = [PAYLOAD] * BATCH, queue_of(0)

    def push() -> int:
        pushed.append(len(client.push_batch(queue, payloads).ids))
        return BATCH

    return push


def singles(url: str, pushed: list[int]) -> float:
    """Tasks of one event loop: so many threads would measure how they share an interpreter."""

    async def main() -> float:
        queue, before, began = queue_of(0), len(pushed), time.perf_counter()
        async with await stoker.aio.connect(url) as client:

            async def caller() -> None:
                while time.perf_counter() - began < SECONDS:
                    await client.push(queue, PAYLOAD)
                    pushed.append(1)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))
            return (len(pushed) - before) / (time.perf_counter() - began)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


def cycles(url: str, pushed: list[int]) -> float:
    """Push, pull and acknowledge, by four callers, each in a queue of its own of the same seat."""
    payloads, queues = [PAYLOAD] * CYCLE_BATCH, iter([queue_of(0, 1 + place) for place in range(CYCLE_CALLERS)])
    with stoker.connect(url) as client:

        def cycle() -> Callable[[], int]:
            queue = next(queues)

            def once() -> int:
                pushed.append(len(client.push_batch(queue, payloads).ids))
                assert settle(client, queue, CYCLE_BATCH) == CYCLE_BATCH
                return CYCLE_BATCH

            return once

        return together(cycle, CYCLE_CALLERS, made=True)


# --- a seat changes hands --------------------------------------------------------------------------------------------


class Caller:
    """Pushes again and again, through a node that stays, and notes when each push was accepted."""

    def __init__(self, node: ClusterNode, queue: str) -> None:
        self._client, self._queue = client_of(node, retry_s=0), queue
        self.times: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Caller":
        self._thread.start()
        self.until_calm()
        return self

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            with suppress(StokerError):
                self._client.push(self._queue, PAYLOAD)
                self.times.append(time.perf_counter())

    def until_calm(self) -> None:
        """Until it was served for a while."""
        since = time.perf_counter()
        until(lambda: self.times and self.times[-1] - since > CALM_S, "an accepted push", PATIENCE_S)

    def longest_gap(self, since: float) -> float:
        """The longest time between two pushes that were accepted, from a moment on, in ms."""
        last = max(at for at in self.times if at <= since)
        later = [last, *(at for at in self.times if at > since)]
        return 1000 * max(after - before for before, after in pairwise(later))

    def first_after(self, since: float) -> float:
        return min(at for at in self.times if at > since) - since

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()


def changes_of_hands() -> list[Row]:
    """The seat has many waiting jobs each time, and the caller speaks to the node that stays. The worst counts."""
    with nodes(shared()) as cluster:
        gone = holder(cluster, 1)
        stays, queue = other(cluster, gone), queue_of(1)
        with client_of(stays) as client:
            client.push_many(queue, [PAYLOAD] * DEEP, batch_jobs=BATCH)
        with Caller(stays, queue) as caller:
            killed = after_kill(cluster, gone, caller)
            gained = when_it_comes_back(cluster, gone, caller)
            given = after_sigterm(gone, caller)
            gained = max(gained, when_it_comes_back(cluster, gone, caller))
        with client_of(stays) as client:
            assert client.get_counts(queue).waiting >= DEEP + len(caller.times)
    deep = f"a seat with {DEEP:,} waiting jobs"
    return [
        Row(f"{deep} serves after kill -9 of its node", killed, unit="ms", note="asked 7,000"),
        Row(f"{deep} moves to a node that starts: no answer", gained, unit="ms", note="asked 1,500"),
        Row(f"{deep} moves after SIGTERM: no answer", given, unit="ms", note="asked 1,500"),
    ]


def after_kill(cluster: TestCluster, gone: ClusterNode, caller: Caller) -> float:
    began = time.perf_counter()
    gone.kill()
    dead = time.perf_counter()
    caller.until_calm()
    cluster.until_balanced()
    return 1000 * (caller.first_after(dead) + dead - began)


def when_it_comes_back(cluster: TestCluster, gone: ClusterNode, caller: Caller) -> float:
    """The node that has all seats hands the last one over."""
    began = time.perf_counter()
    gone.start()
    until(lambda: 1 in cluster.held()[gone.name], "the seat at the node that came back", PATIENCE_S)
    caller.until_calm()
    return caller.longest_gap(began)


def after_sigterm(gone: ClusterNode, caller: Caller) -> float:
    began = time.perf_counter()
    assert gone.stop() == 0, gone.log
    caller.until_calm()
    return caller.longest_gap(began)


# --- PostgreSQL is restarted -----------------------------------------------------------------------------------------


def restart_of_postgres() -> list[Row]:
    """A node's `/health`, asked again and again on one connection, is answered by its event loop.

    Meanwhile callers push, pull and acknowledge; what they pull is also old jobs, whose payloads are in PostgreSQL
    alone. The figure beside it is the same without a restart.
    """
    server = PostgresServer()
    try:
        with nodes(server, listen=("--grpc", "off", "--http", "127.0.0.1:0")) as cluster:
            node = holder(cluster, 0)
            with client_of(node) as client:
                client.push_many(queue_of(0), [PAYLOAD * OLD_SIZE] * DEEP, batch_jobs=BATCH)
            calm = asked_often(node, lambda: time.sleep(2 * OUTAGE_S))

            def restart() -> None:
                server.stop()
                time.sleep(OUTAGE_S)
                server.start()
                cluster.until_served()

            away = asked_often(node, restart)
            with client_of(node) as client:
                assert client.get_stats().totals.pushed >= DEEP
    finally:
        server.close()
    note = f"asked 50; p99 {quantiles(away).p99 * 1000:.1f} ms of {len(away):,}"
    return [
        Row("worst answer of /health while PostgreSQL is restarted", max(away) * 1000, max(calm) * 1000, "ms", note)
    ]


def asked_often(node: ClusterNode, meanwhile: Callable[[], object]) -> list[float]:
    """How long each answer took, under load, while something else happens."""
    ended = threading.Event()
    loads = [threading.Thread(target=work, args=(node, place, ended)) for place in range(CYCLE_CALLERS)]
    for load in loads:
        load.start()
    host, _, port = node.where["http"].removeprefix("http://").rpartition(":")
    asking = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
    times: list[float] = []

    def ask() -> None:
        while not ended.wait(LOOK_S):
            began = time.perf_counter()
            try:
                asking.request("GET", "/health")
                assert asking.getresponse().read()
            except (http.client.HTTPException, OSError):
                asking.close()  # the process that answered has lost its seat; the next request goes to another one
                continue
            times.append(time.perf_counter() - began)

    asker = threading.Thread(target=ask)
    asker.start()
    meanwhile()
    ended.set()
    for thread in (asker, *loads):
        thread.join()
    asking.close()
    return times


def work(node: ClusterNode, place: int, ended: threading.Event) -> None:
    """Push, pull and acknowledge some jobs now and then, whatever comes back."""
    with client_of(node, retry_s=0) as client:
        queue = queue_of(0, place)
        while not ended.wait(LOOK_S):
            with suppress(StokerError):
                client.push_batch(queue, [PAYLOAD] * 10)
                settle(client, queue, 10)
                settle(client, queue_of(0), 10)
