"""The first page: counts, what needs attention, and how things went."""

import asyncio

from stoker.server.dashboard.charts import charts_of
from stoker.server.dashboard.facts import tenant_facts
from stoker.server.dashboard.lake import look_at_lake
from stoker.server.dashboard.live import SHARED_S
from stoker.server.dashboard.page import Answer, DashboardPage

NAMES_MAX = 200
"""Queues to choose from. A page of any other queue has its charts."""


async def overview(page: DashboardPage) -> Answer:
    facts = await page.shared("facts", lambda: tenant_facts(page), seconds=SHARED_S)
    chosen = page.query.get("queue") or None
    lake = await asyncio.to_thread(look_at_lake, page.settings.lake) if page.has_lake else None
    return page.html(
        "overview.html",
        stats=facts.stats,
        queues=facts.busiest,
        queues_total=facts.queues_total,
        queue_names=facts.names[:NAMES_MAX],
        workers=facts.workers,
        attention=[*facts.attention, *(lake.attention(page.now) if lake is not None else ())],
        lake=lake,
        chosen=chosen,
        charts=await charts_of(page, chosen),
        timings=facts.timings,
        sparks={},
    )
