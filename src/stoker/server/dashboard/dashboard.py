"""Serves the table of routes: finds the session, checks the rights, and shows errors as pages."""

import logging
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote

from stoker.model.errors import StokerError, Unauthenticated, Unknown
from stoker.server.dashboard.live import SharedReplies
from stoker.server.dashboard.page import Answer, DashboardPage, problem_text
from stoker.server.dashboard.routes import ROUTES, PageRoute
from stoker.server.dashboard.sessions import Sessions
from stoker.server.http import responses
from stoker.server.http.paths import Handler
from stoker.server.http.request import ClientLeft, HttpRequest
from stoker.server.service import Service

log = logging.getLogger("stoker.server")


class Dashboard:
    """The pages of one listener."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.sessions = Sessions(service.dispatcher, service.config.dashboard.session_s)
        self.shared_replies = SharedReplies()

    def handlers(self) -> Iterator[tuple[str, str, Handler]]:
        for route in ROUTES:
            yield route.method, route.path, partial(self.serve, route)

    async def serve(self, route: PageRoute, request: HttpRequest) -> None:
        page = DashboardPage(self, request, route)
        answer = await self._answer(page)
        if answer is not None:
            await responses.send(request.send, answer.status, answer.body, answer.kind, answer.headers)

    async def _answer(self, page: DashboardPage) -> Answer | None:
        try:
            await page.open()
            await page.shown_once()
            return await page.route.handler(page)
        except ClientLeft:
            raise
        except Unauthenticated as error:
            return self._to_login(page, error)
        except StokerError as error:
            return self.refuse(page, error)
        except Exception as error:
            log.exception("%s %s failed with an unexpected error", page.request.method, page.request.path[:200])
            return self.refuse(page, Unknown(f"an unexpected {type(error).__name__}: the server's log has more"))

    def _to_login(self, page: DashboardPage, error: Unauthenticated) -> Answer | None:
        """A browser without a valid token is sent to the login page. Without tokens there is none."""
        if not self.service.gate.configured or page.route.permission is None:
            return self.refuse(page, error)
        back = page.address if page.is_reading else "/ui/"
        where = f"/ui/login?next={quote(back, safe='')}"
        if page.is_live:  # htmx follows a redirect by itself and would put the login page into this one
            return Answer(status=401, headers=[(b"hx-redirect", where.encode())])
        return Answer(status=303, headers=[(b"location", where.encode())])

    def refuse(self, page: DashboardPage, error: StokerError) -> Answer:
        status = responses.status_of(error)
        answer = page.html("error.html", status, problem=problem_text(error), code=error.code)
        answer.headers += [header for header in responses.extra_headers(error, status) if header[0] == b"retry-after"]
        return answer
