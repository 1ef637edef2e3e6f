"""A list of jobs: the filter stands in the URL, and pages go on after an id."""

import time

from stoker.model import commands as c
from stoker.model.bulk import MAY_BE
from stoker.model.filters import COUNTED, JobFilter, fields_of, narrows_by
from stoker.model.replies import Counted
from stoker.server.dashboard.filtering import filter_of, query_of, words_of
from stoker.server.dashboard.page import Answer, DashboardPage

PAGE_JOBS = 50
COUNT_S = 0.01
"""Counting goes on in bounded steps for this long: a small queue is counted to its end, a large one is not."""


async def jobs(page: DashboardPage) -> Answer:
    wanted = filter_of(page, page.query)
    fields = fields_of(wanted)
    found = await page.ask(c.Browse(**fields, after=page.integer("after"), limit=PAGE_JOBS))
    by = narrows_by(wanted)
    return page.html(
        "jobs.html",
        jobs=found.jobs,
        found=found,
        wanted=wanted,
        words=words_of(wanted),
        filter_query=query_of(wanted),
        bulk_actions=[name for name, states in MAY_BE.items() if wanted.state is None or wanted.state in states],
        is_narrow=not by <= COUNTED,
        counted=await counted(page, wanted, COUNT_S),
        counts=(await page.ask(c.GetStats(wanted.queue))).counts,
    )


async def counted(page: DashboardPage, wanted: JobFilter, seconds: float) -> Counted | None:
    """How many jobs match, as far as can be told in a moment. None where the broker does not count."""
    until, fields = time.monotonic() + seconds, fields_of(wanted)
    count, looked, after = 0, 0, None
    while True:
        step = await page.ask_if_there(c.CountJobs(**fields, after=after))
        if step is None:
            return None
        count, looked, after = count + step.count, looked + step.looked, step.next_after
        if after is None or time.monotonic() > until:
            return Counted(count, looked, after)
