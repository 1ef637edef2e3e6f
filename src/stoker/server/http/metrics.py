"""Numbers for Prometheus, gathered when they are asked for.

`METRICS` names them all; the reference page is made from it, and a test compares it with what is served. Series are
bounded: queues only of the asking tenant, or of the tenants that are named if the configuration wants that, and of all
these only so many.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.replies import Counts, Totals
from stoker.model.version import __version__
from stoker.server.meter import Histogram
from stoker.server.service import Service
from stoker.wire.native import NAMES

QUEUES_MAX = 200
"""Queues with series of their own; of more, those that come first by name."""
TENANTS_MAX = 100


class Metric(msgspec.Struct, frozen=True):
    """One family of series."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    meaning: str


METRICS: tuple[Metric, ...] = (
    Metric("stoker_info", "gauge", ("version",), "1; the label tells the release."),
    Metric("stoker_uptime_seconds", "gauge", (), "Since the server started."),
    Metric("stoker_jobs", "gauge", ("state",), "Jobs by state, over all tenants; ended ones while they are readable."),
    Metric("stoker_job_steps_total", "counter", ("step",), "Jobs pushed, started, completed, failed and so on."),
    Metric("stoker_job_wait_seconds_total", "counter", (), "From push to first start, summed over completed jobs."),
    Metric("stoker_job_run_seconds_total", "counter", (), "From last start to end, summed over completed jobs."),
    Metric(
        "stoker_queue_jobs",
        "gauge",
        ("queue", "state"),
        f"Jobs by queue and state, for {QUEUES_MAX} queues at most; of the asking token's tenant, or with a label"
        " `tenant` for all tenants if `metrics.tenant_labels` is set.",
    ),
    Metric("stoker_commands_total", "counter", ("command", "outcome"), "Commands by outcome: ok, or an error's code."),
    Metric("stoker_turn_commands", "histogram", (), "Commands that were journaled and answered together."),
    Metric("stoker_turn_seconds", "histogram", (), "From a turn's first command to its answers, without the disk."),
    Metric("stoker_http_requests_total", "counter", ("status",), "Requests of HTTP by the status of their answers."),
    Metric("stoker_http_request_seconds", "histogram", (), "From the head of a request to the end of its answer."),
    Metric("stoker_connections", "gauge", ("transport",), "Open connections."),
    Metric("stoker_streams", "gauge", (), "Open event streams over HTTP and WebSocket."),
    Metric("stoker_workers", "gauge", (), "Workers heard of in the last minute."),
    Metric("stoker_storage_full", "gauge", (), "1 while no new jobs are taken for want of disk."),
)
BY_NAME = {metric.name: metric for metric in METRICS}


class Numbers(Collector):
    """What one request for metrics is answered with."""

    def __init__(self, service: Service, tenant: str, streams: int) -> None:
        self._service, self._tenant, self._streams = service, tenant, streams

    def collect(self) -> Iterable[Any]:
        yield gauge("stoker_info", [((__version__,), 1)])
        yield gauge("stoker_uptime_seconds", [((), time.time() - self._service.started_at)])
        yield from self._jobs()
        yield self._queues()
        yield from self._server()

    def _jobs(self) -> Iterator[Any]:
        shards = self._service.desk.broker.shard_stats()
        states = [
            ((state,), sum(getattr(shard.counts, state) for shard in shards)) for state in Counts.__struct_fields__
        ]
        yield gauge("stoker_jobs", states)
        sums = {name: sum(getattr(shard.totals, name) for shard in shards) for name in Totals.__struct_fields__}
        steps = [((name,), value) for name, value in sums.items() if not name.endswith("_ms_sum")]
        yield counter("stoker_job_steps_total", steps)
        yield counter("stoker_job_wait_seconds_total", [((), sums["wait_ms_sum"] / 1000)])
        yield counter("stoker_job_run_seconds_total", [((), sums["run_ms_sum"] / 1000)])

    def _queues(self) -> Any:
        named = self._service.config.metrics.tenant_labels
        labels = ("tenant", "queue", "state") if named else ("queue", "state")
        samples: list[tuple[tuple[str, ...], float]] = []
        left = QUEUES_MAX
        for tenant in self._tenants() if named else [self._tenant]:
            desk = self._service.desk
            for queue in sorted(desk.look(tenant, c.ListQueues()).names)[:left]:
                left -= 1
                try:
                    counts = desk.look(tenant, c.GetStats(queue)).counts
                except StokerError:
                    continue  # it was obliterated meanwhile
                for state in Counts.__struct_fields__:
                    key = (tenant, queue, state) if named else (queue, state)
                    samples.append((key, getattr(counts, state)))
        return gauge("stoker_queue_jobs", samples, labels)

    def _tenants(self) -> list[str]:
        shards = self._service.desk.broker.runtime.shards
        found = {name for shard in shards for name in shard.tenants if name != SYSTEM_TENANT}
        return sorted(found)[:TENANTS_MAX]

    def _server(self) -> Iterator[Any]:
        meter = self._service.meter
        commands: list[tuple[tuple[str, ...], float]] = []
        refused: dict[type, int] = {}
        for (kind, code), count in meter.refused.items():
            commands.append(((NAMES.get(kind, "other"), code), count))
            refused[kind] = refused.get(kind, 0) + count
        commands += [
            ((NAMES.get(kind, "other"), "ok"), count - refused.get(kind, 0)) for kind, count in meter.commands.items()
        ]
        yield counter("stoker_commands_total", commands)
        yield histogram("stoker_turn_commands", meter.turn_sizes)
        yield histogram("stoker_turn_seconds", meter.turn_times)
        statuses = [((str(status),), count) for status, count in sorted(meter.http_statuses.items())]
        yield counter("stoker_http_requests_total", statuses)
        yield histogram("stoker_http_request_seconds", meter.http_times)
        yield gauge("stoker_connections", [((name,), count) for name, count in sorted(meter.connections.items())])
        yield gauge("stoker_streams", [((), self._streams)])
        yield gauge("stoker_workers", [((), meter.workers_since(time.time() - 60))])
        yield gauge("stoker_storage_full", [((), int(self._service.desk.broker.runtime.journal.is_full))])


Samples = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, samples: Samples, labels: tuple[str, ...] | None = None) -> Any:
    metric = BY_NAME[name]
    family = GaugeMetricFamily(name, metric.meaning, labels=labels or metric.labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counter(name: str, samples: Samples) -> Any:
    metric = BY_NAME[name]
    family = CounterMetricFamily(name, metric.meaning, labels=metric.labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def histogram(name: str, counted: Histogram) -> Any:
    family = HistogramMetricFamily(name, BY_NAME[name].meaning, labels=())
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*counted.bounds, float("inf")), counted.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
    family.add_metric((), buckets, counted.sum)
    return family


def exposition(service: Service, tenant: str, streams: int, accept: str) -> tuple[bytes, str]:
    """The text, and what it is called."""
    registry = CollectorRegistry()
    registry.register(Numbers(service, tenant, streams))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
