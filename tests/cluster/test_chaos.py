"""Histories of a cluster: clients work at three nodes while nodes, processes, ways and PostgreSQL itself go and return.

STOKER_SEED=7 pytest tests/cluster/test_chaos.py               another seed
STOKER_CHAOS_MINUTES=10 pytest tests/cluster/test_chaos.py     so long; 30 minutes with STOKER_SOAK=1
"""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker.journal.postgres.cluster import status_of
from stoker.journal.postgres.schema import install
from stoker.journal.postgres.seats import LEASE_S, RENEW_S
from stoker.model.errors import Unavailable, Unknown
from tests.cluster.nodes import ClusterNode, until
from tests.cluster.ordered_work import SETTINGS, WITH_HTTP, OrderedWork, ordered_work
from tests.cluster.proxy import Proxy, listeners_in_a_row
from tests.histories import scene as scenes
from tests.histories.checker import Checker
from tests.histories.scene import PATIENT, Scene
from tests.histories.workload import QUEUES, SHARDS
from tests.ports import kept_ports_in_a_row
from tests.postgres_server import PostgresServer
from tests.soaking import SOAKS

SEATS, NODES = 2, 3
BEYOND_S = LEASE_S + 1.5
PATIENCE_S = 180.0
JOURNAL = ("--set", "journal.wal_bytes_max=300000", "--set", "journal.checkpoint_records=2000")
"""So that partitions are finished, saved and begun all the time."""
SEED = int(os.environ.get("STOKER_SEED", "1"))
MINUTES = float(os.environ.get("STOKER_CHAOS_MINUTES", "30" if SOAKS else "0"))
"""Every disturbance happens once. Then they start over, until the time is up."""


class ClusterBroker:
    """Three nodes, of which one has no seat, each with a way of its own to PostgreSQL."""

    excused = frozenset({"unavailable", "unreachable", "shutting_down"})
    """A seat is away for some seconds when its node is."""
    settings = None

    def __init__(self, folder: Path) -> None:
        self.postgres = PostgresServer()
        direct = self.postgres.url()
        install(direct, SHARDS, SEATS)
        self.proxies = [Proxy(self.postgres.port) for _ in range(NODES)]
        urls = [direct.replace(f":{self.postgres.port}/", f":{proxy.port}/") for proxy in self.proxies]
        self._kept = ExitStack()
        self.links: list[Proxy] = []
        """On the ways from other nodes to each seat of each node."""
        self.nodes = [
            ClusterNode(url, f"node{number}", folder, *self._ways(), *SETTINGS, *JOURNAL, listen=WITH_HTTP)
            for number, url in enumerate(urls)
        ]
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.await_served()

    def _ways(self) -> list[str]:
        """Where a node listens, and the proxies through which the others reach it."""
        told = listeners_in_a_row(SEATS)
        ports = self._kept.enter_context(kept_ports_in_a_row(SEATS))
        self.links += [Proxy(port, listener) for port, listener in zip(ports, told, strict=True)]
        reached = f"cluster.advertise=127.0.0.1:{told[0].getsockname()[1]}"
        return ["--cluster-listen", f"127.0.0.1:{ports[0]}", "--set", reached]

    @property
    def url(self) -> str:
        return "tcp://" + ",".join(node.tcp for node in self.nodes) + PATIENT

    @property
    def urls(self) -> list[str]:
        return [self.url] * NODES

    def pids(self) -> list[int]:
        return [pid for node in self.nodes for pid in node.all]

    def close(self) -> None:
        for proxy in (*self.proxies, *self.links):
            proxy.heal()
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.signal(signal.SIGCONT)
                node.kill()
        for proxy in (*self.proxies, *self.links):
            proxy.close()
        self._kept.close()
        self.postgres.close()

    def said(self) -> str:
        return "\n".join(f"--- {node.name}\n{node.last_log}" for node in self.nodes)


class ClusterScene(Scene):
    """A cluster, its clients, and what becomes of them."""

    broker: Any

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.beginning: list[threading.Thread] = []

    def _node(self) -> ClusterNode:
        """Any that runs."""
        for thread in self.beginning:
            thread.join(PATIENCE_S)
        node: ClusterNode = self.chance.choice(self.broker.nodes)
        return node

    def _proxy(self) -> Proxy:
        proxy: Proxy = self.chance.choice(self.broker.proxies)
        return proxy

    def is_calm(self) -> bool:
        """Every node is there, and no seat is about to move."""
        before = self._epochs()
        time.sleep(2 * RENEW_S)
        return bool(before) and self._epochs() == before

    def _epochs(self) -> list[int]:
        """Of all seats; none while one is free, or a node has two more than another."""
        found = status_of(self.broker.postgres.url())
        counts = [len(found.seats_of(node.node)) for node in found.nodes if node.is_alive]
        if found.unserved or len(counts) < NODES or max(counts) - min(counts) > 1:
            return []
        return [row.epoch for row in found.seats]

    def kill_node(self) -> None:
        """It stays away until its seats are taken, and comes back."""
        node = self._node()
        node.kill()
        time.sleep(self.chance.choice((0.0, BEYOND_S)))
        self._begin_again(node)

    def _begin_again(self, node: ClusterNode) -> None:
        """As a supervisor of services does it: until it serves. PostgreSQL may be away meanwhile."""

        def begin() -> None:
            while not node.where:
                node.begin()
                with suppress(AssertionError):
                    node.await_served()

        self.beginning.append(threading.Thread(target=begin, daemon=True))
        self.beginning[-1].start()

    def kill_process(self) -> None:
        """All processes of a node may be between two lives: they end when PostgreSQL does."""
        node = self._node()
        until(lambda: self._kill_child(node), f"a process of {node.name}", PATIENCE_S)

    def _kill_child(self, node: ClusterNode) -> bool:
        children = node.children
        return bool(children) and sent(self.chance.choice(children), signal.SIGKILL)

    def stop_node(self) -> None:
        """It sleeps beyond its lease and goes on as if nothing had happened."""
        stopped = [pid for pid in self._node().all if sent(pid, signal.SIGSTOP)]
        time.sleep(BEYOND_S)
        for pid in stopped:
            sent(pid, signal.SIGCONT)

    def end_node(self) -> None:
        """As an operator does it."""
        node = self._node()
        assert node.stop() == 0, node.last_log
        self._begin_again(node)

    def restart_postgres(self) -> None:
        self.broker.postgres.restart("immediate")

    def end_backends(self) -> None:
        with self.broker.postgres.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'stoker%' AND pid <> pg_backend_pid()"
            )

    def cut_from_postgres(self) -> None:
        proxy = self._proxy()
        proxy.cut()
        time.sleep(self.chance.choice((1.0, BEYOND_S)))
        proxy.heal()

    def cut_nodes_from_each_other(self) -> None:
        for proxy in self.broker.links:
            proxy.cut()
        time.sleep(self.chance.choice((0.5, 3.0)))
        for proxy in self.broker.links:
            proxy.heal()

    def hold_one_way(self) -> None:
        """What the node sends arrives and the answers do not, or the other way round; then all of it comes at once."""
        proxy, there = self._proxy(), self.chance.random() < 0.5
        proxy.hold(there=there, back=not there)
        time.sleep(BEYOND_S)
        proxy.heal()


