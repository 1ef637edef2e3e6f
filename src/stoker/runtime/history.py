"""The history of queues: samples of their counters once a minute, and answers by steps of time.

A server samples (`server/history.py`). The difference to the sample before is what happened in a minute. A broker that
no server samples answers with what a server has left in its data directory.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from stoker.engine import checks
from stoker.engine.jobs import WAITING
from stoker.engine.state import T_COMPLETED, T_FAILED, T_PUSHED, T_RETRIED, T_STARTED, QueueState
from stoker.journal.history_file import ALL_QUEUES, HistoryFile, Sample
from stoker.model import commands as c
from stoker.model import errors
from stoker.model.histograms import histogram, no_durations
from stoker.model.history import MINUTE_MS, STEPS_MAX, History, HistoryPoint, TrendPoint, Trends, together
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import DURATION_MS_MAX
from stoker.runtime.shards import Shards

TREND_MINUTES_MAX = 10_000
"""Minutes of all queues that one command reads: a hundred queues over an hour are a few milliseconds."""

Marks = tuple[list[int], list[int], list[int]]
"""The totals and both histograms of a queue at the last sample."""


class HistoryRecorder:
    """Samples the queues of a process, and answers `GetHistory` and `GetTrends`."""

    def __init__(self, shards: Shards, path: Path | None) -> None:
        """`path` is where the file is. Without one it is in memory."""
        self._shards = shards
        self.file = HistoryFile(path)
        self._marks: dict[tuple[str, str], Marks] | None = None

    def sample(self) -> list[Sample]:
        """What has happened in each queue since the last sample, and together in all queues of each tenant.

        The first sample only notes where things stand. Belongs into a turn; storing it (`HistoryFile.add`) does not.
        """
        before, self._marks = self._marks, {}
        found: list[Sample] = []
        by_tenant: dict[str, list[HistoryPoint]] = {}
        for tenant, queue in self._queues():
            old = (before or {}).get((tenant, queue.name))
            new: Marks = (list(queue.totals), list(queue.wait), list(queue.run))
            self._marks[tenant, queue.name] = new
            point = between(old, new, queue.counts[WAITING])
            if before is not None and point != HistoryPoint(at=0):
                found.append((tenant, queue.name, point))
                by_tenant.setdefault(tenant, []).append(point)
        found += [(tenant, ALL_QUEUES, together(0, points)) for tenant, points in by_tenant.items()]
        return found

    def _queues(self) -> Iterator[tuple[str, QueueState]]:
        for shard in self._shards:
            for tenant in shard.tenants.values():
                if tenant.name != SYSTEM_TENANT:
                    yield from ((tenant.name, queue) for queue in tenant.queues.values() if queue.known)

    def get(self, tenant: str, command: c.GetHistory, now: int) -> History:
        if command.queue is not None:
            checks.name(command.queue)
        since, before = self._minutes(command, now)
        points = self.file.read(tenant, command.queue or ALL_QUEUES, since, before)
        return History(command.step_ms, by_steps(points, command.step_ms))

    def get_trends(self, tenant: str, command: c.GetTrends, now: int) -> Trends:
        for name in command.queues:
            checks.name(name)
        since, before = self._minutes(command, now)
        minutes = (before - since) * len(command.queues)
        if minutes > TREND_MINUTES_MAX:
            raise errors.LimitExceeded(
                f"{minutes:,} minutes of all queues are over the limit of {TREND_MINUTES_MAX:,}: ask for fewer queues"
                " or a shorter range_ms"
            )
        points = {name: self.file.read_trend(tenant, name, since, before) for name in command.queues}
        found = {name: summed(own, command.step_ms) for name, own in points.items() if own}
        return Trends(command.step_ms, found)

    def _minutes(self, command: c.GetHistory | c.GetTrends, now: int) -> tuple[int, int]:
        """The first minute that is asked for, where a step begins, and the one after the last. Raises `StokerError`."""
        step, length = command.step_ms, command.range_ms
        checks.number(step, "step_ms", MINUTE_MS, DURATION_MS_MAX)
        checks.number(length, "range_ms", step, DURATION_MS_MAX)
        if step % MINUTE_MS:
            raise errors.InvalidRequest(f"step_ms {step} is invalid: expected whole minutes, such as {MINUTE_MS}")
        if length > step * STEPS_MAX:
            raise errors.LimitExceeded(
                f"{length // step} steps are over the limit of {STEPS_MAX}: use a longer step_ms"
            )
        until = (now - self._shards[0].ahead_ms) // MINUTE_MS
        since = (until * MINUTE_MS - length) // step * step // MINUTE_MS
        return max(0, since), until + 1


def between(old: Marks | None, new: Marks, backlog: int) -> HistoryPoint:
    """What happened between two samples. A queue whose totals are smaller than before was made anew."""
    empty: Marks = ([0] * len(new[0]), no_durations(), no_durations())
    base = old if old is not None and all(map(int.__le__, old[0], new[0])) else empty
    totals, wait, run = map(difference, new, base)
    return HistoryPoint(
        at=0,
        pushed=totals[T_PUSHED],
        started=totals[T_STARTED],
        completed=totals[T_COMPLETED],
        failed=totals[T_RETRIED] + totals[T_FAILED],
        dead=totals[T_FAILED],
        backlog=backlog,
        wait=histogram(wait),
        run=histogram(run),
    )


def difference(new: list[int], old: list[int]) -> list[int]:
    return [after - before for after, before in zip(new, old, strict=True)]


def by_steps(points: Sequence[HistoryPoint], step_ms: int) -> list[HistoryPoint]:
    steps: dict[int, list[HistoryPoint]] = {}
    for point in points:
        steps.setdefault(point.at // step_ms * step_ms, []).append(point)
    return [together(at, own, last=True) for at, own in steps.items()]


def summed(points: Iterable[TrendPoint], step_ms: int) -> list[TrendPoint]:
    """One point for each step, in order."""
    steps: dict[int, list[TrendPoint]] = {}
    for point in points:
        steps.setdefault(point.at // step_ms * step_ms, []).append(point)
    return [
        TrendPoint(at, sum(one.completed for one in own), sum(one.dead for one in own))
        for at, own in sorted(steps.items())
    ]


def all_trends(command: c.GetTrends, found: Sequence[Trends]) -> Trends:
    """Those of several processes as one: a queue may have moved from one to another."""
    points: dict[str, list[TrendPoint]] = {}
    for one in found:
        for name, own in one.queues.items():
            points.setdefault(name, []).extend(own)
    return Trends(command.step_ms, {name: summed(own, command.step_ms) for name, own in points.items()})


def all_histories(command: c.GetHistory, found: Sequence[History]) -> History:
    """Those of several processes as one."""
    steps: dict[int, list[HistoryPoint]] = {}
    for one in found:
        for point in one.points:
            steps.setdefault(point.at, []).append(point)
    return History(command.step_ms, [together(at, own) for at, own in sorted(steps.items())])
