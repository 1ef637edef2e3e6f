"""Bulk operations: a preview of what will be hit, the start, and the progress."""

import secrets

import msgspec

from stoker.model import commands as c
from stoker.model.bulk import ACTIONS, MAY_BE, BulkAction
from stoker.model.errors import InvalidRequest
from stoker.model.filters import JobFilter, fields_of
from stoker.model.replies import Counted, JobView
from stoker.server.dashboard.filtering import filter_of, words_of
from stoker.server.dashboard.page import Answer, DashboardPage
from stoker.server.dashboard.pages.jobs import counted
from stoker.server.http.request import convert

EXAMPLES = 5
PREVIEW_S = 2.0
"""A preview counts for longer than a list, step by step: a person decides by it."""


async def bulks(page: DashboardPage) -> Answer:
    return page.html("bulks.html", bulks=(await page.ask(c.ListBulks())).bulks, words=words_of)


async def bulk(page: DashboardPage) -> Answer:
    return page.html("bulk.html", view=await page.ask(c.GetBulk(page.query.get("key", ""))), words=words_of)


async def preview(page: DashboardPage) -> Answer:
    """What an operation will hit: how many jobs, and some of them."""
    action = action_of(page.query.get("action", ""))
    wanted = filter_of(page, page.query)
    count, examples = await hits(page, action, wanted)
    return page.html(
        "bulk_new.html",
        action=action,
        wanted=msgspec.to_builtins(wanted),
        words=words_of(wanted),
        count=count,
        examples=examples,
        key=secrets.token_hex(8),
    )


async def start(page: DashboardPage) -> Answer:
    """Begin an operation. The form has its key, so that sending it twice begins it once."""
    action = action_of(page.form("action"))
    wanted = filter_of(page, {name: page.form(name) for name in page.form_names})
    rate, priority = page.form("rate"), page.form("to_priority")
    view = await page.ask(
        c.StartBulk(
            page.form("key"),
            action,
            narrowed(action, wanted)[0] if len(MAY_BE[action]) == 1 else wanted,
            convert(priority, int, "priority") if action == "priority" else None,
            convert(rate, float, "rate") if rate else None,
        )
    )
    page.note(f"bulk {action}", words_of(wanted) or "all jobs")
    return await page.redirect(f"/ui/bulk/one?key={view.key}", f"The operation {view.key} has begun.")


def action_of(name: str) -> BulkAction:
    found = next((action for action in ACTIONS if action == name), None)
    if found is None:
        raise InvalidRequest(f"invalid action {name[:40]!r}: expected one of {', '.join(ACTIONS)}")
    return found


def narrowed(action: BulkAction, wanted: JobFilter) -> list[JobFilter]:
    """The filter for each state that the action is about."""
    allowed = MAY_BE[action]
    if wanted.state is not None and wanted.state not in allowed:
        raise InvalidRequest(f"{action} is about jobs that are {' or '.join(allowed)}, not {wanted.state}")
    states = allowed if wanted.state is None else (wanted.state,)
    return [msgspec.structs.replace(wanted, state=state) for state in states]


async def hits(page: DashboardPage, action: BulkAction, wanted: JobFilter) -> tuple[Counted, list[JobView]]:
    count, examples = Counted(0), list[JobView]()
    for one in narrowed(action, wanted):
        found = await counted(page, one, PREVIEW_S)
        if found is not None:
            count = Counted(
                count.count + found.count, count.looked + found.looked, count.next_after or found.next_after
            )
        if len(examples) < EXAMPLES:
            examples += (await page.ask(c.Browse(**fields_of(one), limit=EXAMPLES))).jobs
    return count, examples[:EXAMPLES]
