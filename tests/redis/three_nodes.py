"""Three Redis servers on loopback that form a cluster, and slots that move between them."""

import time
from collections.abc import Callable
from functools import partial

import redis

from tests.redis.conftest import MakeServer
from tests.redis.test_server_away import cluster_node

SLOTS = 16_384


class Cluster:
    """Three nodes that know each other; each has a third of the slots."""

    def __init__(self, make_server: MakeServer, kind: str) -> None:
        nodes = [cluster_node(make_server, kind) for _ in range(3)]
        self.servers = [server for server, _ in nodes]
        self.ports = [port for _, port in nodes]
        self.clients = [redis.Redis("127.0.0.1", port, protocol=2) for port in self.ports]
        self.ids = [str(client.execute_command("CLUSTER", "MYID").decode()) for client in self.clients]
        for place, client in enumerate(self.clients):
            client.execute_command("CLUSTER", "ADDSLOTS", *range(place * SLOTS // 3, (place + 1) * SLOTS // 3))
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.ports[0])
        for client in self.clients:
            until(partial(self._says, client, b"cluster_state:ok"), "all slots are known")
            until(partial(self._says, client, b"cluster_known_nodes:3"), "all nodes are known")

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def _says(self, client: "redis.Redis", word: bytes) -> bool:
        return word in client.execute_command("CLUSTER", "INFO", NEVER_DECODE=True)

    def owner_of(self, slot: int) -> int:
        for first, last, master, *_ in self.clients[0].execute_command("CLUSTER", "SLOTS", NEVER_DECODE=True):
            if first <= slot <= last:
                return self.ports.index(master[1])
        raise AssertionError(f"no node has slot {slot}")

    def move(self, slot: int, source: int, target: int) -> None:
        """As `redis-cli --cluster reshard` does it, a few keys at a time."""
        give, take = self.clients[source], self.clients[target]
        take.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        give.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])
        while keys := give.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 3, NEVER_DECODE=True):
            give.execute_command("MIGRATE", "127.0.0.1", self.ports[target], "", 0, 60_000, "KEYS", *keys)
            time.sleep(0.01)
        for client in (take, give, *self.clients):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])


def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(6_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(what)
