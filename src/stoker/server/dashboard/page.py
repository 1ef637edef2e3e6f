"""One request to a page: who asks, for which tenant, what it may ask of the queue, and the answer.

A page knows no command by name and no template; handlers do.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec

from stoker.model import commands as c
from stoker.model.command_table import READS, TABLE, Permission
from stoker.model.errors import Forbidden, InvalidRequest, NotFound, StokerError, Unsupported
from stoker.server.auth.identity import DEFAULT_TENANT, Identity
from stoker.server.client_broker import ClientBroker
from stoker.server.dashboard.live import SHARED_S
from stoker.server.dashboard.rendering import render
from stoker.server.dashboard.sessions import COOKIE_CHARS_MAX, LoginSession, new_session
from stoker.server.http import responses
from stoker.server.http.request import HttpRequest, convert

if TYPE_CHECKING:
    from stoker.server.dashboard.dashboard import Dashboard
    from stoker.server.dashboard.routes import PageRoute

R = TypeVar("R")

audit = logging.getLogger("stoker.audit")

HTML = b"text/html; charset=utf-8"
FORM = b"application/x-www-form-urlencoded"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
POLICY_HEADER = b"content-security-policy"
GUARDS: responses.Headers = [
    (POLICY_HEADER, POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # `no-referrer` would hide the origin of our own forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
THEMES = ("auto", "light", "dark")
THEME_COOKIE = "stoker_theme"
YEAR_S = 365 * 86_400


class Answer(msgspec.Struct):
    """A whole response."""

    body: bytes = b""
    status: int = 200
    kind: bytes = HTML
    headers: responses.Headers = []


class DashboardPage:
    """One request and what its handler needs."""

    def __init__(self, dashboard: "Dashboard", request: HttpRequest, route: "PageRoute") -> None:
        self.dashboard, self.request, self.route = dashboard, request, route
        self.settings = request.service.config.dashboard
        self.session: LoginSession = new_session()
        self.identity: Identity | None = None
        self.csrf = ""
        self.now = round(time.time() * 1_000)
        self._cookies = _cookies(request.headers.get(b"cookie", b""))
        self._set: list[str] = []
        self._form: dict[str, list[str]] = {}
        self.query: dict[str, str] = {}
        """What stands behind `?`; empty if it is malformed, and then the page says so."""

    # --- the client ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find out who asks, and whether the page is for this client. Raises `StokerError`."""
        self.query = self.request.query()
        sessions, cookie = self.dashboard.sessions, self._cookies.get(self.cookie_name)
        found = await sessions.open(cookie) if cookie else None
        if found is not None:
            self.session = found
        renewed = self.session if found is None else sessions.rotated(found)
        if renewed is not None and self.is_reading:
            await self.keep(renewed)
        self.csrf = sessions.csrf(self.session)
        if self.route.permission is not None:
            self.identity = self.request.identify(in_session=self.session.token or None)
            self.request.service.admit(self.identity, self.route.permission, self.session.tenant, None)
            if self.route.is_change:
                self.check_writable()
            if self.route.for_operators and not self.is_operator:
                raise Forbidden("this page is about all tenants: log in with an operator's token")
        if not self.is_reading:
            await self._read_form()

    @property
    def is_reading(self) -> bool:
        return self.request.method in ("GET", "HEAD")

    @property
    def is_live(self) -> bool:
        """Whether the page looks again by itself, and no person has asked for it."""
        return b"hx-request" in self.request.headers

    @property
    def is_operator(self) -> bool:
        """Whether the client may see what is about all tenants."""
        who = self.identity
        return who is not None and (who.any_tenant or who.tenant == DEFAULT_TENANT or self.outside is not None)

    @property
    def outside(self) -> ClientBroker | None:
        """The queue that `stoker ui` looks at from outside; None in the dashboard of the server that has the queue."""
        broker = self.request.service.dispatcher.broker
        return broker if isinstance(broker, ClientBroker) else None

    @property
    def has_events(self) -> bool:
        return self.request.service.dispatcher.broker.logs is not None

    @property
    def has_webhooks(self) -> bool:
        """Whether there is a server that posts them."""
        return self.has_events and (self.outside is None or self.outside.server is not None)

    @property
    def tenant(self) -> str:
        assert self.identity is not None
        return self.session.tenant or self.identity.tenant

    def can(self, permission: Permission) -> bool:
        """Whether the client may use commands with this permission here: pages show no other buttons."""
        if self.identity is None or (permission != "read" and self.settings.read_only):
            return False
        return permission in self.identity.permissions

    def has(self, command: str) -> bool:
        """Whether the broker has this command: pages offer no other."""
        return command not in self.request.service.dispatcher.broker.lacks

    @property
    def has_lake(self) -> bool:
        """Whether the client may see the pipeline's lake: it has the history of all tenants."""
        may_look = self.identity is not None and "admin" in self.identity.permissions and self.is_operator
        return bool(self.settings.lake) and may_look

    def can_send(self, command: type[c.Command[Any]]) -> bool:
        return self.can(TABLE[command].permission)

    def _allow(self, permission: Permission, command: c.Command[Any]) -> str:
        assert self.identity is not None
        if permission != "read":
            self.check_writable()
        return self.request.service.admit(self.identity, permission, self.session.tenant, command)

    def check_writable(self) -> None:
        if self.settings.read_only:
            raise Forbidden("this dashboard is read-only: dashboard.read_only is set")

    # --- asking the queue ----------------------------------------------------------------------------

    async def ask(self, command: c.Command[R]) -> R:
        """The reply to a command, as for any client. Raises `StokerError`."""
        tenant = self._allow(TABLE[type(command)].permission, command)
        if type(command) not in READS:
            try:
                return await self.request.service.call(tenant, command, self.identity)
            finally:
                self.dashboard.shared_replies.forget(self.tenant)
        return await self.shared(command, lambda: self.request.service.call(tenant, command))

    async def shared(self, what: Any, ask: Callable[[], Coroutine[Any, Any, R]], *, seconds: float = 0) -> R:
        """The answer to `ask()`. Live pages of the same tenant share it for a moment, by `what` it is about; all pages
        do for so many `seconds`.
        """
        if not (seconds or self.is_live):
            return await ask()
        return await self.dashboard.shared_replies.get(self.tenant, what, ask, seconds or SHARED_S)

    async def ask_if_there(self, command: c.Command[R]) -> R | None:
        """None if there is no such thing, or the broker does not have the command."""
        try:
            return await self.ask(command)
        except (NotFound, Unsupported):
            return None

    async def ask_all(self, commands: Iterable[c.Command[R]]) -> list[R | None]:
        """The replies to commands that are handed in together. None where there is no such thing any more."""
        return list(await asyncio.gather(*(self.ask_if_there(command) for command in commands)))

    def note(self, action: str, target: str, count: int = 1) -> None:
        """The audit line of a change: who, what, how many."""
        who = self.identity.name if self.identity is not None else "open"
        said = {"who": who, "tenant": self.tenant, "action": action, "target": target, "count": count}
        audit.info("dashboard: %s %s", action, target, extra=said)

    # --- what was sent -------------------------------------------------------------------------------

    def integer(self, name: str) -> int | None:
        """A whole number of the query; None if it is not there."""
        text = self.query.get(name)
        found: int | None = convert(text, int, name) if text else None
        return found

    def job_id(self) -> int:
        """The id in the path."""
        found: int = convert(self.request.parameters["id"], int, "id")
        if not 0 < found < 2**63:
            raise InvalidRequest(f"invalid job id {found}: ids are positive and below 2**63")
        return found

    def form(self, name: str, default: str = "") -> str:
        """A field of the form that was sent."""
        return (self._form.get(name) or [default])[0]

    def form_list(self, name: str) -> list[str]:
        """All values of a field that may be there several times."""
        return self._form.get(name, [])

    @property
    def form_names(self) -> list[str]:
        return list(self._form)

    async def _read_form(self) -> None:
        """The fields of a form that a page of ours has sent: another site's page cannot know the token in it."""
        headers = self.request.headers
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site", b"same-origin")
        if origin is None or origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
            raise Forbidden("cross-origin request: only a page of this dashboard may change something here")
        if site.lower() != b"same-origin":
            raise Forbidden("cross-site request: only a page of this dashboard may change something here")
        if not headers.get(b"content-type", b"").startswith(FORM):
            raise InvalidRequest("invalid body: expected a form")
        try:
            text = (await self.request.body()).decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=2_000)
        except ValueError as error:
            raise InvalidRequest(f"invalid form: {error}") from None
        for name, value in pairs:
            self._form.setdefault(name, []).append(value.replace("\r\n", "\n"))
        if not hmac.compare_digest(self.form("csrf").encode(), self.csrf.encode()):
            raise Forbidden("this form is of another session: go back, reload the page, and send it again")

    # --- answers -------------------------------------------------------------------------------------

    def html(self, template: str, status: int = 200, **values: Any) -> Answer:
        said = "" if self.is_live else self.session.said
        body = render(template, page=self, said=said, **values)
        return Answer(body, status, headers=self._headers())

    async def shown_once(self) -> None:
        """The last outcome is shown by this page, and by no later one."""
        if self.session.said and not self.is_live and self.is_reading:
            await self.keep(msgspec.structs.replace(self.session, said=""), is_shown=True)

    async def redirect(self, to: str, said: str = "") -> Answer:
        """After a change: a page to look at, which says what was done."""
        if said:
            await self.keep(msgspec.structs.replace(self.session, said=said[:500]))
        return Answer(status=303, headers=[(b"location", to.encode("ascii", "ignore")), *self._headers()])

    def _headers(self) -> responses.Headers:
        return [*GUARDS, *((b"set-cookie", cookie.encode()) for cookie in self._set)]

    def link(self, **changes: str | int | None) -> str:
        """This page with other parameters; None leaves one out. Another filter begins on the first page."""
        wanted = {name: value for name, value in self.query.items() if name != "after"}
        wanted |= {name: str(value) for name, value in changes.items() if value is not None}
        for name, value in changes.items():
            if value is None:
                wanted.pop(name, None)
        return self.request.path + (f"?{urlencode(wanted)}" if wanted else "")

    @property
    def address(self) -> str:
        """This page as it was asked for."""
        return self.link(after=self.query.get("after"))

    def is_under(self, path: str) -> bool:
        """Whether this page belongs to an entry of the menu: `/ui/queue` to `/ui/queues`."""
        here = self.request.path
        return here == path or (path != "/ui/" and here.startswith((path.removesuffix("s"), f"{path}/")))

    # --- cookies -------------------------------------------------------------------------------------

    @property
    def cookie_name(self) -> str:
        """Browsers share cookies between the ports of a host, and several servers may run on one."""
        _, _, port = self.request.headers.get(b"host", b"").decode("latin-1").rpartition(":")
        return f"stoker_ui_{port if port.isdigit() else 0}"

    @property
    def theme(self) -> str:
        found = self._cookies.get(THEME_COOKIE, "auto")
        return found if found in THEMES else "auto"

    async def keep(self, session: LoginSession, *, is_shown: bool = False) -> None:
        """Let the browser have this session."""
        sealed = await self.dashboard.sessions.seal(session)
        if len(sealed) > COOKIE_CHARS_MAX:
            raise InvalidRequest("this token is too long for a cookie: use one of at most 2,700 characters")
        self._put(self.cookie_name, sealed, round(self.settings.session_s))
        if not is_shown:
            self.session = session
            self.csrf = self.dashboard.sessions.csrf(session)

    def forget(self) -> None:
        self._put(self.cookie_name, "", 0)

    def choose_theme(self, theme: str) -> None:
        if theme not in THEMES:
            raise InvalidRequest(f"invalid theme {theme[:20]!r}: expected one of {', '.join(THEMES)}")
        self._put(THEME_COOKIE, theme, YEAR_S)

    def _put(self, name: str, value: str, seconds: int) -> None:
        is_tls = self.request.scope.get("scheme") == "https" or self._came_by_tls
        secure = "; Secure" if is_tls else ""
        self._set = [cookie for cookie in self._set if not cookie.startswith(f"{name}=")]
        self._set.append(f"{name}={value}; Path=/ui/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")

    @property
    def _came_by_tls(self) -> bool:
        return self.request.headers.get(b"x-forwarded-proto", b"").lower() == b"https"


def _cookies(header: bytes) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header.decode("latin-1")).items()}
    except CookieError:
        return {}


def problem_text(error: StokerError) -> str:
    """What was wrong, as a sentence."""
    text = error.message
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
