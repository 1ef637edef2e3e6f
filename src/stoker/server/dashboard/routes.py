"""The table of pages: each path with the permission that it needs and the function that answers it.

Names of queues, schedules and workers stand in the query, because a queue may be called `..`, which browsers take for
a step up in a path.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from stoker.model.command_table import Permission
from stoker.server.dashboard import actions, live
from stoker.server.dashboard.page import Answer, DashboardPage
from stoker.server.dashboard.pages import (
    access,
    bulk,
    connection,
    dead,
    events,
    job,
    jobs,
    overview,
    queues,
    report,
    schedules,
    search,
    server,
    webhooks,
    workers,
    workflows,
)


class PageRoute(NamedTuple):
    """A page. Without a permission it is for every client."""

    method: str
    path: str
    permission: Permission | None
    handler: Callable[[DashboardPage], Awaitable[Answer | None]]
    for_operators: bool = False
    """Whether it shows what is about all tenants."""
    is_change: bool = False
    """Whether it changes something or only leads to a change: a read-only dashboard does not have it."""


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/", None, access.to_overview),
    PageRoute("GET", "/ui", None, access.to_overview),
    PageRoute("GET", "/ui/", "read", overview.overview),
    PageRoute("GET", "/ui/queues", "read", queues.queues),
    PageRoute("GET", "/ui/queue", "read", queues.queue),
    PageRoute("GET", "/ui/jobs", "read", jobs.jobs),
    PageRoute("GET", "/ui/jobs/{id}", "read", job.job),
    PageRoute("GET", "/ui/jobs/{id}/edit", "admin", job.edit, is_change=True),
    PageRoute("GET", "/ui/dead", "read", dead.dead),
    PageRoute("GET", "/ui/bulk", "read", bulk.bulks),
    PageRoute("GET", "/ui/bulk/one", "read", bulk.bulk),
    PageRoute("GET", "/ui/bulk/new", "admin", bulk.preview, is_change=True),
    PageRoute("POST", "/ui/bulk/start", "admin", bulk.start, is_change=True),
    PageRoute("GET", "/ui/workflows", "read", workflows.workflows),
    PageRoute("GET", "/ui/workflows/{id}", "read", workflows.workflow),
    PageRoute("GET", "/ui/schedules", "read", schedules.schedules),
    PageRoute("GET", "/ui/schedule", "read", schedules.schedule),
    PageRoute("GET", "/ui/workers", "read", workers.workers),
    PageRoute("GET", "/ui/events", "read", events.events),
    PageRoute("GET", "/ui/webhooks", "admin", webhooks.webhooks),
    PageRoute("GET", "/ui/tenants", "admin", server.tenants, for_operators=True),
    PageRoute("POST", "/ui/tenants", "read", server.choose_tenant),
    PageRoute("GET", "/ui/server", "admin", server.server, for_operators=True),
    PageRoute("GET", "/ui/report", "admin", report.report, for_operators=True),
    PageRoute("GET", "/ui/connection", "read", connection.connection),
    PageRoute("GET", "/ui/search", "read", search.search),
    PageRoute("GET", "/ui/help", None, access.help_page),
    PageRoute("GET", "/ui/act/{action}", "read", actions.ask_first),
    PageRoute("POST", "/ui/act/{action}", "read", actions.act),
    PageRoute("POST", "/ui/selected", "admin", actions.ask_about_selected, is_change=True),
    PageRoute("GET", "/ui/login", None, access.login_page),
    PageRoute("POST", "/ui/login", None, access.login),
    PageRoute("POST", "/ui/logout", None, access.logout),
    PageRoute("POST", "/ui/theme", None, access.choose_theme),
    PageRoute("GET", "/ui/{page}", "read", access.missing),
    PageRoute("GET", "/ui/live", "read", live.live),
    PageRoute("GET", "/ui/static/{version}/{file}", None, access.static),
)
