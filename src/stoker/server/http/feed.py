"""Events for one stream over HTTP, each with the text that a client sends back to continue right after it."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping

from stoker.brokers.contract import End
from stoker.model.errors import InvalidRequest
from stoker.model.events import Event, EventKind
from stoker.model.limits import NAME_PATTERN
from stoker.server.auth.identity import Identity
from stoker.server.dispatcher import Dispatcher
from stoker.server.reader import TURN_EVENTS, WHOLE, EventReader, Filter, MissedEvents, Position, after, checked

BEAT_S = 15.0
"""A sign of life when nothing happens: proxies cut connections that are silent for a minute."""

_CURSOR = re.compile(r"(\d{1,16}(?:\.\d{1,16}){0,63})((?:-\d{1,2}-\d{1,9}){0,64})")
KINDS = frozenset(EventKind)

Item = tuple[str, "Event | MissedEvents | None"]
"""The cursor after it, and an event; None is a sign of life."""


def cursor_of(positions: Mapping[int, Position]) -> str:
    """`17.0.233` is three shards. `17.0.233-2-5`: of the record after 233 in shard 2, events up to 5 were read, too."""
    inside = (f"-{shard}-{positions[shard][1]}" for shard in sorted(positions) if positions[shard][1] != WHOLE)
    return ".".join(str(after(positions[shard])) for shard in sorted(positions)) + "".join(inside)


def read_cursor(text: str, shards: int) -> dict[int, Position]:
    """The positions in a cursor."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidRequest("invalid position: send back the last event's id as it came")
    sequences = [int(part) for part in found[1].split(".")]
    inside = [int(part) for part in found[2].split("-")[1:]]
    if len(sequences) != shards or max(inside[::2], default=0) >= shards or max(sequences) >= 2**53 - 1:
        raise InvalidRequest("invalid position: it is of another server; begin without one")
    begun = dict(zip(inside[::2], inside[1::2], strict=True))
    return {
        shard: checked((sequence + 1, begun[shard]) if shard in begun else sequence)
        for shard, sequence in enumerate(sequences)
    }


def filter_of(queue: str | None, kinds: str | None, job: int | None) -> Filter:
    if queue is not None and not NAME_PATTERN.fullmatch(queue):
        raise InvalidRequest(f"invalid queue {queue[:80]!r}: expected {NAME_PATTERN.pattern}")
    wanted = tuple(kind for kind in (kinds or "").split(",") if kind)
    unknown = [kind for kind in wanted if kind not in KINDS]
    if unknown:
        raise InvalidRequest(f"invalid event {unknown[0][:40]!r}: expected some of {', '.join(sorted(KINDS))}")
    return Filter(queue, wanted, job)


class EventFeed:
    """The events of one stream. Iterate over it; it ends with `StokerError`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        identity: Identity,
        tenant: str,
        wanted: Filter,
        start: Mapping[int, Position],
        ends: Mapping[int, End],
        from_beginning: bool,
    ) -> None:
        self._news = asyncio.Event()
        self._expires_at = identity.expires_at
        self._reader = EventReader(
            dispatcher,
            tenant,
            wanted,
            self._news.set,
            start=start,
            ends=ends,
            from_beginning=from_beginning,
            identity=identity,
        )

    async def items(self) -> AsyncGenerator[Item, None]:
        reader, loop = self._reader, asyncio.get_running_loop()
        beat_at, count = loop.time(), 0
        try:
            while True:
                while (item := reader.next()) is not None:
                    yield cursor_of(reader.positions), item
                    beat_at, count = loop.time() + BEAT_S, count + 1
                    if count % TURN_EVENTS == 0:
                        await asyncio.sleep(0)
                if loop.time() >= beat_at:
                    yield cursor_of(reader.positions), None
                    beat_at = loop.time() + BEAT_S
                await self._until_news(beat_at - loop.time())
        finally:
            reader.close()

    async def _until_news(self, seconds: float) -> None:
        """Until there may be events, or it is time for a sign of life, or the rights of the client end."""
        if self._expires_at is not None:
            seconds = min(seconds, self._expires_at - time.time() + 0.001)
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()
