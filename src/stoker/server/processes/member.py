"""A server as one of several processes: what it answers to the others, and what it asks them."""

import asyncio
import shutil
import time
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from stoker.brokers.local import LocalBroker
from stoker.journal.shard_layout import FACT
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import KV_HOME, SYSTEM_TENANT
from stoker.runtime.usage import FindUsed, Used
from stoker.server.auth.quotas import Usage
from stoker.server.processes.links import ProcessSeat
from stoker.server.processes.snapshot_barrier import BarrierLeader, BarrierMember
from stoker.server.processes.team import Team
from stoker.server.processes.ways import Ways
from stoker.server.report import own_report
from stoker.server.service import Service
from stoker.server.snapshots import Make
from stoker.server.webhooks import commands as hooks

REFRESH_S: Final = 0.25
"""How old the known usage of a tenant in other processes may be: quotas may be exceeded by what others admit
meanwhile.
"""
TENANTS_MAX: Final = 10_000
ASK_S: Final = 1.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def join(service: Service, seat: ProcessSeat, ways: Ways, broker: LocalBroker) -> Team:
    """Make a server's process one of several."""
    team = Team(service.dispatcher, seat, ways, broker)

    async def report(tenant: str, body: bytes) -> Any:
        return own_report(service)

    async def workers(tenant: str, body: bytes) -> Any:
        return service.meter.workers(tenant)

    async def active(tenant: str, body: bytes) -> Any:
        return sum(stats.counts.active for stats in broker.shard_stats())

    async def webhooks(tenant: str, body: bytes) -> Any:
        name, fields = _decode(body)
        return await hooks.carry_out(service.webhooks, tenant, name, hooks.decode(name, _encode(fields), "msgpack"))

    async def snapshot(tenant: str, body: bytes) -> Any:
        await asyncio.to_thread(cut, broker, Path(_decode(body)))

    team.answers |= {
        "report": report,
        "workers": workers,
        "active": active,
        "webhooks": webhooks,
        "snapshot": snapshot,
    }
    service.usage = SharedUsage(service.usage, team)
    owner = team.router.home(SYSTEM_TENANT, KV_HOME)
    if service.webhooks is not None and owner != seat.number:

        async def elsewhere(tenant: str, name: str, request: Any) -> Any:
            return _decode(await team.ask(owner, "webhooks", (name, request), tenant, changes=name != "list_webhooks"))

        service.webhooks.elsewhere = elsewhere
    return team


def snapshots_of(team: Team, broker: LocalBroker) -> Make:
    """Makes snapshots of the whole directory; each process fills in its own part."""

    async def make(folder: Path) -> None:
        others = [each for each in range(team.seat.seats) if each != team.seat.number]
        host = BarrierLeader(folder, len(others))
        own = asyncio.to_thread(cut, broker, folder, host)
        await meet(host, own, *(team.ask(each, "snapshot", str(folder), changes=False) for each in others))
        await asyncio.to_thread(shutil.copyfile, Path(team.seat.directory) / FACT, folder / FACT)

    return make


async def meet(host: BarrierLeader, own: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, bytes]) -> None:
    """Wait for all. The first failure ends the meeting, so that no process waits for one that does not come."""
    here, elsewhere = asyncio.ensure_future(own), [asyncio.ensure_future(other) for other in others]
    await asyncio.wait([here, *elsewhere], return_when=asyncio.FIRST_EXCEPTION)
    host.end()
    await asyncio.wait([here])
    host.close()
    for outcome in await asyncio.gather(*elsewhere, here, return_exceptions=True):  # their errors say more than our own
        if isinstance(outcome, BaseException):
            raise outcome


def cut(broker: LocalBroker, folder: Path, host: BarrierLeader | None = None) -> None:
    """Fill in one process's part of a snapshot."""
    directory = broker.data_directory
    assert directory is not None
    part = folder / directory.path.parent.name / directory.path.name
    part.mkdir(mode=0o700, parents=True)
    if host is not None:
        directory.snapshot_into(part, host)
        return
    guest = BarrierMember(folder)
    try:
        directory.snapshot_into(part, guest)
    finally:
        guest.close()


async def active_everywhere(team: Team) -> int:
    """How many jobs run in the processes that can be reached."""
    try:
        async with asyncio.timeout(ASK_S):
            return sum(map(_decode, (await team.ask_all("active")).values()))
    except TimeoutError:
        return 1  # a process is there, and busy


class Elsewhere(msgspec.Struct):
    """A tenant's usage in other processes: as they last reported, and what was sent there since."""

    at: float = 0.0
    names: frozenset[str] = frozenset()
    waiting: int = 0
    bytes: int = 0
    asked: asyncio.Task[None] | None = None
    sent: list[tuple[str, int, int]] = []
    """Admitted here since the last report."""


class SharedUsage:
    """A tenant's usage in all processes: exact in this one, slightly old in the others."""

    def __init__(self, own: Usage, team: Team) -> None:
        self._own = own
        self._team = team
        self._others: dict[str, Elsewhere] = {}

    def queue_names(self, tenant: str) -> Collection[str]:
        others = self._known(tenant)
        return {*self._own.queue_names(tenant), *others.names, *(queue for queue, _, _ in others.sent)}

    def waiting_jobs(self, tenant: str) -> int:
        others = self._known(tenant)
        return self._own.waiting_jobs(tenant) + others.waiting + sum(jobs for _, jobs, _ in others.sent)

    def payload_bytes(self, tenant: str) -> int:
        others = self._known(tenant)
        return self._own.payload_bytes(tenant) + others.bytes + sum(size for _, _, size in others.sent)

    def admitted(self, tenant: str, queue: str | None, jobs: int, bytes: int) -> None:
        """Commands without a queue change jobs or entries that are counted where they live."""
        if queue is not None and self._team.router.home(tenant, queue) != self._team.router.me:
            self._known(tenant).sent.append((queue, jobs, bytes))

    def _known(self, tenant: str) -> Elsewhere:
        others = self._others.get(tenant)
        if others is None:
            if len(self._others) >= TENANTS_MAX:
                self._others.clear()
            others = self._others[tenant] = Elsewhere()
        if others.asked is None and time.monotonic() - others.at > REFRESH_S:
            others.asked = asyncio.get_running_loop().create_task(self._refresh(tenant, others))
        return others

    async def _refresh(self, tenant: str, others: Elsewhere) -> None:
        router = self._team.router
        elsewhere = [process for process in router.processes if process != router.me]
        known_before = len(others.sent)
        try:
            names: list[Any] = await router.ask_all(tenant, dict.fromkeys(elsewhere, c.ListQueues()))
            found: list[Any] = await router.ask_all(tenant, dict.fromkeys(elsewhere, FindUsed()))
            if all(isinstance(one, Used) for one in found):
                others.names = frozenset(name for one in names if isinstance(one, r.Queues) for name in one.names)
                others.waiting = sum(one.jobs for one in found)
                others.bytes = sum(one.bytes for one in found)
                del others.sent[:known_before]
        finally:
            others.at, others.asked = time.monotonic(), None
