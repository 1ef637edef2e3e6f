"""The table of changes that pages offer: the fields of each, the question before it, and the command.

Every change goes the same way: `GET /ui/act/NAME` says what will be hit and asks, `POST` does it. Buttons whose effect
is small and can be taken back send the form at once.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from stoker.model import commands as c
from stoker.model.command_table import TABLE, Permission
from stoker.model.errors import Forbidden, InvalidRequest, StokerError
from stoker.server.dashboard import changes
from stoker.server.dashboard.changes import ChangeDone, ChangeTarget
from stoker.server.dashboard.page import Answer, DashboardPage, problem_text
from stoker.server.http.responses import NotHere

ChangeField = changes.ChangeField


class Action(NamedTuple):
    """A change: `hits` says in a sentence what it will do, `do` does it."""

    label: str
    permission: Permission
    hits: Callable[[DashboardPage, ChangeTarget], Awaitable[str]]
    do: Callable[[DashboardPage, ChangeTarget], Awaitable[ChangeDone]]
    fields: tuple[ChangeField, ...] = ()
    is_grave: bool = False
    """Whether it cannot be taken back."""


def _row(
    label: str,
    command: type[c.Command[Any]],
    hits: Callable[[DashboardPage, ChangeTarget], Awaitable[str]],
    do: Callable[[DashboardPage, ChangeTarget], Awaitable[ChangeDone]],
    *fields: ChangeField,
    is_grave: bool = False,
) -> Action:
    """An action with the permission of its command."""
    return Action(label, TABLE[command].permission, hits, do, fields, is_grave)


ACTIONS: dict[str, Action] = {
    "pause": _row("Pause", c.Pause, changes.hits_queue, changes.pause),
    "resume": _row("Resume", c.Resume, changes.hits_queue, changes.resume),
    "rate": _row("Set the rate limit", c.SetRateLimit, changes.hits_queue, changes.set_rate, *changes.RATE),
    "concurrency": _row(
        "Set the limit of active jobs",
        c.SetConcurrency,
        changes.hits_queue,
        changes.set_concurrency,
        *changes.CONCURRENCY,
    ),
    "drain": _row("Drain", c.Drain, changes.hits_drained, changes.drain, *changes.DRAIN, is_grave=True),
    "clean": _row("Clean", c.Clean, changes.hits_cleaned, changes.clean, *changes.CLEAN, is_grave=True),
    "retry": _row("Retry", c.RetryDead, changes.hits_job, changes.retry),
    "cancel": _row("Cancel", c.Cancel, changes.hits_job, changes.cancel, is_grave=True),
    "promote": _row("Run now", c.Promote, changes.hits_job, changes.promote),
    "priority": _row(
        "Change the priority", c.ChangePriority, changes.hits_job, changes.set_priority, *changes.PRIORITY
    ),
    "payload": _row("Save the payload", c.UpdatePayload, changes.hits_job, changes.set_payload),
    "delete": _row("Delete", c.PurgeDead, changes.hits_job, changes.delete, is_grave=True),
    "discard": _row("Make it a dead letter", c.Discard, changes.hits_job, changes.discard, is_grave=True),
    "copy": _row("Push a copy", c.PushBatch, changes.hits_job, changes.push_copy),
    "selected": _row("Do it", c.Cancel, changes.hits_selected, changes.change_selected, is_grave=True),
    "retry-dead": _row("Retry all", c.RetryDead, changes.hits_dead, changes.retry_dead),
    "purge-dead": _row("Forget all", c.PurgeDead, changes.hits_dead, changes.purge_dead, is_grave=True),
    "workflow-cancel": _row(
        "Cancel the workflow", c.CancelWorkflow, changes.hits_workflow, changes.cancel_workflow, is_grave=True
    ),
    "workflow-retry": _row("Retry what failed", c.RetryWorkflow, changes.hits_workflow, changes.retry_workflow),
    "schedule-pause": _row("Pause", c.PauseSchedule, changes.hits_schedule, changes.pause_schedule),
    "schedule-resume": _row("Resume", c.ResumeSchedule, changes.hits_schedule, changes.resume_schedule),
    "schedule-run": _row("Run now", c.RunSchedule, changes.hits_schedule, changes.run_schedule),
    "schedule-delete": _row("Delete", c.DeleteSchedule, changes.hits_schedule, changes.delete_schedule, is_grave=True),
    "bulk-stop": _row("Stop", c.StopBulk, changes.hits_bulk, changes.stop_bulk),
    "webhook-test": Action("Send a test event", "admin", changes.hits_webhook, changes.test_webhook),
    "webhook-delete": Action("Delete", "admin", changes.hits_webhook, changes.delete_webhook, is_grave=True),
}


def _found(page: DashboardPage) -> tuple[str, Action]:
    name = page.request.parameters["action"]
    action = ACTIONS.get(name)
    if action is None:
        raise NotHere(f"there is no action {name[:40]!r}")
    page.check_writable()
    if not page.can(action.permission):
        raise Forbidden(f"this token may not {action.permission}: `{action.label}` needs that permission")
    return name, action


async def ask_first(page: DashboardPage) -> Answer:
    """What will be hit, and the question."""
    name, action = _found(page)
    return await _question(page, name, action, ChangeTarget(page.query))


async def ask_about_selected(page: DashboardPage) -> Answer:
    """The question about the jobs that were selected in a list."""
    target = ChangeTarget({"ids": ",".join(page.form_list("ids")), "what": page.form("what")})
    return await _question(page, "selected", ACTIONS["selected"], target)


async def _question(page: DashboardPage, name: str, action: Action, target: ChangeTarget, problem: str = "") -> Answer:
    values = {"name": name, "action": action, "target": target, "problem": problem, "key": secrets.token_hex(8)}
    back = target.page_of(name)
    return page.html("confirm.html", 400 if problem else 200, hits=await action.hits(page, target), back=back, **values)


async def act(page: DashboardPage) -> Answer:
    """Do it, note it in the audit log, and go back to what it was about."""
    name, action = _found(page)
    target = ChangeTarget({field: page.form(field) for field in page.form_names})
    try:
        done = await action.do(page, target)
    except InvalidRequest as error:
        return await _question(page, name, action, target, problem_text(error))
    except StokerError as error:
        page.note(f"{name} refused ({error.code})", target.name, 0)
        raise
    page.note(name, target.name, done.jobs)
    return await page.redirect(done.back, done.said)
