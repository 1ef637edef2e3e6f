"""What `stoker ui` looks at from outside: the other end of its connection, and what it cannot show and why."""

import asyncio
from collections.abc import Iterator

from stoker.server.client_broker import ClientBroker
from stoker.server.dashboard.page import Answer, DashboardPage
from stoker.server.http.responses import NotHere


async def connection(page: DashboardPage) -> Answer:
    outside = page.outside
    if outside is None:
        raise NotHere("this is the server's own dashboard: the page Server has what is known of it")
    findings = []
    if outside.directory is not None:
        from stoker.journal import doctor  # opens data directories: only pages about one need it

        findings = await asyncio.to_thread(doctor.check, outside.directory)
    service = page.request.service
    return page.html(
        "connection.html",
        outside=outside,
        shards=service.dispatcher.shards,
        findings=findings,
        missing=list(missing(page, outside)),
        started_at=round(service.started_at * 1_000),
    )


def missing(page: DashboardPage, outside: ClientBroker) -> Iterator[tuple[str, str]]:
    """The pages that are not here, each with the reason."""
    if not page.has_events:
        yield "Events", "this queue keeps no events that a client can read."
    if not page.has_webhooks:
        yield "Webhooks", "a server posts them, and there is none behind this URL. Name a server's URL with --url."
    elif page.identity is not None and "admin" not in page.identity.permissions:
        yield "Webhooks", "this token may not admin."
    where = "the server's own dashboard" if outside.server is not None else "the dashboard of a server"
    yield "Tenants", f"no client may list them; {where} does. To look at another one, start stoker ui --tenant NAME."
    yield "Server", f"its settings, its disk and its connections are in {where}, at /ui/server."
