"""Quotas by use over a broker whose counts live elsewhere: they are asked for right before a command is carried out.

The commands of a tenant that has such a quota go one after the other, so one server exceeds no quota. Several servers
in front of one broker do not wait for each other: together they may exceed a quota by what is on its way at once.
"""

import asyncio
from collections.abc import Collection
from typing import Any
from weakref import WeakValueDictionary

from stoker.brokers.contract import check_command
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import QuotaExceeded, StokerError
from stoker.runtime.usage import WEIGHED, Used
from stoker.server.auth.quotas import QuotaKeeper, Quotas
from stoker.server.push_amounts import check_brought
from stoker.server.served_broker import RemoteQueue, ServedBroker


class MeasuredUsage:
    """What a tenant uses, as it was just measured, and what the command at hand was admitted for already."""

    def __init__(self, names: Collection[str], used: Used) -> None:
        self._names, self._used = set(names), used

    def queue_names(self, tenant: str) -> Collection[str]:
        return self._names

    def waiting_jobs(self, tenant: str) -> int:
        return self._used.jobs

    def payload_bytes(self, tenant: str) -> int:
        return self._used.bytes

    def admitted(self, tenant: str, queue: str | None, jobs: int, bytes: int) -> None:
        """A queue that the command makes counts for its next one."""
        if queue is not None:
            self._names.add(queue)


class RemoteQuotas:
    """Carries out commands of tenants that have quotas by use."""

    def __init__(self, broker: ServedBroker, remote: RemoteQueue, keeper: QuotaKeeper) -> None:
        self._broker, self._remote, self._keeper = broker, remote, keeper
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def execute(self, quotas: Quotas, tenant: str, command: Any) -> Any:
        """Raises `QuotaExceeded`, and then nothing has happened."""
        lock = self._locks.setdefault(tenant, asyncio.Lock())
        check_command(self._broker, command)
        async with lock:
            await self._check(quotas, tenant, command)
            return await self._broker.execute_async(tenant, command)

    async def _check(self, quotas: Quotas, tenant: str, command: Any) -> None:
        used, names = Used(), r.Queues([])
        if quotas.waiting_jobs or quotas.bytes:
            used = await self._remote.used(tenant)
        if quotas.queues:
            names = await self._broker.execute_async(tenant, c.ListQueues())
        usage = MeasuredUsage(names.names, used)
        if type(command) in WEIGHED:
            added = await self._remote.added_by(tenant, command)
            self._keeper.check_push(tenant, quotas, None, added.jobs, added.bytes, usage)
            return
        try:
            check_brought(self._keeper, tenant, quotas, command, usage)
        except QuotaExceeded:
            if type(command) is not c.FillStep or not await self._is_filled(tenant, command):
                raise

    async def _is_filled(self, tenant: str, command: c.FillStep) -> bool:
        """Whether the step has its jobs: then a job that was tried again says what it said before, and adds nothing."""
        try:
            job = await self._broker.execute_async(tenant, c.GetJob(command.id))
            workflow = await self._broker.execute_async(tenant, c.GetWorkflow(job.options.workflow or 0))
        except StokerError:
            return False
        return any(step.key == command.step and step.count for step in workflow.steps)
