"""Events read from the log, each reader at its own pace.

One question a shard is on its way at any time, and a shard is asked again only when its last page has been taken: a
slow reader falls behind in the log and not in memory. A reader that comes back says how far it got (`Cursor`) and goes
on right there; what is no longer kept by then is not passed over in silence.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from stoker.brokers.contract import End
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, StokerError, Unauthenticated
from stoker.model.events import Event, EventKind
from stoker.model.ids import shard_for, shard_of
from stoker.model.limits import NAME_PATTERN
from stoker.server.auth.identity import Identity
from stoker.server.service import Service

PAGE = 200
WAIT_MS = 60_000
BEAT_S = 15.0
"""A sign of life when nothing happens: proxies cut connections that are silent for a minute."""

_CURSOR = re.compile(r"(\d{1,16}(?:\.\d{1,16}){0,63})(?:-(\d{1,2})-(\d{1,9}))?")
KINDS = frozenset(EventKind)


class Cursor:
    """How far a reader has got: a position for each shard, and inside the record that it is at.

    As text: `17.0.233` is three shards, `17.0.233-2-5` says that of the record after 233 in shard 2 the events up to
    number 5 were read, too.
    """

    __slots__ = ("after", "inside")

    def __init__(self, after: list[int], inside: tuple[int, int] | None = None) -> None:
        self.after = after
        self.inside = inside

    def __str__(self) -> str:
        text = ".".join(map(str, self.after))
        return text if self.inside is None else f"{text}-{self.inside[0]}-{self.inside[1]}"

    @classmethod
    def read(cls, text: str, shards: int) -> "Cursor":
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise InvalidRequest("invalid position: send back the last event's id as it came")
        after = [int(part) for part in found[1].split(".")]
        if len(after) != shards or max(after) > 2**53 - 1:
            raise InvalidRequest("invalid position: it is of another server; begin without one")
        inside = None if found[2] is None else (int(found[2]), int(found[3]))
        if inside is not None and inside[0] >= shards:
            raise InvalidRequest("invalid position: it is of another server; begin without one")
        return cls(after, inside)


class Filter(msgspec.Struct, frozen=True):
    """Which events a reader wants."""

    queue: str | None = None
    kinds: tuple[str, ...] = ()
    job: int | None = None

    def shards(self, tenant: str, count: int) -> Sequence[int]:
        if self.job is not None:
            return [shard_of(self.job)] if shard_of(self.job) < count else []
        return range(count) if self.queue is None else [shard_for(tenant, self.queue, count)]


def filter_of(queue: str | None, kinds: str | None, job: int | None) -> Filter:
    if queue is not None and not NAME_PATTERN.fullmatch(queue):
        raise InvalidRequest(f"invalid queue {queue[:80]!r}: expected {NAME_PATTERN.pattern}")
    wanted = tuple(kind for kind in (kinds or "").split(",") if kind)
    unknown = [kind for kind in wanted if kind not in KINDS]
    if unknown:
        raise InvalidRequest(f"invalid event {unknown[0][:40]!r}: expected some of {', '.join(sorted(KINDS))}")
    return Filter(queue, wanted, job)


class Missed(msgspec.Struct, frozen=True):
    """Events of a shard that are not kept any more lay between where the reader was and what follows."""

    shard: int
    after: int
    lowest: int


Item = tuple[str, "Event | Missed | None"]
"""The reader's position after it, and an event; None is a sign of life."""


class Feed:
    """One reader of a tenant's events. Iterate over it; it ends with `StokerError`."""

    def __init__(self, service: Service, identity: Identity, tenant: str, wanted: Filter, start: Cursor | None) -> None:
        self._service, self._identity, self._tenant, self._wanted = service, identity, tenant, wanted
        self._cursor = start or Cursor([])
        self._shards = wanted.shards(tenant, service.desk.logs.shards)
        self._ends: Mapping[int, End] = {}
        self._pages: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
        """At most one page a shard: each shard's reader waits until its page was taken."""
        self._taken = {number: asyncio.Event() for number in self._shards}
        self._readers: list[asyncio.Task[None]] = []

    async def begin(self, from_beginning: bool = False) -> None:
        """Find out where to begin, before the reader hears that it does."""
        self._ends = ends = await self._service.desk.ends()
        if not self._cursor.after:
            self._cursor.after = [
                ends[number].lowest - 1 if from_beginning else ends[number].last for number in sorted(ends)
            ]

    async def items(self) -> AsyncGenerator[Item, None]:
        loop = asyncio.get_running_loop()
        for number in self._shards:
            missed = self._missed(number, self._ends[number])
            if missed is not None:
                yield str(self._cursor), missed
        self._readers = [loop.create_task(self._read(number)) for number in self._shards]
        try:
            yield str(self._cursor), None
            while True:
                page = await self._next_page()
                self._check()
                if page is None:
                    yield str(self._cursor), None
                    continue
                async for item in self._told(*page):
                    yield item
        finally:
            for reader in self._readers:
                reader.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)

    def _missed(self, number: int, end: End) -> Missed | None:
        """Where the log begins now, if it does not reach back to the reader, or is another one than it read."""
        after, lowest = self._cursor.after[number], end.lowest
        if lowest <= after + 1 and after <= end.last:
            return None
        self._cursor.after[number] = lowest - 1
        if self._cursor.inside is not None and self._cursor.inside[0] == number:
            self._cursor.inside = None
        return Missed(number, after, lowest)

    async def _next_page(self) -> "tuple[int, Any] | None":
        """The next page, or None when it is time for a sign of life."""
        until = self._identity.expires_at
        wait_s = BEAT_S if until is None else min(BEAT_S, max(0.0, until - time.time()) + 0.001)
        try:
            async with asyncio.timeout(wait_s):
                return await self._pages.get()
        except TimeoutError:
            return None

    def _check(self) -> None:
        if not self._identity.is_valid(time.time()):
            raise Unauthenticated("authentication expired: the events end here")

    async def _told(self, number: int, page: Any) -> AsyncGenerator[Item, None]:
        if isinstance(page, StokerError):
            raise page
        assert isinstance(page, r.Events)
        cursor, job = self._cursor, self._wanted.job
        missed = self._missed(number, End(page.next_after, page.lowest))
        if missed is not None:
            yield str(cursor), missed
        skipped = cursor.inside if cursor.inside is not None and cursor.inside[0] == number else None
        begun = cursor.after[number] + 1
        for event in page.events:
            if skipped is not None and event.sequence == begun and event.index <= skipped[1]:
                continue
            if job is not None and event.job != job:
                continue
            cursor.after[number], cursor.inside = event.sequence - 1, (number, event.index)
            yield str(cursor), event
            self._check()
        cursor.after[number] = page.next_after
        if cursor.inside is not None and cursor.inside[0] == number:
            cursor.inside = None
        self._taken[number].set()

    async def _read(self, number: int) -> None:
        wanted, taken = self._wanted, self._taken[number]
        try:
            while True:
                command = c.ReadEvents(
                    number, self._cursor.after[number], PAGE, wanted.queue, wanted.kinds or None, WAIT_MS
                )
                page = await self._service.desk.call(self._tenant, command)
                taken.clear()
                self._pages.put_nowait((number, page))
                await taken.wait()
        except StokerError as error:
            self._pages.put_nowait((number, error))