DEEDS: dict[str, Callable[[ClusterScene], None]] = {
    "kill a node": ClusterScene.kill_node,
    "kill a process": ClusterScene.kill_process,
    "stop a node beyond its lease": ClusterScene.stop_node,
    "end a node": ClusterScene.end_node,
    "restart PostgreSQL": ClusterScene.restart_postgres,
    "end the backends": ClusterScene.end_backends,
    "cut a node from PostgreSQL": ClusterScene.cut_from_postgres,
    "cut nodes from each other": ClusterScene.cut_nodes_from_each_other,
    "hold what a node says or hears": ClusterScene.hold_one_way,
    "kill a client": ClusterScene.kill_client,
}


def sent(pid: int, number: int) -> bool:
    """Whether the process was there to get the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def opened(seed: int, folder: Path) -> Iterator[ClusterScene]:
    broker: Any = ClusterBroker(folder)
    scene = ClusterScene(broker, None, seed, folder)
    try:
        scene.start()
        yield scene
    finally:
        scene.close()


def is_ticking(client: stoker.Client, queue: str) -> bool:
    """A schedule that is there already stays as it is."""
    try:
        client.put_schedule(queue, "tick", every_ms=1_000, payload=b"")
        return True
    except (Unavailable, Unknown):
        return False


def numbers(scene: ClusterScene, checker: Checker, ordered: OrderedWork) -> dict[str, int]:
    """What a run has done and found."""
    done = Counter(scene.deeds)
    return {
        "jobs": checker.counts["acknowledged"] + len(ordered.pushed),
        "deliveries": checker.counts["deliveries"] + len(ordered.held),
        "unknown outcomes": checker.counts["unknown"],
        "webhooks": len(ordered.receiver.confirmed),
        "posts of them": ordered.receiver.posts,
        **{deed: done[deed] for deed in DEEDS},
        "lost": len(checker.found["lost"]),
        "doubled": len(checker.found["doubled"]),
    }


def as_text(found: dict[str, list[str]]) -> str:
    """Everything that is wrong: pytest shows only the beginning of what it compares."""
    return "\n".join(f"{rule}: {what}" for rule, wrong in found.items() for what in wrong)


def test_a_cluster_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(scenes, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(scenes, "DEEDS", DEEDS)
    with (
        opened(SEED, tmp_path) as scene,
        ordered_work(scene.broker.url, scene.broker.nodes[0].where["http"]) as ordered,
        stoker.connect(scene.broker.url, tenant="slots") as ticking,
    ):
        for queue in QUEUES:
            until(lambda queue=queue: is_ticking(ticking, queue), "a schedule", PATIENCE_S)  # type: ignore[misc]
        deadline, is_over = time.monotonic() + MINUTES * 60, False
        while not is_over:
            scene.play(*scene.chance.sample(list(DEEDS), len(DEEDS)))
            is_over = time.monotonic() >= deadline
        until(lambda: all(node.where for node in scene.broker.nodes), "all nodes", PATIENCE_S)
        until(scene.is_calm, "rest", PATIENCE_S)
        ordered.finish()
        checker = scene.check()
        for queue in QUEUES:
            slots = [job.options.slot for job in ticking.browse(queue, limit=1_000).jobs]
            assert len(slots) > 5, "the schedule goes on"
            assert len(set(slots)) == len(slots), f"{queue} has a slot twice: {sorted(slots)}"
        found = {**checker.found, **{f"in order: {rule}": wrong for rule, wrong in ordered.check().items()}}
        counted = numbers(scene, checker, ordered)
        if MINUTES:
            with capsys.disabled():
                print(f"\nseed {SEED}, {MINUTES:g} minutes: {counted}")  # noqa: T201
        assert found == {}, f"{as_text(found)}\nseed {SEED}, {scene.deeds}, {counted}\n{scene.broker.said()}"
        assert checker.counts["settled"] > 50
        assert len(ordered.pushed) > 20
