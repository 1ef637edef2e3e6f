"""Keeps the worker in the list of workers: an entry in the key-value store, refreshed while the worker lives.

The entry of a worker that dies expires by itself. Nothing depends on the list: a worker that may not write there, or
cannot reach the queue, works on without it.
"""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable

import msgspec

from stoker.client.aio import AsyncClient
from stoker.model.errors import StokerError
from stoker.model.workers import WORKER_KEYS, WorkerView

log = logging.getLogger("stoker.worker")

TTL_MS = 60_000
FIRST_S = 1.0
"""The first refresh comes early: a user who just started a worker looks whether it is there and does something."""
REFRESH_S = 15.0
"""Three refreshes may be lost before the entry expires."""
LEAVE_S = 2.0
"""How long an ending worker waits for its entry to be deleted."""


def new_worker_id() -> str:
    """An id for one start of one process. Host names and process ids repeat, in containers at every start."""
    return f"{host_name()}-{os.getpid()}-{secrets.token_hex(3)}"


def host_name() -> str:
    """The host name as part of a key: characters that a name may not have become dashes."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "_.-") else "-" for char in _host())
    return plain[:128] or "unknown"


def _host() -> str:
    try:
        return socket.gethostname()
    except OSError:
        return ""


class Registration:
    """One worker's entry. `view` returns its current content."""

    def __init__(self, client: AsyncClient, view: Callable[[], WorkerView], *, refresh_s: float = REFRESH_S) -> None:
        self._client = client
        self._view = view
        self._refresh_s = refresh_s
        self._has_complained = False

    async def keep(self) -> None:
        """Write the entry until cancelled: often at first, when there is news."""
        pause_s = min(FIRST_S, self._refresh_s)
        while True:
            await self.write()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._refresh_s)

    async def write(self) -> None:
        view = self._view()
        view = msgspec.structs.replace(view, seen_at=time.time_ns() // 1_000_000)
        try:
            await self._client.kv_set(WORKER_KEYS + view.id, msgspec.json.encode(view), TTL_MS, codec="json")
            self._has_complained = False
        except StokerError as error:
            self._complain(error)

    async def leave(self) -> None:
        """Delete the entry: the worker has ended in good order."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._client.kv_delete(WORKER_KEYS + self._view().id)
        except (StokerError, TimeoutError) as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Log once each time that it begins to fail."""
        if not self._has_complained:
            self._has_complained = True
            log.info("this worker is missing from the list of workers: %s", error)
