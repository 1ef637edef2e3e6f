"""Sends events to a peer as they happen.

A subscription reads the log of each shard that concerns it, one page at a time, and asks for the next page when the
last one is sent. So a slow reader falls behind in the log and not in memory: while it has no room, an arriving page is
dropped and read again later. A reader whose place the log no longer keeps is informed. A subscription ends with the
permissions of its client.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from stoker.brokers.contract import Waiter
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError, Unauthenticated
from stoker.model.events import Event
from stoker.model.ids import shard_for
from stoker.server.auth.identity import Identity
from stoker.server.service import Service

PAGE = 256
WAIT_MS = 60_000
"""How often the rights are looked at when nothing happens."""


class Missed(msgspec.Struct, frozen=True):
    """Told in place of events that the log does not keep any more."""

    shard: int
    after: int
    """The last position that was read."""
    lowest: int
    """The first one that is still kept; the events go on from it."""


class Subscription:
    """One reader of a tenant's events. `send` takes an event, or an error after which nothing more comes."""

    def __init__(
        self,
        service: Service,
        identity: Identity,
        tenant: str,
        send: Callable[[Event | Missed | StokerError], None],
        *,
        queue: str | None = None,
        kinds: tuple[str, ...] = (),
        after: Mapping[int, int] | None = None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._service = service
        self._identity = identity
        self._tenant = tenant
        self._send = send
        self.queue = queue
        self.kinds = kinds
        self._has_room = has_room
        self._waiting: dict[int, Waiter] = {}
        self._later: dict[int, int] = {}
        """Where to read on once there is room, by shard."""
        self.is_over = False
        self._starting: asyncio.Task[None] | None = None
        """While other processes are asked how far their logs reach."""
        desk, after = service.desk, after or {}
        shards = desk.logs.shards
        numbers = range(shards) if queue is None else [shard_for(tenant, queue, shards)]
        own = desk.own_ends()
        for number in numbers:
            if number in after or number in own:
                self._ask(number, after[number] if number in after else own[number].last)
        unknown = [number for number in numbers if number not in after and number not in own]
        if unknown:
            self._starting = asyncio.get_running_loop().create_task(self._start(unknown))

    async def _start(self, shards: Iterable[int]) -> None:
        try:
            ends = await self._service.desk.ends()
        except StokerError as error:
            self.end()
            self._send(error)
            return
        for number in shards:
            self._ask(number, ends[number].last)

    def when_begun(self, act: Callable[[], None]) -> None:
        """Call this once everything that happens from now on will be sent."""
        if self._starting is None or self._starting.done():
            act()
        else:
            self._starting.add_done_callback(lambda _: act())

    def end(self) -> None:
        self.is_over = True
        if self._starting is not None and self._starting is not asyncio.current_task():
            self._starting.cancel()
        for waiter in self._waiting.values():
            waiter.give_up()
        self._waiting.clear()
        self._later.clear()

    def go_on(self) -> None:
        """Read what was left for later, as far as there is room."""
        while self._later and self._has_room():
            self._ask(*self._later.popitem())

    def _ask(self, shard: int, after: int) -> None:
        command = c.ReadEvents(shard, after, PAGE, self.queue, self.kinds or None, WAIT_MS)
        waiter = self._service.desk.submit(self._tenant, command, partial(self._got, shard, after))
        if waiter is not None:
            self._waiting[shard] = waiter

    def _got(self, shard: int, after: int, page: Any) -> None:
        self._waiting.pop(shard, None)
        if self.is_over:
            return
        if not self._identity.is_valid(time.time()):
            page = Unauthenticated("authentication expired: the events end here")
        if isinstance(page, StokerError):
            self.end()
            self._send(page)
            return
        assert isinstance(page, r.Events)
        if page.lowest > after + 1:
            self._send(Missed(shard, after, page.lowest))
        if page.events and not self._has_room():
            self._later[shard] = max(after, page.lowest - 1)
            return
        for event in page.events:
            self._send(event)
        self._ask(shard, page.next_after)
