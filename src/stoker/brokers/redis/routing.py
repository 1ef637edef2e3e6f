"""Which server has a tenant, and whether a queue may live there: one Redis, or the nodes of a cluster."""

import time
from binascii import crc_hqx
from typing import Any

from stoker.brokers.redis.connections import RedisConnections
from stoker.brokers.redis.greeting import AGAIN_S, ServerFacts, check, meaning, server_of
from stoker.brokers.redis.links import (
    RedisNode,
    RedisRefusal,
    Words,
    node_of,
)
from stoker.brokers.redis.operations import Operations, RedisExchange
from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.brokers.remote.links import LinkLost
from stoker.brokers.remote.retrying import Patience
from stoker.model.errors import (
    CannotOpen,
    Unreachable,
)

SLOTS = 16_384
REDIRECTS = 5
"""How often one call follows a cluster from server to server."""


class RedisServers(RedisConnections):
    """The servers of a queue: what they say of themselves, and which of them has a tenant."""

    def __init__(self, target: Target, settings: RedisSettings | None, patience: Patience | None) -> None:
        super().__init__(target, settings, patience)
        self._seed = node_of(target)
        self._servers: dict[RedisNode, tuple[ServerFacts, float]] = {}
        self._has_worked = False
        self._routes: dict[str, RedisNode] = {}
        self._known: set[RedisNode] = set()
        """In a cluster: where each tenant is, and all servers that were ever named."""

    def _route(self, tenant: str) -> RedisNode:
        return self._routes.get(tenant, self._seed)

    def _greeted(self, tenant: str) -> Operations[ServerFacts]:
        """What the tenant's server says of itself, no older than a minute. Raises if a queue cannot live there."""
        node = self._route(tenant)
        found = self._servers.get(node)
        if found is not None and time.monotonic() - found[1] < AGAIN_S:
            return found[0]
        if self.settings.cluster:
            node = yield from self._find(tenant)
        server = yield from self._ask(node)
        check(node, server, is_first=not self._has_worked, cluster=self.settings.cluster)
        self._servers[node] = server, time.monotonic()
        self._has_worked = True
        return server

    def _ask(self, node: RedisNode) -> Operations[ServerFacts]:
        try:
            info = yield RedisExchange(node, ("INFO",))
        except RedisRefusal as refusal:
            raise meaning(node, refusal) from None
        try:
            config = yield RedisExchange(node, ("CONFIG", "GET", "*appendfsync*"))
        except RedisRefusal:
            config = None
        return server_of(info, config)

    def _find(self, tenant: str) -> Operations[RedisNode]:
        """Ask the servers of the cluster that are known where a tenant's slot is."""
        slot = crc_hqx(f"{tenant}/0".encode(), 0) % SLOTS
        lost: Exception = Unreachable(f"no server of the cluster answers, {self._seed} included")
        for node in dict.fromkeys((self._seed, *self._servers, *self._routes.values(), *self._known)):
            try:
                ranges = yield RedisExchange(node, ("CLUSTER", "SLOTS"))
            except (LinkLost, Unreachable) as error:
                lost = error
                continue
            except RedisRefusal as refusal:
                raise CannotOpen(
                    f"the Redis at {node} belongs to no cluster ({refusal}): take ?cluster=true away"
                ) from None
            self._known.update(node.neighbour(one[2][0].decode(), one[2][1]) for one in ranges)
            for first, last, master, *_ in ranges:
                if first <= slot <= last:
                    self._routes[tenant] = node.neighbour(master[0].decode(), master[1])
                    return self._routes[tenant]
            lost = Unreachable(f"no server of the cluster at {node} has slot {slot}")
        raise lost

    def _exchange(self, tenant: str, words: Words) -> Operations[Any]:
        """Send a command to the tenant's server, wherever a cluster says that it is."""
        node, asking = self._route(tenant), False
        for _ in range(REDIRECTS):
            try:
                return (yield RedisExchange(node, words, asking))
            except RedisRefusal as refusal:
                if refusal.code not in ("MOVED", "ASK") or not self.settings.cluster:
                    raise
                host, _, port = str(refusal).split()[2].rpartition(":")
                node, asking = node.neighbour(host, int(port)), refusal.code == "ASK"
                if not asking:
                    self._routes[tenant] = node
        raise Unreachable(f"the cluster sent this call from server to server, {REDIRECTS} times")
