"""The server's own counters, in memory and bounded: commands, turns, HTTP answers, workers, and a history.

Every command is counted, so each count is one addition. Nothing here knows a transport or Prometheus.
"""

import time
from bisect import bisect_left
from collections import defaultdict, deque
from typing import Any

import msgspec

from stoker.model.replies import Stats

HISTORY_POINTS = 1_000
HISTORY_S = 5.0
"""A point every so often: the last hour and twenty minutes."""
WORKERS_MAX = 10_000
"""Those heard of longest ago make room."""
BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS_COUNT = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class MeterHistogram:
    """How often a value was how large."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Point(msgspec.Struct, frozen=True, gc=False):
    """How things stood at one moment; totals are since the beginning."""

    timestamp: int
    queued: int
    processing: int
    delayed: int
    failed: int
    total_pushed: int
    total_completed: int
    total_failed: int
    throughput: float
    """Completed jobs a second, over the last minute."""
    connections: int


class SeenWorker(msgspec.Struct):
    """One that has pulled, or said that it is there."""

    id: str
    queues: tuple[str, ...]
    last_seen: int
    pulls: int = 0
    concurrency: int = 0


class Meter:
    """The counts of one process."""

    def __init__(self) -> None:
        self.commands: defaultdict[type, int] = defaultdict(int)
        """By kind: how many were handed in."""
        self.refused: defaultdict[tuple[type, str], int] = defaultdict(int)
        """By kind and code: how many of those the queue did not take."""
        self.turn_sizes = MeterHistogram(BOUNDS_COUNT)
        self.turn_times = MeterHistogram(BOUNDS_S)
        self.http_times = MeterHistogram(BOUNDS_S)
        self.http_statuses: defaultdict[int, int] = defaultdict(int)
        self.connections: dict[str, int] = {}
        """By transport, where it tells."""
        self.streams = 0
        """Of events, over HTTP and WebSocket."""
        self.history: deque[Point] = deque(maxlen=HISTORY_POINTS)
        self._workers: dict[tuple[str, str], SeenWorker] = {}

    def turn(self, size: int, seconds: float) -> None:
        """A turn of the loop was journaled and answered."""
        self.turn_sizes.add(size)
        self.turn_times.add(seconds)

    def http(self, status: int, seconds: float) -> None:
        self.http_statuses[status] += 1
        self.http_times.add(seconds)

    # --- workers -------------------------------------------------------------------------------------

    def seen(self, tenant: str, name: str, queues: Any, concurrency: int = 0, *, pulled: bool = True) -> None:
        key = (tenant, name)
        worker = self._workers.pop(key, None)
        if worker is None:
            worker = SeenWorker(name, (), 0)
            if len(self._workers) >= WORKERS_MAX:
                del self._workers[next(iter(self._workers))]
        self._workers[key] = worker  # at the end: the first one is the one not heard of for longest
        worker.last_seen = round(time.time() * 1000)
        worker.pulls += pulled
        if queues:
            worker.queues = tuple(queues[:16])
        if concurrency:
            worker.concurrency = concurrency

    def workers(self, tenant: str) -> list[SeenWorker]:
        return [worker for (owner, _), worker in self._workers.items() if owner == tenant]

    def workers_since(self, seconds: float) -> int:
        """How many were heard of since a moment of wall-clock time."""
        return sum(worker.last_seen >= seconds * 1000 for worker in self._workers.values())

    # --- history -------------------------------------------------------------------------------------

    def note(self, shards: list[Stats], connections: int) -> None:
        """Add a point to the history."""
        counts = [shard.counts for shard in shards]
        totals = [shard.totals for shard in shards]
        self.history.append(
            Point(
                timestamp=round(time.time() * 1000),
                queued=sum(each.waiting for each in counts),
                processing=sum(each.active for each in counts),
                delayed=sum(each.delayed for each in counts),
                failed=sum(each.failed for each in counts),
                total_pushed=sum(each.pushed for each in totals),
                total_completed=sum(each.completed for each in totals),
                total_failed=sum(each.failed for each in totals),
                throughput=sum(shard.completed_last_minute for shard in shards) / 60,
                connections=connections,
            )
        )
