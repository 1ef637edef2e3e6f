"""Schedules, and one of them with its coming and its last runs."""

from stoker.model import commands as c
from stoker.model.schedules import Schedule
from stoker.model.wording import lasting
from stoker.server.dashboard.job_data import shown
from stoker.server.dashboard.page import Answer, DashboardPage

PAGE_SCHEDULES = 100


async def schedules(page: DashboardPage) -> Answer:
    queue = page.query.get("queue") or None
    found = await page.ask(c.ListSchedules(queue, after=page.query.get("after") or None, limit=PAGE_SCHEDULES))
    return page.html(
        "schedules.html", schedules=found.schedules, next_after=found.next_after, queue=queue, rule=rule_text
    )


async def schedule(page: DashboardPage) -> Answer:
    view = await page.ask(c.GetSchedule(page.query.get("queue", ""), page.query.get("name", "")))
    data = shown(page, view.schedule.payload, view.schedule.options.codec)
    return page.html("schedule.html", view=view, rule=rule_text, payload=data)


def rule_text(schedule: Schedule) -> str:
    """When it pushes: `*/5 * * * * (UTC)`, `every 30.0 s`."""
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.zone})"
    return f"every {lasting(schedule.every_ms)}" if schedule.every_ms else "once"
