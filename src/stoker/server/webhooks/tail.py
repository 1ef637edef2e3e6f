"""The end of one tenant's log in one shard, watched once for all hooks that have come so far.

Hooks that lag behind read the log for themselves, a page at a time; nothing is kept for them. While no hook waits for
news, nothing is read at all.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from stoker.brokers.contract import End
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Closed, StokerError
from stoker.server.desk import Desk
from stoker.server.webhooks.hooks import ALL, KINDS, Hook

PAGE: Final = 128
WAIT_MS: Final = 10_000
AGAIN_S: Final = 1.0
SHARED_EVENTS_MAX: Final = 1_000
SHARED_BYTES_MAX: Final = 1024 * 1024
"""A larger page is read again by each hook, rather than kept."""

log = logging.getLogger("stoker.webhooks")


class Tail:
    def __init__(self, desk: Desk, tenant: str, shard: int, end: End) -> None:
        self._desk = desk
        self._tenant = tenant
        self._shard = shard
        self._end = end
        self.position = end.last
        """Who has come so far has seen everything that is known."""
        self._latest: tuple[int, r.Events] | None = None
        self._waiting: set[asyncio.Event] = set()
        self._wanted = asyncio.Event()
        self._hooks: list[Hook] = []
        self._kinds: frozenset[str] = frozenset()
        """What any of the hooks wants: a record that means nothing else is passed over unread."""
        self._task: asyncio.Task[None] | None = None

    def attach(self, hook: Hook) -> None:
        """Watch for what this hook wants, too."""
        self._hooks.append(hook)
        wanted = self._kinds.union(KINDS if ALL in hook.events else hook.events)
        if wanted != self._kinds:
            self._kinds = wanted
            self._latest = None  # it was read for others
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def detach(self, hook: Hook) -> bool:
        """Whether nobody is left."""
        self._hooks = [one for one in self._hooks if one is not hook]
        self._kinds = frozenset(kind for one in self._hooks for kind in (KINDS if ALL in one.events else one.events))
        return not self._hooks

    def last(self) -> int:
        """The last sequence number that the log has given, as far as this process knows."""
        if self._desk.has(self._shard):
            self._end = self._desk.logs.known_end(self._shard) or self._end
        return self._end.last

    def want(self, woken: asyncio.Event) -> None:
        """Set it when the position has moved."""
        self._waiting.add(woken)
        self._wanted.set()

    def forget(self, woken: asyncio.Event) -> None:
        self._waiting.discard(woken)

    async def page(self, after: int) -> r.Events:
        """What comes next, as far as it is there already; among it everything that some hook wants.

        Who lags reads all kinds, so that each page ends soon, however rare what it wants may be.
        """
        if self._latest is not None and self._latest[0] == after:
            return self._latest[1]
        return await self._read(after, 0, None)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, after: int, wait_ms: int, kinds: Sequence[str] | None) -> r.Events:
        limits = self._desk.broker.limits
        self._end = end = await self._desk.end_of(self._shard)
        wait_ms = min(wait_ms, limits.wait_ms_max)
        command = c.ReadEvents(self._shard, after, min(PAGE, limits.events_max), kinds=kinds, wait_ms=wait_ms)
        page = await self._desk.call(self._tenant, command)
        # What was dropped while we waited was looked at before. Where nothing for us was there when we began, whatever
        # others did until then need not be looked at.
        return r.Events(page.events, page.next_after if page.events else max(end.last, page.next_after), end.lowest)

    def _wanted_kinds(self) -> Sequence[str] | None:
        return None if self._kinds >= KINDS else tuple(self._kinds)

    async def _watch(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                page = await self._read(self.position, WAIT_MS, self._wanted_kinds())
            except Closed:
                return
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
