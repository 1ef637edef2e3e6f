"""The tenant's webhooks and how they fare."""

from stoker.server.dashboard.page import Answer, DashboardPage
from stoker.server.webhooks import commands


async def webhooks(page: DashboardPage) -> Answer:
    found = await commands.carry_out(page.request.service.webhooks, page.tenant, "list_webhooks", commands.Nothing())
    return page.html("webhooks.html", webhooks=found["webhooks"])
