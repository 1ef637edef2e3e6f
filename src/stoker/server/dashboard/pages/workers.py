"""Workers: what each of them does now."""

from stoker.model import commands as c
from stoker.model.replies import JobView
from stoker.model.states import State
from stoker.server.dashboard.facts import LOST_MS, workers_of
from stoker.server.dashboard.page import Answer, DashboardPage
from stoker.server.report import all_workers

ACTIVE_MAX = 500
"""Running jobs that are looked at."""


async def workers(page: DashboardPage) -> Answer:
    registered = await workers_of(page)
    active = (await page.ask(c.Browse(state=State.ACTIVE, limit=ACTIVE_MAX))).jobs
    running: dict[str, list[JobView]] = {}
    for job in active:
        running.setdefault(job.worker, []).append(job)
    known = {worker.id for worker in registered}
    others = [one for one in await all_workers(page.request.service, page.tenant) if one.id not in known]
    return page.html(
        "workers.html",
        workers=sorted(registered, key=lambda worker: (page.now - worker.seen_at > LOST_MS, worker.id)),
        others=sorted(others, key=lambda worker: -worker.last_seen),
        running=running,
        lost_ms=LOST_MS,
        is_cut=len(active) >= ACTIVE_MAX,
    )
