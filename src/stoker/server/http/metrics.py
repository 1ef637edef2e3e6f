"""Numbers for Prometheus, gathered on request.

`METRICS` names all of them; the reference page is made from it, and a test compares it with what is served. The number
of series is bounded: only queues of the asking tenant, or of all tenants if the configuration says so, and at most
`QUEUES_MAX` of them. A server in several processes reports all of them, whichever is asked.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from stoker.model import commands as c
from stoker.model.histograms import COARSE_MS, Histogram
from stoker.model.history import Timings
from stoker.model.replies import Counts, Totals
from stoker.model.version import __version__
from stoker.server.report import CountedTimes, ServerReport, all_reports
from stoker.server.service import Service

QUEUES_MAX = 200
"""Queues with their own series; of more, the first by name."""
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
    Metric(
        "stoker_queue_backlog", "gauge", ("queue",), "Jobs that a worker could start now, by queue: for autoscalers."
    ),
    Metric(
        "stoker_queue_oldest_waiting_seconds",
        "gauge",
        ("queue",),
        "Since the push of the oldest waiting job, by queue; 0 if none waits.",
    ),
    Metric(
        "stoker_queue_wait_seconds", "histogram", ("queue",), "From the push of a job to its first start, by queue."
    ),
    Metric(
        "stoker_queue_run_seconds",
        "histogram",
        ("queue",),
        "From a start to the end of the delivery, completed or failed, by queue.",
    ),
    Metric("stoker_commands_total", "counter", ("command", "outcome"), "Commands by outcome: ok, or an error's code."),
    Metric("stoker_turn_commands", "histogram", (), "Commands that were journaled and answered together."),
    Metric("stoker_turn_seconds", "histogram", (), "From a turn's first command to its answers, without the disk."),
    Metric("stoker_http_requests_total", "counter", ("status",), "Requests of HTTP by the status of their answers."),
    Metric("stoker_http_request_seconds", "histogram", (), "From the head of a request to the end of its answer."),
    Metric("stoker_connections", "gauge", ("transport",), "Open connections."),
    Metric("stoker_streams", "gauge", (), "Open event streams over HTTP and WebSocket."),
    Metric("stoker_workers", "gauge", (), "Workers heard of in the last minute."),
    Metric("stoker_ready", "gauge", (), "1 while work is accepted, as `/ready` says."),
    Metric("stoker_storage_full", "gauge", (), "1 while no new jobs are taken for want of disk."),
    Metric(
        "stoker_webhooks_total",
        "counter",
        ("outcome",),
        "Attempts that delivered or failed, events given up, and records that were dropped before a hook read them.",
    ),
    Metric(
        "stoker_inbox_rows",
        "gauge",
        ("state",),
        "Rows of the inbox that wait, are being sent, or were refused and set aside; as of the last 10 s, up to 100,000"
        " of each, and none while PostgreSQL does not answer.",
    ),
    Metric("stoker_inbox_oldest_seconds", "gauge", (), "Age of the oldest row of the inbox that is not set aside."),
    Metric(
        "stoker_inbox_outcomes_total",
        "counter",
        ("outcome",),
        "Rows pushed, refused, and set aside because it is not certain whether they were pushed.",
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}


class QueueNumbers(msgspec.Struct, frozen=True):
    """The numbers of a tenant's queue. A broker that does not measure has no timings."""

    tenant: str
    queue: str
    counts: Counts
    timings: Timings | None


