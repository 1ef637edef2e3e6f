"""A snapshot of all queues for display: counts, rates, workers and the latest failures.

It uses only the client, so it works the same for an embedded queue and a server. It draws nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoker.cli.formatting import now_ms
from stoker.model.wording import limit_text

if TYPE_CHECKING:
    from stoker import Client
    from stoker.model.replies import JobView, QueueView, Stats
    from stoker.model.workers import WorkerView

QUEUES_MAX = 200
"""Each queue is one request: with more, a snapshot would be outdated before it is complete."""
FAILURES_MAX = 8
WINDOWS_MS = (5_000, 60_000, 15 * 60_000)
"""Dead letters are listed oldest first, so the latest are found by asking for the last moments, then for more."""
PAGE_JOBS = 50
PAGES_MAX = 3
OLDEST_PAGES_MAX = 20


@dataclass(frozen=True)
class QueueFacts:
    """One queue: its content, and what holds it back."""

    name: str
    stats: "Stats"
    policy: "QueueView | None"

    @property
    def is_quiet(self) -> bool:
        counts = self.stats.counts
        return not (counts.waiting or counts.active or counts.delayed or counts.blocked)


@dataclass(frozen=True)
class QueueSnapshot:
    """All queues at one moment."""

    at: int
    stats: "Stats"
    queues: Sequence[QueueFacts]
    queues_total: int
    workers: "Sequence[WorkerView]" = ()
    failures: "Sequence[JobView]" = ()


@dataclass(frozen=True)
class Rates:
    """Per second, between two snapshots."""

    pushed: float = 0.0
    completed: float = 0.0
    failed: float = 0.0
    retried: float = 0.0
    queues: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Pushed and completed."""


def take_snapshot(client: "Client", only: Sequence[str] = ()) -> QueueSnapshot:
    names = list(only) or list(client.list_queues())
    queues = [QueueFacts(name, client.get_stats(name), policy_of(client, name)) for name in names[:QUEUES_MAX]]
    return QueueSnapshot(
        now_ms(), client.get_stats(), queues, len(names), workers_of(client), failures_of(client, queues)
    )


def policy_of(client: "Client", name: str) -> "QueueView | None":
    from stoker.model.errors import NotFound

    try:
        return client.get_queue(name)
    except NotFound:  # obliterated meanwhile
        return None


def workers_of(client: "Client") -> "Sequence[WorkerView]":
    """The registered workers; none without the permission to read them."""
    from stoker.model.errors import Refused

    try:
        return client.list_workers()
    except Refused:
        return ()


def failures_of(client: "Client", queues: Sequence[QueueFacts]) -> "Sequence[JobView]":
    """The dead letters of the last minutes, newest first."""
    found: list[JobView] = []
    for queue in queues:
        if queue.stats.counts.failed:
            found += latest_dead(client, queue.name)
    return sorted(found, key=lambda job: (job.finished_at, job.id), reverse=True)[:FAILURES_MAX]


def latest_dead(client: "Client", name: str) -> "list[JobView]":
    now = now_ms()
    found: list[JobView] = []
    for window in WINDOWS_MS:
        found = dead_since(client, name, now - window)
        if len(found) == FAILURES_MAX:
            break
    return found


def dead_since(client: "Client", name: str, since: int) -> "list[JobView]":
    found: list[JobView] = []
    after: int | None = None
    for _ in range(PAGES_MAX):
        page = client.list_dead(name, entered_from=since, after=after, limit=PAGE_JOBS)
        found = [*found, *page.jobs][-FAILURES_MAX:]
        after = page.next_after
        if after is None:
            break
    return found


def oldest_waiting(client: "Client", name: str) -> "JobView | None":
    """The oldest waiting job of a queue. A page may be empty although more follow."""
    from stoker.model.states import State

    after: int | None = None
    for _ in range(OLDEST_PAGES_MAX):
        page = client.browse(name, State.WAITING, after=after, limit=1, ascending=True)
        after = page.next_after
        if page.jobs or after is None:
            return next(iter(page.jobs), None)
    return None


def rates_between(before: QueueSnapshot | None, after: QueueSnapshot) -> Rates:
    if before is None or after.at <= before.at:
        return Rates()
    seconds = (after.at - before.at) / 1_000
    old, new = before.stats.totals, after.stats.totals
    known = {queue.name: queue.stats.totals for queue in before.queues}
    queues = {}
    for queue in after.queues:
        was = known.get(queue.name)
        if was is not None:
            totals = queue.stats.totals
            queues[queue.name] = (
                (totals.pushed - was.pushed) / seconds,
                (totals.completed - was.completed) / seconds,
            )
    return Rates(
        (new.pushed - old.pushed) / seconds,
        (new.completed - old.completed) / seconds,
        (new.failed - old.failed) / seconds,
        (new.retried - old.retried) / seconds,
        queues,
    )


def hold_of(queue: QueueFacts) -> str:
    """What holds a queue back: `paused`, `at most 4`, `100/s`."""
    policy = queue.policy
    if policy is None:
        return ""
    words = ["paused"] if policy.paused else []
    if policy.concurrency:
        words.append(f"at most {policy.concurrency:,}")
    if policy.rate_limit is not None:
        words.append(limit_text(policy.rate_limit.count, policy.rate_limit.per_ms))
    return ", ".join(words)
