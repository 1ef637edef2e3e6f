"""One job: its state and why, its life drawn to scale, what it was given and what it gave."""

from typing import NamedTuple

from markupsafe import Markup

from stoker.model import commands as c
from stoker.model import traces
from stoker.model.errors import InvalidRequest
from stoker.model.replies import JobView, Waiting
from stoker.model.states import PENDING
from stoker.model.wording import away, lasting, many
from stoker.server.dashboard.drawing import spans_of, timeline
from stoker.server.dashboard.facts import link_to, workers_of
from stoker.server.dashboard.job_data import shown
from stoker.server.dashboard.page import Answer, DashboardPage

PARTIALS_SHOWN = 50
CHILDREN_SHOWN = 20


class WaitReason(NamedTuple):
    """Why a job is where it is, and the page that helps."""

    text: str
    link: str = ""


async def job(page: DashboardPage) -> Answer:
    number = page.job_id()
    found = await page.ask(c.GetJob(number))
    story = await page.ask_if_there(c.GetStory(number))
    logs = await page.ask_if_there(c.GetLogs(number))
    partials = await page.ask_if_there(c.GetPartials(number))
    spans = spans_of(found, story.events if story is not None else (), page.now)
    return page.html(
        "job.html",
        job=found,
        reasons=await reasons(page, found),
        spans=spans,
        timeline=Markup(timeline(spans)),
        payload=shown(page, found.payload, found.options.codec),
        result=None if found.result is None else shown(page, found.result, found.result_codec),
        logs=logs.lines if logs is not None else (),
        partials=[
            (chunk.index, shown(page, chunk.data, chunk.codec))
            for chunk in (partials.chunks if partials is not None else ())[-PARTIALS_SHOWN:]
        ],
        story=story,
        children=await page.ask_if_there(c.Browse(parent_id=number, limit=CHILDREN_SHOWN)),
        trace=trace_link(page, found),
    )


async def edit(page: DashboardPage) -> Answer:
    """A form with the payload, where it can come back byte for byte."""
    found = await page.ask(c.GetJob(page.job_id()))
    payload = shown(page, found.payload, found.options.codec)
    if payload.edited is None:
        raise InvalidRequest(
            "this payload cannot be edited here: it is too long, hidden, redacted, or would not come back byte for byte"
        )
    return page.html("edit.html", job=found, text=payload.edited)


def trace_link(page: DashboardPage, found: JobView) -> str:
    """Where the trace of a job is shown, if the settings say so."""
    trace = traces.read(found.options.trace)
    return page.settings.trace_url.replace("{trace_id}", f"{trace.trace_id:032x}") if trace is not None else ""


# --- why ---------------------------------------------------------------------------------------------


async def reasons(page: DashboardPage, found: JobView) -> list[WaitReason]:
    """Why the job is not running, or how it ended."""
    if found.state not in PENDING:
        return [_now_or_ended(found, page.now)]
    waiting = await page.ask_if_there(c.Why(found.id))
    if waiting is None:
        return []
    held = _held_back(found, waiting, page.now)
    if waiting.state == "waiting" and waiting.jobs_ahead:
        held.append(WaitReason(f"{many(waiting.jobs_ahead, 'job')} of the queue come first."))
    elif not held:
        held.append(await _worker_for(page, found))
    return held


def _held_back(found: JobView, waiting: Waiting, now: int) -> list[WaitReason]:
    queue, held = link_to("/ui/queue", name=found.queue), list[WaitReason]()
    if waiting.paused:
        held.append(WaitReason(f"The queue {found.queue} is paused.", queue))
    if waiting.blocked_by:
        held += [
            WaitReason(f"It waits for job {other} to end.", f"/ui/jobs/{other}") for other in waiting.blocked_by[:10]
        ]
    elif waiting.state == "blocked":
        workflow = found.options.workflow
        held.append(WaitReason(f"It waits for earlier steps of workflow {workflow}.", f"/ui/workflows/{workflow}"))
    if waiting.delayed_until:
        after = f" after attempt {found.attempts} failed" if found.attempts else ""
        held.append(WaitReason(f"It is delayed{after} and becomes ready {away(waiting.delayed_until, now)}."))
    if waiting.group_busy_with is not None:
        other = waiting.group_busy_with
        held.append(WaitReason(f"Job {other} of its group {found.options.group_id} comes first.", f"/ui/jobs/{other}"))
    if waiting.no_free_slot:
        held.append(WaitReason(f"{found.queue} has as many active jobs as its limit allows.", queue))
    if waiting.rate_limited_until:
        next_at = away(waiting.rate_limited_until, now)
        held.append(WaitReason(f"The rate limit of {found.queue} lets the next job through {next_at}.", queue))
    return held


async def _worker_for(page: DashboardPage, found: JobView) -> WaitReason:
    mine = [worker for worker in await workers_of(page) if found.queue in worker.queues]
    name = found.options.name
    if mine and name and all(worker.names and name not in worker.names for worker in mine):
        return WaitReason(f"No worker of {found.queue} knows the job name {name}.", "/ui/workers")
    if mine:
        return WaitReason(f"Nothing holds it back: {many(len(mine), 'worker')} of {found.queue} should take it next.")
    return WaitReason(f"Nothing holds it back, but no worker seems to pull from {found.queue}.", "/ui/workers")


def _now_or_ended(found: JobView, now: int) -> WaitReason:
    if found.state == "active":
        who = found.worker or "A worker"
        return WaitReason(f"{who} runs it, for {lasting(now - found.started_at)}.", "/ui/workers")
    why = f": {found.cause or found.reason}" if found.cause or found.reason else "."
    return WaitReason(f"It ended {away(found.finished_at, now)}{why}")