class Numbers(Collector):
    """The response to one request for metrics.

    With several processes, numbers that each process counts for itself have a label for the process: a sum would fall
    whenever one of them restarts.
    """

    def __init__(self, reports: list[ServerReport], queues: list[QueueNumbers], tenant_labels: bool) -> None:
        self._reports, self._queue_numbers, self._tenant_labels = reports, queues, tenant_labels

    def collect(self) -> Iterable[Any]:
        yield gauge("stoker_info", [((__version__,), 1)])
        yield self._gauge("stoker_uptime_seconds", lambda report: [((), report.uptime_s)])
        yield from self._jobs()
        yield from self._queues()
        yield from self._server()

    def _jobs(self) -> Iterator[Any]:
        shards = [stats for report in self._reports for stats in report.shards or ()]
        if any(report.shards is None for report in self._reports):
            return  # the broker does not count: no number is better than a wrong one
        states = [
            ((state,), sum(getattr(shard.counts, state) for shard in shards)) for state in Counts.__struct_fields__
        ]
        yield gauge("stoker_jobs", states)
        sums = {name: sum(getattr(shard.totals, name) for shard in shards) for name in Totals.__struct_fields__}
        steps = [((name,), value) for name, value in sums.items() if not name.endswith("_ms_sum")]
        yield counter("stoker_job_steps_total", steps)
        yield counter("stoker_job_wait_seconds_total", [((), sums["wait_ms_sum"] / 1000)])
        yield counter("stoker_job_run_seconds_total", [((), sums["run_ms_sum"] / 1000)])

    def _queues(self) -> Iterator[Any]:
        found = [(self._queue_label(one), one) for one in self._queue_numbers]
        states = [
            ((*label, state), getattr(one.counts, state)) for label, one in found for state in Counts.__struct_fields__
        ]
        yield gauge("stoker_queue_jobs", states, self._queue_labels("stoker_queue_jobs"))
        backlog = [(label, one.counts.waiting) for label, one in found]
        yield gauge("stoker_queue_backlog", backlog, self._queue_labels("stoker_queue_backlog"))
        measured = [(label, one.timings) for label, one in found if one.timings is not None]
        ages = [(label, age_s(timings)) for label, timings in measured]
        name = "stoker_queue_oldest_waiting_seconds"
        yield gauge(name, ages, self._queue_labels(name))
        yield self._durations("stoker_queue_wait_seconds", [(label, timings.wait) for label, timings in measured])
        yield self._durations("stoker_queue_run_seconds", [(label, timings.run) for label, timings in measured])

    def _durations(self, name: str, found: list[tuple[tuple[str, ...], Histogram]]) -> Any:
        family = HistogramMetricFamily(name, BY_NAME[name].meaning, labels=self._queue_labels(name))
        bounds = tuple(bound / 1000 for bound in COARSE_MS)
        for label, one in found:
            family.add_metric(label, *buckets(CountedTimes(bounds, tuple(one.up_to()), one.sum_ms / 1000)))
        return family

    def _queue_label(self, one: QueueNumbers) -> tuple[str, ...]:
        return (one.tenant, one.queue) if self._tenant_labels else (one.queue,)

    def _queue_labels(self, name: str) -> tuple[str, ...]:
        own = BY_NAME[name].labels
        return ("tenant", *own) if self._tenant_labels else own

    def _server(self) -> Iterator[Any]:
        yield self._counter(
            "stoker_commands_total", lambda report: [((name, code), count) for name, code, count in report.commands]
        )
        yield from self._histogram("stoker_turn_commands", lambda report: report.turn_sizes)
        yield from self._histogram("stoker_turn_seconds", lambda report: report.turn_times)
        yield self._counter(
            "stoker_http_requests_total",
            lambda report: [((str(status),), count) for status, count in sorted(report.http_statuses.items())],
        )
        yield from self._histogram("stoker_http_request_seconds", lambda report: report.http_times)
        yield self._gauge(
            "stoker_connections",
            lambda report: [((name,), count) for name, count in sorted(report.connections.items())],
        )
        yield self._gauge("stoker_streams", lambda report: [((), report.streams)])
        yield self._gauge("stoker_workers", lambda report: [((), report.workers)])
        yield self._gauge("stoker_ready", lambda report: [((), int(report.is_ready))])
        if not any(report.is_full is None for report in self._reports):
            yield self._gauge("stoker_storage_full", lambda report: [((), int(bool(report.is_full)))])
        yield self._counter(
            "stoker_webhooks_total", lambda report: [((name,), count) for name, count in report.webhooks.items()]
        )
        yield from self._inbox()

    def _inbox(self) -> Iterator[Any]:
        """One process reads it, if any does."""
        inbox = next((report.inbox for report in self._reports if report.inbox is not None), None)
        rows = (inbox.rows if inbox is not None else None) or {}
        yield gauge("stoker_inbox_rows", [((state,), count) for state, count in rows.items()])
        yield gauge("stoker_inbox_oldest_seconds", [((), inbox.oldest_s)] if inbox is not None and rows else [])
        totals = inbox.totals if inbox is not None else {}
        yield counter("stoker_inbox_outcomes_total", [((name,), count) for name, count in totals.items()])

    # --- one series for each process -----------------------------------------------------------------

    def _gauge(self, name: str, samples: "Callable[[ServerReport], Samples]") -> Any:
        return gauge(name, self._of_each(samples), self._labels(name))

    def _counter(self, name: str, samples: "Callable[[ServerReport], Samples]") -> Any:
        return counter(name, self._of_each(samples), self._labels(name))

    def _histogram(self, name: str, counted: "Callable[[ServerReport], CountedTimes | None]") -> Iterator[Any]:
        """One family, or none if the broker has nothing to measure here."""
        found = [(self._label(report), counted(report)) for report in self._reports]
        family = HistogramMetricFamily(name, BY_NAME[name].meaning, labels=self._labels(name))
        for label, one in found:
            if one is None:
                return
            family.add_metric(label, *buckets(one))
        yield family

    def _of_each(self, samples: "Callable[[ServerReport], Samples]") -> "Samples":
        return [
            ((*self._label(report), *values), value) for report in self._reports for values, value in samples(report)
        ]

    def _label(self, report: ServerReport) -> tuple[str, ...]:
        return (str(report.process),) if len(self._reports) > 1 else ()

    def _labels(self, name: str) -> tuple[str, ...]:
        own = BY_NAME[name].labels
        return ("process", *own) if len(self._reports) > 1 else own


