"""The server itself, and its tenants: for operators."""

import asyncio

import msgspec

from stoker.model import commands as c
from stoker.model.errors import Forbidden, Unsupported
from stoker.model.limits import NAME_PATTERN
from stoker.server.config.showing import values_of
from stoker.server.dashboard.lake import look_at_lake
from stoker.server.dashboard.page import Answer, DashboardPage
from stoker.server.report import all_reports

TENANTS_MAX = 200


async def server(page: DashboardPage) -> Answer:
    from stoker.journal import doctor  # opens data directories: only this page needs it

    only_inside(page)
    service = page.request.service
    config = service.config
    findings = await asyncio.to_thread(doctor.check, config.data) if config.data is not None else []
    return page.html(
        "server.html",
        config=config,
        broker=service.dispatcher.broker,
        shards=service.dispatcher.shards,
        reports=await all_reports(service),
        findings=findings,
        lake=await asyncio.to_thread(look_at_lake, page.settings.lake) if page.has_lake else None,
        settings=list(values_of(config)),
        started_at=round(service.started_at * 1_000),
    )


def only_inside(page: DashboardPage) -> None:
    """Refuse a page that only the dashboard of the server itself can have."""
    if page.outside is not None:
        raise Unsupported("only the dashboard of the server itself has this page: `Connection` says what is here")


async def tenants(page: DashboardPage) -> Answer:
    only_inside(page)
    names = sorted({name for report in await all_reports(page.request.service) for name in report.tenants})
    names = [name for name in names if NAME_PATTERN.fullmatch(name)]
    may_look = page.identity is not None and page.identity.any_tenant
    stats = []
    for name in names[:TENANTS_MAX] if may_look else []:
        tenant = page.request.service.admit(page.identity, "read", name, None)  # type: ignore[arg-type]
        stats.append((name, await page.request.carry_out(tenant, c.GetStats())))
    return page.html("tenants.html", tenants=stats, total=len(names), may_look=may_look)


async def choose_tenant(page: DashboardPage) -> Answer:
    """Look at another tenant from now on, in this browser."""
    assert page.identity is not None
    if not page.identity.any_tenant:
        raise Forbidden("this token is for one tenant: log in with a token for any tenant to look at another one")
    name = page.form("tenant")
    tenant = page.request.service.admit(page.identity, "read", name, None)
    await page.keep(msgspec.structs.replace(page.session, tenant=tenant))
    return await page.redirect("/ui/", f"You look at tenant {tenant}.")
