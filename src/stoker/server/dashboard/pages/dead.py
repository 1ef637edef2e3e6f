"""Dead letters: jobs that will not be tried again, grouped by reason and by the fingerprint of their errors."""

from stoker.model import commands as c
from stoker.model.replies import DeadGroup, DeadGroups
from stoker.server.dashboard.page import Answer, DashboardPage

PAGE_JOBS = 50
GROUPS_SHOWN = 100
QUEUES_MAX = 200
"""Queues that are asked one by one, where the broker keeps no groups."""


async def dead(page: DashboardPage) -> Answer:
    queue, reason = page.query.get("queue") or None, page.query.get("reason") or None
    groups = await page.ask_if_there(c.GetDeadGroups(queue, GROUPS_SHOWN))
    letters = None
    if queue:
        letters = await page.ask(c.ListDead(queue, reason, after=page.integer("after"), limit=PAGE_JOBS))
    return page.html(
        "dead.html",
        queue=queue,
        reason=reason,
        found=groups if groups is not None else await by_reason(page, queue),
        letters=letters,
    )


async def by_reason(page: DashboardPage, queue: str | None) -> DeadGroups:
    """Groups by reason alone, where the broker keeps no fingerprints."""
    names = [queue] if queue else (await page.ask(c.ListQueues())).names[:QUEUES_MAX]
    stats = await page.ask_all(c.GetDeadStats(name) for name in names)
    return DeadGroups(
        [
            DeadGroup(name, reason, "", count, one.oldest_at or 0, 0)
            for name, one in zip(names, stats, strict=True)
            if one is not None
            for reason, count in one.by_reason.items()
        ]
    )
