"""Which of several servers posts webhooks: the one that has the lease.

When that server dies its lease ends, and another server continues from the noted progress. So after a crash some events
are posted again, with the same ids, and none is left out.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

from stoker.model.errors import StokerError
from stoker.server.served_broker import RemoteQueue

LEASE_S: Final = 5.0
"""After the death of the server that posts, another one takes over after this time."""
TURN_S: Final = 1.0
"""How often the lease is renewed or tried for, and how soon a change of hooks on another server is noticed."""
NAME: Final = "webhooks"

log = logging.getLogger("stoker.webhooks")


class PostingLease:
    """This server's part in the competition."""

    def __init__(self, remote: RemoteQueue, turn: Callable[[bool], Awaitable[None]]) -> None:
        """`turn` is called again and again, with whether this server has the lease. It may take its time: the lease is
        renewed meanwhile.
        """
        self._remote = remote
        self._turn = turn
        self._owner = secrets.token_hex(8)
        self._until = 0.0
        self._tried = asyncio.Event()
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_held(self) -> bool:
        return time.monotonic() < self._until

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._compete()), loop.create_task(self._follow())]

    async def close(self) -> None:
        """Take no more turns; one that is under way ends first. `let_go` follows when nothing is posted any more."""
        self._is_over = True
        self._tried.set()
        for task in self._tasks[:1]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def let_go(self) -> None:
        """Another server may post."""
        if self.is_held:
            self._until = 0.0
            try:
                await self._remote.let_go(NAME, self._owner)
            except StokerError as error:
                log.warning("the lease of webhooks could not be ended, and ends by itself: %s", error)

    async def _compete(self) -> None:
        while True:
            try:
                await self._try()
            except StokerError as error:
                log.debug("webhooks: %s", error)
            self._tried.set()
            await asyncio.sleep(TURN_S)

    async def _follow(self) -> None:
        while True:
            await self._tried.wait()
            if self._is_over:
                return
            self._tried.clear()
            try:
                await self._turn(self.is_held)
            except StokerError as error:
                log.debug("webhooks: %s", error)
            except Exception:
                log.exception("webhooks: an unexpected error; trying again in a moment")

    async def _try(self) -> None:
        asked_at = time.monotonic()
        has_it = await self._remote.hold(NAME, self._owner, round(LEASE_S * 1_000))
        self._until = asked_at + LEASE_S if has_it else 0.0
