"""A server that reads an inbox: a reader over the server's own dispatcher, under the quotas of the tenants.

Of a server in several processes only the first one reads. A reader would do no harm in each, but no good either.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.replies import PushedBatch
from stoker.server.auth.identity import OPEN
from stoker.server.report import InboxReport

if TYPE_CHECKING:
    from stoker.inbox.reader import Reader
    from stoker.server.service import Service

log = logging.getLogger("stoker.server")

STOP_S = 10.0
"""How long a push that is under way may take when the server stops. Any reader sends it again, if it takes longer."""


class InboxReading:
    """The reader of a server, as a service that starts and stops with it."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._reader: Reader | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        settings = self._service.config.inbox
        if not settings.url:
            return
        try:
            from stoker.inbox.reader import Reader
        except ModuleNotFoundError as error:
            raise InvalidRequest(f"inbox.url needs {error.name}: pip install 'stoker[postgres]'") from None
        ttl_ms = self._service.config.engine.request_ttl_ms
        self._reader = Reader(settings.url, self._push, tenants=settings.tenants, request_ttl_ms=ttl_ms)
        self._task = asyncio.create_task(self._reader.run())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        if self._reader is None or self._task is None:
            return
        self._reader.stop()
        await asyncio.wait([self._task], timeout=STOP_S)
        self._task.cancel()
        await asyncio.wait([self._task])

    def report(self) -> InboxReport | None:
        """None if this server reads no inbox."""
        if self._reader is None:
            return None
        status = self._reader.status
        totals = msgspec.structs.asdict(self._reader.totals)
        if status is None:
            return InboxReport(rows=None, oldest_s=0.0, totals=totals)
        rows = {"waiting": status.waiting, "sending": status.sending, "refused": status.refused}
        return InboxReport(rows=rows, oldest_s=status.oldest_s, totals=totals)

    async def _push(self, tenant: str, command: c.PushBatch) -> PushedBatch:
        self._service.check_quota(OPEN, tenant, command)
        return await self._service.dispatcher.call(tenant, command)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("the inbox is not read any more: this is a bug", exc_info=task.exception())
