"""The end of one tenant's log in one shard, watched once for all hooks that have come so far.

Hooks that lag behind read the log for themselves, a page at a time; nothing is kept for them. While no hook waits for
news, nothing is read at all.
"""

import asyncio
import logging
from typing import Final

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import StokerError
from stoker.server.desk import Desk

PAGE: Final = 128
WAIT_MS: Final = 10_000
AGAIN_S: Final = 1.0
SHARED_EVENTS_MAX: Final = 1_000
SHARED_BYTES_MAX: Final = 1024 * 1024
"""A larger page is read again by each hook, rather than kept."""

log = logging.getLogger("stoker.webhooks")


class Tail:
    def __init__(self, desk: Desk, tenant: str, shard: int) -> None:
        self._desk = desk
        self._tenant = tenant
        self._shard = shard
        self._wait_ms = min(WAIT_MS, desk.broker.settings.limits.wait_ms_max)
        self.position = self.last()
        """Who has come so far has seen everything that is known."""
        self._latest: tuple[int, r.Events] | None = None
        self._waiting: set[asyncio.Event] = set()
        self._wanted = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._watch())
        self.users = 0

    def last(self) -> int:
        """The last sequence number that the log has given."""
        return self._desk.broker.runtime.journal.last(self._shard)

    def want(self, woken: asyncio.Event) -> None:
        """Set it when the position has moved."""
        self._waiting.add(woken)
        self._wanted.set()

    def forget(self, woken: asyncio.Event) -> None:
        self._waiting.discard(woken)

    async def page(self, after: int) -> r.Events:
        """What comes next, as far as it is there already."""
        if self._latest is not None and self._latest[0] == after:
            return self._latest[1]
        return await self._read(after, 0)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, after: int, wait_ms: int) -> r.Events:
        seen = self.last()
        page = await self._desk.call(self._tenant, c.ReadEvents(self._shard, after, PAGE, wait_ms=wait_ms))
        if not page.events and seen > page.next_after:
            # Nothing of this tenant was there when we began, so whatever others did until then need not be looked at.
            return r.Events([], seen, page.lowest)
        return page

    async def _watch(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                page = await self._read(self.position, self._wait_ms)
            except StokerError as error:
                log.warning("cannot read events for webhooks: %s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            self._latest = (self.position, page) if is_small(page) else None
            self.position = max(self.position, page.next_after)
            self._wanted.clear()
            waiting, self._waiting = self._waiting, set()
            for woken in waiting:
                woken.set()


def is_small(page: r.Events) -> bool:
    return len(page.events) <= SHARED_EVENTS_MAX and sum(len(event.data) for event in page.events) <= SHARED_BYTES_MAX
