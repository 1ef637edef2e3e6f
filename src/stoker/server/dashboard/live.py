"""Tells browsers when a page may have changed: one stream for all pages of a browser, which carries no data.

A browser asks for the page that it shows and replaces what is different. So a live page shows what the same page shows
when it is loaded, and needs no second way to be made.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.server.http import responses
from stoker.server.http.streams import EventStreams, until_either

if TYPE_CHECKING:
    from stoker.server.dashboard.page import DashboardPage

TICK_S: Final = 2.0
"""The shortest time between two looks."""
QUIET_S: Final = 30.0
"""The longest time between two ticks, so that charts and relative times go on."""
SHARED_S: Final = 1.0
"""How old a reply may be that several live pages share."""
SHARED_MAX: Final = 5_000
EACH_S: Final = 0.2
"""With many open pages each looks less often: together they ask for at most five pages a second."""

R = TypeVar("R")


class SharedReplies:
    """What live pages ask, once for all that ask it within a moment. Rights are checked before, for each of them."""

    def __init__(self) -> None:
        self._replies: dict[Any, tuple[float, asyncio.Future[Any]]] = {}

    async def get(
        self, tenant: str, what: Any, ask: Callable[[], Coroutine[Any, Any, R]], seconds: float = SHARED_S
    ) -> R:
        """The answer to `ask()`, or the one that another page has got for the same `what` just before."""
        now = time.monotonic()
        known = self._replies.get((tenant, what))
        if known is None or now > known[0]:
            self._drop_old(now)
            known = self._replies[tenant, what] = now + seconds, asyncio.ensure_future(ask())
        reply: R = await asyncio.shield(known[1])
        return reply

    def forget(self, tenant: str) -> None:
        """Something was changed here: the next page of this tenant shows it."""
        self._replies = {key: reply for key, reply in self._replies.items() if key[0] != tenant}

    def _drop_old(self, now: float) -> None:
        """Drop old replies; the oldest come first, and one that is kept for longer keeps those behind it."""
        while self._replies:
            key, (until, asked) = next(iter(self._replies.items()))
            if now <= until and len(self._replies) < SHARED_MAX:
                break
            if asked.done() and not asked.cancelled():
                asked.exception()  # every asker has seen it
            del self._replies[key]


async def live(page: "DashboardPage") -> None:
    """`event: tick` when jobs have changed, or while jobs run.

    The first look ticks, because something may have changed since the page was made. The look after a change ticks once
    more, because what pages share may be from before the change.
    """
    request = page.request
    async with EventStreams(request.service).room():
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), *responses.GUARDS]
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        if request.method == "HEAD":
            await request.send({"type": "http.response.body", "body": b""})
            return
        await until_either(_tell(page), request.until_left())


async def _tell(page: "DashboardPage") -> None:
    async def send(text: bytes) -> None:
        await page.request.send({"type": "http.response.body", "body": text, "more_body": True})

    await send(b"retry: 2000\n\n")
    before, has_moved, ticked_at = None, False, 0.0
    while page.identity is not None and page.identity.is_valid(time.time()):
        try:
            stats = await page.ask(c.GetStats())
        except StokerError:
            break
        is_moving = stats != before or stats.counts.active > 0
        if is_moving or has_moved or time.monotonic() >= ticked_at + QUIET_S:
            await send(b"event: tick\ndata: {}\n\n")
            ticked_at = time.monotonic()
        else:
            await send(b": here\n\n")
        before, has_moved = stats, is_moving
        await asyncio.sleep(max(TICK_S, EACH_S * page.request.service.meter.streams))
    await page.request.send({"type": "http.response.body", "body": b"event: over\ndata: {}\n\n", "more_body": False})
