"""The search box: an id, a custom id, a name of jobs, a queue, a workflow."""

from stoker.model import commands as c
from stoker.server.dashboard.facts import link_to
from stoker.server.dashboard.page import Answer, DashboardPage

SHOWN = 20


async def search(page: DashboardPage) -> Answer:
    """What a text may mean. A single certain hit is opened at once."""
    text = page.query.get("q", "").strip()[:1_000]
    if not text:
        return page.html("search.html", text="", job=None, custom=None, queues=[], named=[])
    job = None
    if text.isascii() and text.isdigit() and 0 < int(text) < 2**63:
        job = await page.ask_if_there(c.GetJob(int(text)))
        if job is not None:
            return await page.redirect(f"/ui/jobs/{job.id}")
        if await page.ask_if_there(c.GetWorkflow(int(text))) is not None:
            return await page.redirect(f"/ui/workflows/{text}")
    custom = await page.ask_if_there(c.FindJob(text))
    queues = [name for name in (await page.ask(c.ListQueues())).names if text.lower() in name.lower()]
    if text in queues and custom is None:
        return await page.redirect(link_to("/ui/queue", name=text))
    named = (await page.ask(c.Browse(name=text, limit=SHOWN))).jobs
    return page.html("search.html", text=text, job=job, custom=custom, queues=sorted(queues)[:SHOWN], named=named)
