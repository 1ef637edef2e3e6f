"""Events sent to a peer as they happen.

A subscription reads the log of each shard that concerns it, one page at a time, and asks for the next page when the
last one is sent. So a slow reader falls behind in the log and not in memory; one that falls out of what is kept is
told so. It ends with the rights of whoever asked for it.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError, Unauthenticated
from stoker.model.events import Event
from stoker.model.ids import shard_for
from stoker.server.auth.identity import Identity
from stoker.server.desk import Held
from stoker.server.service import Service

PAGE = 256
WAIT_MS = 60_000
"""How often the rights are looked at when nothing happens."""


class Subscription:
    """One reader of a tenant's events. `send` takes an event, or an error after which nothing more comes."""

    def __init__(
        self,
        service: Service,
        identity: Identity,
        tenant: str,
        send: Callable[[Event | StokerError], None],
        *,
        queue: str | None = None,
        kinds: tuple[str, ...] = (),
        after: Mapping[int, int] | None = None,
    ) -> None:
        self._service = service
        self._identity = identity
        self._tenant = tenant
        self._send = send
        self.queue = queue
        self.kinds = kinds
        self._held: dict[int, Held] = {}
        self._is_over = False
        shards = service.desk.broker.runtime.shards
        numbers = range(len(shards)) if queue is None else [shard_for(tenant, queue, len(shards))]
        journal = service.desk.broker.runtime.journal
        for number in numbers:
            self._ask(number, (after or {}).get(number, journal.last(number)))

    def end(self) -> None:
        self._is_over = True
        for held in self._held.values():
            self._service.desk.give_up(held)
        self._held.clear()

    def _ask(self, shard: int, after: int) -> None:
        command = c.ReadEvents(shard, after, PAGE, self.queue, self.kinds or None, WAIT_MS)
        held = self._service.desk.submit(self._tenant, command, partial(self._got, shard))
        if held is not None:
            self._held[shard] = held

    def _got(self, shard: int, page: Any) -> None:
        self._held.pop(shard, None)
        if self._is_over:
            return
        if not self._identity.is_valid(time.time()):
            page = Unauthenticated("authentication expired: the events end here")
        if isinstance(page, StokerError):
            self.end()
            self._send(page)
            return
        assert isinstance(page, r.Events)
        for event in page.events:
            self._send(event)
        self._ask(shard, page.next_after)
