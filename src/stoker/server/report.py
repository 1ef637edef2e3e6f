"""What one process of a server tells about itself, as a value: what `/metrics` and the history are made of.

A server in several processes asks all of them; one alone only looks at itself.
"""

import time
from typing import TYPE_CHECKING

import msgspec

from stoker.model.errors import Unavailable
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.replies import Stats
from stoker.server.meter import Histogram, Worker
from stoker.wire.native import NAMES

if TYPE_CHECKING:
    from stoker.server.service import Service


class Counted(msgspec.Struct, frozen=True, gc=False):
    """A histogram as it stands."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    process: int
    uptime_s: float
    shards: list[Stats]
    """Over all tenants."""
    tenants: list[str]
    commands: list[tuple[str, str, int]]
    """Name, outcome, how many."""
    turn_sizes: Counted
    turn_times: Counted
    http_times: Counted
    http_statuses: dict[int, int]
    connections: dict[str, int]
    streams: int
    workers: int
    """Heard of in the last minute."""
    is_full: bool
    webhooks: dict[str, int]


_report = msgspec.msgpack.Decoder(Report).decode
_workers = msgspec.msgpack.Decoder(list[Worker]).decode


def own_report(service: "Service") -> Report:
    desk, meter, webhooks = service.desk, service.meter, service.webhooks
    runtime = desk.broker.runtime
    return Report(
        process=desk.team.seat.number if desk.team is not None else 0,
        uptime_s=time.time() - service.started_at,
        shards=desk.broker.shard_stats(),
        tenants=sorted({name for shard in runtime.shards for name in shard.tenants if name != SYSTEM_TENANT}),
        commands=_commands(service),
        turn_sizes=_counted(meter.turn_sizes),
        turn_times=_counted(meter.turn_times),
        http_times=_counted(meter.http_times),
        http_statuses=dict(meter.http_statuses),
        connections=dict(meter.connections),
        streams=meter.streams,
        workers=meter.workers_since(time.time() - 60),
        is_full=bool(runtime.journal.is_full),
        webhooks=msgspec.structs.asdict(webhooks.totals) if webhooks is not None else {},
    )


async def all_reports(service: "Service") -> list[Report]:
    """Of every process. Raises `Unavailable` if one is not there: sums without it would be wrong."""
    team = service.desk.team
    if team is None:
        return [own_report(service)]
    replies = await team.ask_all("report")
    missing = [process for process in range(team.seat.processes) if process not in replies]
    if missing:
        raise Unavailable(f"process {missing[0]} is not there at the moment: it comes back by itself, try again")
    return [_report(reply) for reply in replies.values()]


async def all_workers(service: "Service", tenant: str) -> list[Worker]:
    """Those of a tenant, wherever they were heard of."""
    team = service.desk.team
    if team is None:
        return service.meter.workers(tenant)
    found: dict[str, Worker] = {}
    for reply in (await team.ask_all("workers", tenant=tenant)).values():
        for worker in _workers(reply):
            known = found.get(worker.id)
            found[worker.id] = worker if known is None else _joined(known, worker)
    return list(found.values())


def _joined(one: Worker, other: Worker) -> Worker:
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


def _counted(histogram: Histogram) -> Counted:
    return Counted(tuple(histogram.bounds), tuple(histogram.counts), histogram.sum)
