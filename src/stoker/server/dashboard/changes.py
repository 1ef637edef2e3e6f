"""The changes of the table in `actions`: for each, what it will hit, and the command that does it."""

import secrets
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, NotFound, Refused, WrongState
from stoker.model.options import RateLimit
from stoker.model.states import State
from stoker.model.units import DURATIONS_MS, parse_duration_ms
from stoker.model.wording import lasting, many
from stoker.server.dashboard import payloads
from stoker.server.dashboard.facts import link_to, rate_text
from stoker.server.dashboard.job_data import shown
from stoker.server.dashboard.page import DashboardPage
from stoker.server.http.request import convert
from stoker.server.webhooks import commands as hooks
from stoker.server.webhooks.posting import PostOutcome

CLEAN_MAX = 1_000
"""Jobs that one command removes."""


class ChangeField(NamedTuple):
    """An input of the question."""

    name: str
    label: str
    kind: str = "number"
    default: str = ""
    choices: tuple[str, ...] = ()


class ChangeDone(NamedTuple):
    """What was done, how many jobs it changed, and the page to go back to."""

    said: str
    back: str
    jobs: int = 1


class ChangeTarget:
    """What a change is about, as its address or its form names it."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = {name: text for name, text in fields.items() if name != "csrf"}

    def get(self, name: str, default: str = "") -> str:
        return self.fields.get(name, default)

    def need(self, name: str) -> str:
        found = self.fields.get(name, "")
        if not found:
            raise InvalidRequest(f"invalid request: {name} is missing")
        return found

    def number(self, name: str) -> int:
        found: int = convert(self.need(name), int, name)
        return found

    @property
    def name(self) -> str:
        """For the audit log."""
        shown = ("queue", "id", "ids", "what", "name", "reason", "key")
        return " ".join(f"{name}={self.fields[name]}" for name in shown if self.fields.get(name))

    def page_of(self, action: str) -> str:
        """The page that an action is about."""
        if action.startswith("webhook-"):
            return "/ui/webhooks"
        if action.startswith("bulk-"):
            return link_to("/ui/bulk/one", key=self.get("key"))
        if action.startswith("schedule-"):
            return link_to("/ui/schedule", queue=self.get("queue"), name=self.get("name"))
        if action.startswith("workflow-"):
            return f"/ui/workflows/{self.number('id')}"
        if action == "selected":
            return "/ui/jobs"
        if action.endswith("-dead"):
            return link_to("/ui/dead", queue=self.get("queue"))
        return f"/ui/jobs/{self.number('id')}" if self.get("id") else link_to("/ui/queue", name=self.get("queue"))


# --- queues ------------------------------------------------------------------------------------------

RATE = (
    ChangeField("count", "Jobs (0 lifts the limit)", default="100"),
    ChangeField("per", "in each", "select", "s", ("s", "m", "h")),
)
CONCURRENCY = (ChangeField("limit", "Active jobs at most (0 lifts the limit)", default="10"),)
DRAIN = (ChangeField("delayed", "Also cancel delayed jobs", "checkbox"),)
CLEAN = (
    ChangeField("state", "State", "select", "completed", tuple(str(state) for state in State if state != "active")),
    ChangeField("age", "At least this old", "text", "1h"),
)


def _queue_page(queue: str) -> str:
    return link_to("/ui/queue", name=queue)


async def hits_queue(page: DashboardPage, target: ChangeTarget) -> str:
    queue = target.need("queue")
    policy, stats = await page.ask(c.GetQueue(queue)), await page.ask(c.GetStats(queue))
    held = [
        "paused" if policy.paused else "",
        f"at most {policy.concurrency:,} active jobs" if policy.concurrency else "",
        rate_text(policy.rate_limit),
    ]
    now = ", ".join(word for word in held if word) or "no limits"
    return (
        f"The queue {queue} ({now}): {stats.counts.waiting:,} waiting, {stats.counts.active:,} active,"
        f" {stats.counts.delayed:,} delayed."
    )


async def pause(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue = target.need("queue")
    await page.ask(c.Pause(queue))
    return ChangeDone(f"{queue} is paused: it gives out no more jobs.", _queue_page(queue))


async def resume(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue = target.need("queue")
    await page.ask(c.Resume(queue))
    return ChangeDone(f"{queue} gives out jobs again.", _queue_page(queue))


async def set_rate(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue, count = target.need("queue"), target.number("count")
    per = target.get("per", "s")
    if per not in DURATIONS_MS:
        raise InvalidRequest(f"invalid unit {per[:20]!r}: expected one of s, m, h")
    limit = RateLimit(count, DURATIONS_MS[per]) if count else None
    await page.ask(c.SetRateLimit(queue, limit))
    said = f"The rate limit of {queue} is {rate_text(limit)}." if limit else f"{queue} has no rate limit."
    return ChangeDone(said, _queue_page(queue))


async def set_concurrency(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue, limit = target.need("queue"), target.number("limit")
    await page.ask(c.SetConcurrency(queue, limit))
    said = f"{queue} runs at most {many(limit, 'job')} at once." if limit else f"{queue} runs as many jobs as it can."
    return ChangeDone(said, _queue_page(queue))


async def hits_drained(page: DashboardPage, target: ChangeTarget) -> str:
    queue = target.need("queue")
    counts = (await page.ask(c.GetStats(queue))).counts
    return (
        f"This cancels all {many(counts.waiting, 'waiting job')} of {queue}, and its"
        f" {many(counts.delayed, 'delayed job')} if you say so. Running jobs go on."
    )


async def drain(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue = target.need("queue")
    done = await page.ask(c.Drain(queue, bool(target.get("delayed"))))
    return ChangeDone(f"{many(done.count, 'job')} of {queue} cancelled.", _queue_page(queue), done.count)


async def hits_cleaned(page: DashboardPage, target: ChangeTarget) -> str:
    queue = target.need("queue")
    counts = (await page.ask(c.GetStats(queue))).counts
    return (
        f"This removes up to {CLEAN_MAX:,} jobs of {queue} in one state, the oldest first. There are"
        f" {counts.completed:,} completed, {counts.failed:,} failed, {counts.cancelled:,} cancelled and"
        f" {counts.expired:,} expired jobs."
    )


async def clean(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue, state = target.need("queue"), target.get("state", "completed")
    if state not in tuple(State):
        raise InvalidRequest(f"invalid state {state[:40]!r}")
    try:
        age_ms = round(parse_duration_ms(target.get("age", "0") or "0"))
    except ValueError as error:
        raise InvalidRequest(f"invalid age: {error}") from None
    gone = await page.ask(c.Clean(queue, State(state), age_ms, CLEAN_MAX))
    return ChangeDone(f"{many(len(gone.ids), 'job')} of {queue} removed.", _queue_page(queue), len(gone.ids))


# --- jobs --------------------------------------------------------------------------------------------

PRIORITY = (ChangeField("priority", "Priority (higher runs first)", default="0"),)


def _job_page(number: int) -> str:
    return f"/ui/jobs/{number}"


async def hits_job(page: DashboardPage, target: ChangeTarget) -> str:
    job = await page.ask(c.GetJob(target.number("id")))
    name = f" ({job.options.name})" if job.options.name else ""
    return f"Job {job.id}{name} in {job.queue}: {job.state}, {many(job.attempts, 'attempt')} so far."


async def retry(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    number = target.number("id")
    job = await page.ask(c.GetJob(number))
    retried = await page.ask(c.RetryDead(job.queue, [number]))
    if number in retried.refused:
        raise WrongState(f"job {number} was not retried: another job has its unique key ({retried.refused[number]})")
    if number not in retried.ids:
        raise WrongState(f"job {number} is not a dead letter any more: it is {job.state}")
    return ChangeDone(f"Job {number} is back in {job.queue}.", _job_page(number))


async def cancel(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    view = await page.ask(c.Cancel(target.number("id")))
    is_running = view.state == "active"
    said = f"Job {view.id} is asked to stop." if is_running else f"Job {view.id} is cancelled."
    return ChangeDone(said, _job_page(view.id))


async def promote(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    number = target.number("id")
    await page.ask(c.Promote(number))
    return ChangeDone(f"Job {number} is ready now.", _job_page(number))


async def set_priority(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    number, priority = target.number("id"), target.number("priority")
    await page.ask(c.ChangePriority(number, priority))
    return ChangeDone(f"Job {number} has priority {priority}.", _job_page(number))


async def set_payload(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    number = target.number("id")
    job = await page.ask(c.GetJob(number))
    if shown(page, job.payload, job.options.codec).edited is None:
        raise WrongState("this payload cannot be edited here: it is hidden, redacted or of another form")
    await page.ask(c.UpdatePayload(number, payloads.encoded(target.get("payload"), job.options.codec)))
    return ChangeDone(f"The payload of job {number} is changed.", _job_page(number))


async def delete(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    number = target.number("id")
    job = await page.ask(c.GetJob(number))
    if job.state != "failed":
        await page.ask(c.DeleteJob(number))
        return ChangeDone(f"Job {number} is forgotten.", link_to("/ui/jobs", queue=job.queue))
    done = await page.ask(c.PurgeDead(job.queue, [number]))
    if not done.count:
        raise WrongState(f"job {number} is not a dead letter any more")
    return ChangeDone(f"Job {number} is forgotten.", link_to("/ui/dead", queue=job.queue))


async def discard(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    number = target.number("id")
    await page.ask(c.Discard(number))
    return ChangeDone(f"Job {number} is a dead letter.", _job_page(number))


async def push_copy(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    """The form has a key, so that sending it twice pushes one job."""
    job = await page.ask(c.GetJob(target.number("id")))
    options = msgspec.structs.replace(
        job.options,
        unique_key=None,
        custom_id=None,
        debounce_id=None,
        depends_on=(),
        delay_ms=0,
        run_at=None,
        workflow=None,
        schedule=None,
        slot=0,
        parent_id=job.id,
    )
    key = target.get("key") or secrets.token_hex(8)
    pushed = await page.ask(c.PushBatch(job.queue, [job.payload], options, atomic=True, request_key=f"ui-{key[:64]}"))
    return ChangeDone(f"Job {pushed.ids[0]} is a copy of job {job.id}.", _job_page(pushed.ids[0]))


# --- selected jobs -----------------------------------------------------------------------------------

SELECTED_MAX = 100
EACH = {"retry": retry, "cancel": cancel, "promote": promote, "delete": delete}
"""What can be done with selected jobs, one by one."""


def _selected(target: ChangeTarget) -> tuple[str, list[int]]:
    what = target.need("what")
    if what not in EACH:
        raise InvalidRequest(f"invalid action {what[:40]!r}: expected one of {', '.join(EACH)}")
    ids: list[int] = convert([text for text in target.get("ids").split(",") if text], list[int], "ids")
    if not 0 < len(ids) <= SELECTED_MAX:
        raise InvalidRequest(f"{len(ids)} jobs are selected: select 1 to {SELECTED_MAX}")
    return what, ids


async def hits_selected(page: DashboardPage, target: ChangeTarget) -> str:
    what, ids = _selected(target)
    shown = ", ".join(map(str, ids[:10])) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
    return f"This will {what} {many(len(ids), 'job')}: {shown}."


async def change_selected(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    """One by one: a job that has changed meanwhile is refused, and the others go on."""
    what, ids = _selected(target)
    refused: list[str] = []
    for job in ids:
        try:
            await EACH[what](page, ChangeTarget({"id": str(job)}))
        except Refused as error:
            refused.append(error.message)
    done = len(ids) - len(refused)
    more = f"; {len(refused):,} refused, the first: {refused[0]}" if refused else ""
    return ChangeDone(f"{what}: {many(done, 'job')} changed{more}.", "/ui/jobs", done)


# --- dead letters ------------------------------------------------------------------------------------


async def hits_dead(page: DashboardPage, target: ChangeTarget) -> str:
    queue, reason = target.need("queue"), target.get("reason")
    stats = await page.ask(c.GetDeadStats(queue))
    count = stats.by_reason.get(reason, 0) if reason else stats.total
    why = f" that ended by {reason}" if reason else ""
    return f"This is about {many(count, 'dead letter')} of {queue}{why}."


async def retry_dead(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue = target.need("queue")
    retried = await page.ask(c.RetryDead(queue, reason=target.get("reason") or None))
    refused = f", {len(retried.refused):,} refused" if retried.refused else ""
    said = f"{many(len(retried.ids), 'dead letter')} of {queue} back at work{refused}."
    return ChangeDone(said, link_to("/ui/dead", queue=queue), len(retried.ids))


async def purge_dead(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue = target.need("queue")
    done = await page.ask(c.PurgeDead(queue, reason=target.get("reason") or None))
    return ChangeDone(
        f"{many(done.count, 'dead letter')} of {queue} forgotten.", link_to("/ui/dead", queue=queue), done.count
    )


# --- workflows ---------------------------------------------------------------------------------------


async def hits_workflow(page: DashboardPage, target: ChangeTarget) -> str:
    view = await page.ask(c.GetWorkflow(target.number("id")))
    return f"Workflow {view.id} {view.name}: {view.remaining:,} of its {view.total:,} jobs have not ended."


async def cancel_workflow(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    view = await page.ask(c.CancelWorkflow(target.number("id")))
    return ChangeDone(f"Workflow {view.id} is cancelled.", f"/ui/workflows/{view.id}")


async def retry_workflow(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    view = await page.ask(c.RetryWorkflow(target.number("id")))
    return ChangeDone(f"Workflow {view.id} goes on.", f"/ui/workflows/{view.id}")


# --- schedules ---------------------------------------------------------------------------------------


def _schedule_page(queue: str, name: str) -> str:
    return link_to("/ui/schedule", queue=queue, name=name)


async def hits_schedule(page: DashboardPage, target: ChangeTarget) -> str:
    view = await page.ask(c.GetSchedule(target.need("queue"), target.need("name")))
    coming = f"; next run in {lasting(max(0, view.next_runs[0] - page.now))}" if view.next_runs else ""
    return f"The schedule {view.name} of {view.queue}: {view.state}{coming}."


async def pause_schedule(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    view = await page.ask(c.PauseSchedule(target.need("queue"), target.need("name")))
    return ChangeDone(f"{view.name} is paused.", _schedule_page(view.queue, view.name))


async def resume_schedule(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    view = await page.ask(c.ResumeSchedule(target.need("queue"), target.need("name")))
    return ChangeDone(f"{view.name} goes on.", _schedule_page(view.queue, view.name))


async def run_schedule(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue, name = target.need("queue"), target.need("name")
    pushed = await page.ask(c.RunSchedule(queue, name))
    return ChangeDone(f"{name} pushed job {pushed.id}.", _schedule_page(queue, name))


async def delete_schedule(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    queue, name = target.need("queue"), target.need("name")
    done = await page.ask(c.DeleteSchedule(queue, name))
    if not done.count:
        raise NotFound(f"there is no schedule {name!r} in {queue}")
    return ChangeDone(f"{name} is deleted; its jobs stay.", "/ui/schedules")


# --- bulk operations ---------------------------------------------------------------------------------


async def hits_bulk(page: DashboardPage, target: ChangeTarget) -> str:
    view = await page.ask(c.GetBulk(target.need("key")))
    return f"The operation {view.key} has changed {many(view.changed, 'job')} so far. What it has done stays."


async def stop_bulk(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    view = await page.ask(c.StopBulk(target.need("key")))
    said = f"The operation is stopped: it has changed {many(view.changed, 'job')}."
    return ChangeDone(said, link_to("/ui/bulk/one", key=view.key), view.changed)


# --- webhooks ----------------------------------------------------------------------------------------


async def hits_webhook(page: DashboardPage, target: ChangeTarget) -> str:
    return f"The webhook {target.need('id')}."


async def test_webhook(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    outcome = await hooks.carry_out(
        page.request.service.webhooks, page.tenant, "test_webhook", hooks.Named(target.need("id"))
    )
    found = msgspec.convert(outcome, PostOutcome, from_attributes=True)  # another process answers with plain values
    said = f"with status {found.status}" if found.ok else f"not as it should: {found.error or f'status {found.status}'}"
    return ChangeDone(f"The webhook answered {said}.", "/ui/webhooks")


async def delete_webhook(page: DashboardPage, target: ChangeTarget) -> ChangeDone:
    await hooks.carry_out(page.request.service.webhooks, page.tenant, "delete_webhook", hooks.Named(target.need("id")))
    return ChangeDone("The webhook is deleted.", "/ui/webhooks")
