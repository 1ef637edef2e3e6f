"""What several pages show about queues: their numbers, what holds them back, and what needs attention first."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from stoker.model import commands as c
from stoker.model.history import Timings
from stoker.model.options import RateLimit
from stoker.model.replies import QueueSummary, Stats
from stoker.model.schedules import ScheduleView
from stoker.model.wording import lasting, limit_text, many
from stoker.model.workers import WorkerView
from stoker.server.dashboard.charts import trends_of
from stoker.server.dashboard.page import DashboardPage
from stoker.server.report import registered_workers

QUEUES_MAX = 1_000
"""Queues that the overview looks at."""
QUEUES_ASKED = 200
"""Queues of one command, which takes 2 ms."""
SCHEDULES_MAX = 200
BUSIEST = 10
GROWING_MAX = 100
"""Queues with dead letters whose growth is looked at."""
GROWING_MS = 3_600_000
LATE_MS = 60_000
"""A schedule whose next slot has passed for this long is late."""
LOST_MS = 30_000
"""A worker that has not reported for this long may be lost."""


def rate_text(limit: RateLimit | None) -> str:
    return "" if limit is None else limit_text(limit.count, limit.per_ms)


def link_to(path: str, **query: str | int) -> str:
    """A link to a page, with what it is about."""
    return f"{path}?{urlencode(query)}"


class TenantFacts(NamedTuple):
    """What the overview shows about a tenant."""

    stats: Stats
    timings: Timings | None
    names: list[str]
    """The first queues by name."""
    queues_total: int
    busiest: list[QueueSummary]
    workers: list[WorkerView]
    attention: "list[Attention]"


async def tenant_facts(page: DashboardPage) -> TenantFacts:
    queues, queues_total = await queues_of(page)
    stats, timings = await page.ask(c.GetStats()), await page.ask_if_there(c.GetTimings())
    workers = await workers_of(page)
    schedules = await page.ask_if_there(c.ListSchedules(limit=SCHEDULES_MAX))
    urgent = attention(
        queues, workers, schedules.schedules if schedules is not None else (), page.now, await died(page, queues)
    )
    urgent[:0] = await about_disk(page)
    busiest = sorted(queues, key=lambda queue: -queue.stats.counts.waiting)[:BUSIEST]
    return TenantFacts(stats, timings, [queue.name for queue in queues], queues_total, busiest, workers, urgent)


async def queues_of(page: DashboardPage) -> tuple[list[QueueSummary], int]:
    """The first queues by name, and how many there are."""
    found: list[QueueSummary] = []
    after = None
    while True:
        some = await page.ask(c.GetQueues(None, after, QUEUES_ASKED))
        found += some.queues
        after = some.next_after
        if after is None or len(found) >= QUEUES_MAX:
            return found, some.total


async def died(page: DashboardPage, queues: Sequence[QueueSummary]) -> dict[str, int]:
    """How many jobs of each queue became dead letters in the last hour, for queues that have some."""
    names = [queue.name for queue in queues if queue.stats.counts.failed][:GROWING_MAX]
    trends = await trends_of(page, names, GROWING_MS, GROWING_MS // 12) if names else {}
    return {name: sum(point.dead for point in points) for name, points in trends.items()}


async def about_disk(page: DashboardPage) -> "list[Attention]":
    """Whether the server is about to refuse jobs."""
    service = page.request.service
    counters, data = service.dispatcher.broker.counters, service.config.data
    if counters is not None and counters.is_full:
        return [Attention("problem", "The disk is full: the server takes no new jobs.", "/ui/server")]
    if data is None:
        return []
    from stoker.journal import doctor  # only a server with a data directory needs it

    try:
        space = await asyncio.to_thread(doctor.space, Path(data))
    except OSError as error:
        return [Attention("problem", f"The disk cannot be looked at: {error.strerror}.", "/ui/server")]
    if space.status == "ok":
        return []
    return [Attention(space.status, f"The disk is nearly full, {space.found}: {space.advice}.", "/ui/server")]


async def workers_of(page: DashboardPage) -> list[WorkerView]:
    """The workers that report themselves."""
    return await registered_workers(page.request.service, page.tenant)


# --- attention ---------------------------------------------------------------------------------------


class Attention(NamedTuple):
    """Something that a person should look at: a sentence, and the page to look at."""

    level: Literal["problem", "warning"]
    text: str
    link: str


def attention(
    queues: Sequence[QueueSummary],
    workers: Sequence[WorkerView],
    schedules: Sequence[ScheduleView],
    now: int,
    died: Mapping[str, int],
) -> list[Attention]:
    """What needs attention, problems first. `died` has the new dead letters of the last hour by queue."""
    found = [
        *(one for queue in queues for one in _about_queue(queue, workers)),
        *(one for queue in queues for one in _about_dead_letters(queue, died.get(queue.name, 0))),
        *_about_workers(workers, now),
        *_about_schedules(schedules, now),
    ]
    return sorted(found, key=lambda one: one.level)


def _about_queue(queue: QueueSummary, workers: Sequence[WorkerView]) -> Iterator[Attention]:
    counts, policy, link = queue.stats.counts, queue.policy, link_to("/ui/queue", name=queue.name)
    waits = f"{many(counts.waiting, 'job')} {'waits' if counts.waiting == 1 else 'wait'}"
    if policy.paused and counts.waiting:
        yield Attention("warning", f"{queue.name} is paused, and {waits}.", link)
    elif counts.waiting and not counts.active and not queue.stats.completed_last_minute:
        is_pulled = any(queue.name in worker.queues for worker in workers)
        if policy.rate_limit is not None and is_pulled:
            limit = rate_text(policy.rate_limit)
            yield Attention("warning", f"The rate limit of {queue.name} ({limit}) holds {waits} back.", link)
        elif is_pulled:
            yield Attention("warning", f"The workers of {queue.name} take nothing, and {waits}.", link)
        else:
            yield Attention("problem", f"No worker pulls from {queue.name}, and {waits}.", link)


def _about_dead_letters(queue: QueueSummary, new: int) -> Iterator[Attention]:
    count, most = queue.stats.counts.failed, queue.policy.dead_letters.entries_max
    if not count:
        return
    grows = f", {new:,} of them new in the last hour" if new else ""
    full = f", near the limit of {most:,}" if count > 0.9 * most else ""
    text = f"{queue.name} has {many(count, 'dead letter')}{grows}{full}."
    yield Attention("problem" if grows or full else "warning", text, link_to("/ui/dead", queue=queue.name))


def _about_workers(workers: Sequence[WorkerView], now: int) -> Iterator[Attention]:
    for worker in workers:
        quiet = now - worker.seen_at
        if quiet > LOST_MS and not worker.stopping:
            yield Attention("warning", f"Worker {worker.id} has not reported for {lasting(quiet)}.", "/ui/workers")


def _about_schedules(schedules: Sequence[ScheduleView], now: int) -> Iterator[Attention]:
    for one in schedules:
        due = one.next_runs[0] if one.next_runs else 0
        if one.state == "active" and due and now - due > LATE_MS:
            link = link_to("/ui/schedule", queue=one.queue, name=one.name)
            yield Attention("warning", f"Schedule {one.name} is late by {lasting(now - due)}.", link)
