"""The connections of a broker to its servers: made when they are needed, and closed with the broker."""

import asyncio
import threading
from typing import Any

from stoker.brokers.redis.links import (
    Pool,
    RedisNode,
    Stream,
    Way,
)
from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.brokers.redis.waiting import ListWaiter
from stoker.brokers.remote import forking
from stoker.brokers.remote.pool import CLOSED
from stoker.brokers.remote.retrying import Patience
from stoker.brokers.sending_window import SendingWindows
from stoker.model.errors import (
    Closed,
)


class RedisConnections:
    """The connections to the servers of a queue, for any number of threads and event loops."""

    def __init__(self, target: Target, settings: RedisSettings | None, patience: Patience | None) -> None:
        self.settings = settings or RedisSettings()
        self.target = target
        self.patience = patience or Patience()
        self._closed = False
        self._begin()
        forking.remember(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._windows = SendingWindows()
        self._pools: dict[RedisNode, Pool] = {}
        self._streams: dict[tuple[asyncio.AbstractEventLoop, RedisNode], Stream] = {}
        self._waiters: dict[tuple[type[ListWaiter], str], ListWaiter] = {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.patience.end()
            ending: list[Any] = [*self._waiters.values(), *self._pools.values(), *self._streams.values()]
        for one in ending:
            one.close()

    def begin_anew(self) -> None:
        """In a forked process: leave the connections to the parent, and go on with new ones."""
        left: list[Any] = [*self._waiters.values(), *self._pools.values(), *self._streams.values()]
        _left.append(left)
        self.patience.begin_anew()
        self._begin()
        for one in left:
            one.forget()

    def pool(self, node: RedisNode) -> Pool:
        found = self._pools.get(node)
        if found is None:
            with self._lock:
                self._check_open()
                found = self._pools.setdefault(node, Pool(self._way(node)))
        return found

    def stream(self, node: RedisNode) -> Stream:
        loop = asyncio.get_running_loop()
        found = self._streams.get((loop, node))
        if found is None:
            with self._lock:
                self._check_open()
                for place in [place for place in self._streams if place[0].is_closed()]:
                    self._streams.pop(place).close()
                found = self._streams[loop, node] = Stream(self._way(node), loop)
        return found

    def _way(self, node: RedisNode) -> Way:
        return Way(node, self.target, self.settings)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(CLOSED)


_left: list[Any] = []
"""Connections of parents of this process: never touched again, and never collected."""