Samples = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, samples: Samples, labels: tuple[str, ...] | None = None) -> Any:
    metric = BY_NAME[name]
    family = GaugeMetricFamily(name, metric.meaning, labels=metric.labels if labels is None else labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def counter(name: str, samples: Samples, labels: tuple[str, ...] | None = None) -> Any:
    metric = BY_NAME[name]
    family = CounterMetricFamily(name, metric.meaning, labels=metric.labels if labels is None else labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def buckets(counted: CountedTimes) -> tuple[list[tuple[str, float]], float]:
    found: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*counted.bounds, float("inf")), counted.counts, strict=True):
        total += count
        found.append(("+Inf" if bound == float("inf") else str(float(bound)), total))
    return found, counted.sum


def age_s(timings: Timings) -> float:
    """For how long the oldest job has waited."""
    return max(0.0, time.time() - timings.oldest_waiting_at / 1000) if timings.oldest_waiting_at else 0.0


async def queue_numbers(service: Service, tenants: list[str]) -> list[QueueNumbers]:
    found: list[QueueNumbers] = []
    if c.GetQueues.__name__ in service.dispatcher.broker.lacks:
        return found
    for tenant in tenants:
        if len(found) >= QUEUES_MAX:
            break
        page = await service.dispatcher.look_everywhere(tenant, c.GetQueues(limit=QUEUES_MAX - len(found)))
        found += [QueueNumbers(tenant, one.name, one.stats.counts, one.timings) for one in page.queues]
    return found


async def exposition(service: Service, tenant: str, accept: str) -> tuple[bytes, str]:
    """The text and its content type."""
    reports, named = await all_reports(service), service.config.metrics.tenant_labels
    known = sorted({name for report in reports for name in report.tenants})[:TENANTS_MAX]
    # counting jobs waits for a broker that does not answer, and then these numbers are what is looked at
    queues = [] if service.trouble else await queue_numbers(service, known if named else [tenant])
    registry = CollectorRegistry()
    registry.register(Numbers(reports, queues, named))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind
