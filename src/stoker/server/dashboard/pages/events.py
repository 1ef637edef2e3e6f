"""The latest events, with filters: a page of the log's end, that looks again while it is open."""

import asyncio

from stoker.brokers.contract import End
from stoker.model import commands as c
from stoker.server.dashboard.page import Answer, DashboardPage
from stoker.server.http.feed import KINDS, filter_of

PAGE_EVENTS = 100
BACK_RECORDS = 400
"""How far back each shard is read, in records of its log."""
SHARD_EVENTS_MAX = 1_000


async def events(page: DashboardPage) -> Answer:
    queue, kind, job = page.query.get("queue") or None, page.query.get("kind") or None, page.integer("job")
    wanted = filter_of(queue, kind, job)
    dispatcher = page.request.service.dispatcher
    ends = await dispatcher.ends(page.tenant)
    reads = [
        page.ask(c.ReadEvents(shard, latest(ends[shard]), SHARD_EVENTS_MAX, queue, [kind] if kind else None))
        for shard in wanted.shards(page.tenant, dispatcher.shards)
    ]
    replies = await asyncio.gather(*reads)
    found = [event for reply in replies for event in reply.events if wanted.wants(event)]
    found.sort(key=lambda event: (event.at, event.sequence), reverse=True)
    return page.html(
        "events.html", events=found[:PAGE_EVENTS], kinds=sorted(KINDS), queue=queue or "", kind=kind or "", job=job
    )


def latest(end: End) -> int:
    """The position from which the latest events of a log are read."""
    return max(end.lowest - 1, end.last - BACK_RECORDS)
