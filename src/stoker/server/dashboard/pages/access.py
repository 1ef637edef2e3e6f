"""Logging in and out, the looks, the help page, and the files that pages load."""

import time

from stoker.model.errors import StokerError
from stoker.server.dashboard.assets import assets
from stoker.server.dashboard.page import THEMES, Answer, DashboardPage, problem_text
from stoker.server.dashboard.sessions import new_session
from stoker.server.http.responses import NotHere

FOREVER = b"public, max-age=31536000, immutable"


async def to_overview(page: DashboardPage) -> Answer:
    return Answer(status=307, headers=[(b"location", b"/ui/")])


async def missing(page: DashboardPage) -> Answer:
    """For addresses that are no page."""
    raise NotHere("there is no page at this address")


async def help_page(page: DashboardPage) -> Answer:
    """For every client. One that may see other pages has the menu, too."""
    try:
        page.identity = page.request.identify(in_session=page.session.token or None)
    except StokerError:
        page.identity = None
    return page.html("help.html")


async def static(page: DashboardPage) -> Answer:
    """A script, a style or a picture. Browsers keep it, because its address changes with it."""
    found = assets().get(page.request.parameters["file"])
    if found is None:
        raise NotHere("there is no such file")
    packs = b"gzip" in page.request.headers.get(b"accept-encoding", b"")
    headers = [(b"cache-control", FOREVER), (b"vary", b"accept-encoding")]
    if packs:
        headers.append((b"content-encoding", b"gzip"))
    return Answer(found.packed if packs else found.body, kind=found.kind, headers=headers)


# --- logging in --------------------------------------------------------------------------------------


async def login_page(page: DashboardPage) -> Answer:
    return page.html("login.html", problem="", next=_safe(page.query.get("next", "")))


async def login(page: DashboardPage) -> Answer:
    """Exchange a token for a session. The token is sent in the body, and never stands in a URL."""
    next_page = _safe(page.form("next"))
    try:
        identity = page.request.identify(in_session=page.form("token").strip() or None)
        page.request.service.gate.allow(identity, "read", None, time.time())
        await page.keep(new_session(page.form("token").strip()))
    except StokerError as error:
        return page.html("login.html", 401, problem=problem_text(error), next=next_page)
    return await page.redirect(next_page)


async def logout(page: DashboardPage) -> Answer:
    if page.session.token:
        await page.dashboard.sessions.end(page.session)
    page.forget()
    return await page.redirect("/ui/login")


def _safe(next_page: str) -> str:
    """A page of ours to go to after the login; nothing else may be named."""
    is_ours = next_page.startswith("/ui/") and "\\" not in next_page and "//" not in next_page
    return next_page if is_ours and next_page.isascii() and next_page.isprintable() else "/ui/"


# --- looks -------------------------------------------------------------------------------------------


async def choose_theme(page: DashboardPage) -> Answer:
    """Light, dark, or as the system says: one after the other."""
    at = THEMES.index(page.theme)
    page.choose_theme(page.form("theme") or THEMES[(at + 1) % len(THEMES)])
    return await page.redirect(_safe(page.form("back")))
