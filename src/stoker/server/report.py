"""What one process of a server reports about itself, as a value: the source of `/metrics` and the history.

A server in several processes asks all of them; a single process reads only its own.
"""

import time
from typing import TYPE_CHECKING

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import Unsupported
from stoker.model.replies import Stats
from stoker.model.workers import WORKER_KEYS, WorkerView, worker_views
from stoker.runtime.peer_lost import not_there
from stoker.server.meter import WORKERS_MAX, MeterHistogram, SeenWorker
from stoker.wire.native import NAMES

if TYPE_CHECKING:
    from stoker.server.service import Service


PAGE = 500
"""Workers that are read from the key-value store at once."""


class CountedTimes(msgspec.Struct, frozen=True, gc=False):
    """A histogram as it stands."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class InboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers about the inbox that a server reads."""

    rows: dict[str, int] | None
    """By state; None while the database does not answer."""
    oldest_s: float
    totals: dict[str, int]


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    process: int
    uptime_s: float
    shards: list[Stats] | None
    """Over all tenants. None if the broker does not count in this process."""
    tenants: list[str]
    commands: list[tuple[str, str, int]]
    """Name, outcome, how many."""
    turn_sizes: CountedTimes | None
    """None if the broker has no turns."""
    turn_times: CountedTimes | None
    http_times: CountedTimes
    http_statuses: dict[int, int]
    connections: dict[str, int]
    streams: int
    workers: int
    """Heard of in the last minute."""
    is_full: bool | None
    is_ready: bool
    webhooks: dict[str, int]
    inbox: InboxReport | None = None


_report = msgspec.msgpack.Decoder(ServerReport).decode
_workers = msgspec.msgpack.Decoder(list[SeenWorker]).decode


def own_report(service: "Service") -> ServerReport:
    dispatcher, meter, webhooks = service.dispatcher, service.meter, service.webhooks
    counters, has_turns = dispatcher.broker.counters, dispatcher.broker.turns is not None
    known = counters or dispatcher.broker.remote
    return ServerReport(
        process=dispatcher.team.seat.number if dispatcher.team is not None else 0,
        uptime_s=time.time() - service.started_at,
        shards=counters.shard_stats() if counters is not None else None,
        tenants=sorted(known.tenants()) if known is not None else [],
        commands=_commands(service),
        turn_sizes=_counted(meter.turn_sizes) if has_turns else None,
        turn_times=_counted(meter.turn_times) if has_turns else None,
        http_times=_counted(meter.http_times),
        http_statuses=dict(meter.http_statuses),
        connections=dict(meter.connections),
        streams=meter.streams,
        workers=meter.workers_since(time.time() - 60),
        is_full=counters.is_full if counters is not None else None,
        is_ready=not service.trouble,
        webhooks=msgspec.structs.asdict(webhooks.totals) if webhooks is not None else {},
        inbox=service.inbox_report(),
    )


async def all_reports(service: "Service") -> list[ServerReport]:
    """Of every process of this node. Raises `Unavailable` if one is not there: sums without it would be wrong."""
    team = service.dispatcher.team
    if team is None:
        return [own_report(service)]
    replies = await team.ask_all("report")
    missing = [process for process in team.siblings if process not in replies]
    if missing:
        raise not_there(missing)
    return [_report(replies[process]) for process in team.siblings]


async def all_workers(service: "Service", tenant: str) -> list[SeenWorker]:
    """Those of a tenant: heard of in any process, with what they tell about themselves in the key-value store."""
    found = {worker.id: worker for worker in await _heard_of(service, tenant)}
    for view in await registered_workers(service, tenant):
        known = found.get(view.id) or SeenWorker(view.id, view.queues, view.seen_at)
        last_seen = max(known.last_seen, view.seen_at)
        found[view.id] = msgspec.structs.replace(
            known, queues=view.queues, last_seen=last_seen, concurrency=view.slots or known.concurrency
        )
    return list(found.values())


async def registered_workers(service: "Service", tenant: str) -> list[WorkerView]:
    """Those that report themselves in the key-value store. None if the broker has no such store."""
    try:
        return await _in_store(service, tenant)
    except Unsupported:
        return []


async def _in_store(service: "Service", tenant: str) -> list[WorkerView]:
    dispatcher, found = service.dispatcher, list[WorkerView]()
    after: str | None = None
    while len(found) < WORKERS_MAX:
        page: r.KvKeyPage = await dispatcher.call(tenant, c.KvKeys(WORKER_KEYS + "*", after, PAGE))
        if page.keys:
            values: r.KvValues = await dispatcher.call(tenant, c.KvGetMany(page.keys))
            found += worker_views(values.values)
        after = page.next_after
        if after is None:
            break
    return found


async def _heard_of(service: "Service", tenant: str) -> list[SeenWorker]:
    team = service.dispatcher.team
    if team is None:
        return service.meter.workers(tenant)
    found: dict[str, SeenWorker] = {}
    for reply in (await team.ask_all("workers", tenant=tenant)).values():
        for worker in _workers(reply):
            known = found.get(worker.id)
            found[worker.id] = worker if known is None else _joined(known, worker)
    return list(found.values())


def _joined(one: SeenWorker, other: SeenWorker) -> SeenWorker:
    latest = max(one, other, key=lambda worker: worker.last_seen)
    return msgspec.structs.replace(latest, pulls=one.pulls + other.pulls)


def _commands(service: "Service") -> list[tuple[str, str, int]]:
    meter = service.meter
    found: list[tuple[str, str, int]] = []
    refused: dict[type, int] = {}
    for (kind, code), count in meter.refused.items():
        found.append((NAMES.get(kind, "other"), code, count))
        refused[kind] = refused.get(kind, 0) + count
    return found + [
        (NAMES.get(kind, "other"), "ok", count - refused.get(kind, 0)) for kind, count in meter.commands.items()
    ]


def _counted(histogram: MeterHistogram) -> CountedTimes:
    return CountedTimes(tuple(histogram.bounds), tuple(histogram.counts), histogram.sum)
