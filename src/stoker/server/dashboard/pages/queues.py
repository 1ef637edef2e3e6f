"""All queues, and one queue."""

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest
from stoker.model.replies import QueueSummary
from stoker.model.states import State
from stoker.server.dashboard.charts import charts_of, sparks_of
from stoker.server.dashboard.facts import workers_of
from stoker.server.dashboard.page import Answer, DashboardPage

ACTIVE_SHOWN = 20
PAGE_QUEUES = 100


async def queues(page: DashboardPage) -> Answer:
    wanted = page.query.get("text", "")
    found = await page.ask(c.GetQueues(wanted or None, page.query.get("after") or None, PAGE_QUEUES))
    return page.html(
        "queues.html",
        queues=found.queues,
        sparks=await sparks_of(page, [queue.name for queue in found.queues]),
        total=found.total,
        text=wanted,
        next_after=found.next_after,
    )


async def queue(page: DashboardPage) -> Answer:
    name = page.query.get("name", "")
    if not name:
        raise InvalidRequest("invalid address: it does not name a queue")
    facts = QueueSummary(await page.ask(c.GetQueue(name)), await page.ask(c.GetStats(name)))
    active = await page.ask(c.Browse(name, State.ACTIVE, limit=ACTIVE_SHOWN))
    newest = await page.ask(c.Browse(name, limit=ACTIVE_SHOWN))
    return page.html(
        "queue.html",
        queue=facts,
        policy=facts.policy,
        charts=await charts_of(page, name),
        timings=await page.ask_if_there(c.GetTimings(name)),
        active=active.jobs,
        newest=newest.jobs,
        workers=[worker for worker in await workers_of(page) if name in worker.queues],
    )
