"""Puts the parts of the HTTP application together."""

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from stoker.model.errors import StokerError
from stoker.server.dashboard.dashboard import Dashboard
from stoker.server.http import webhooks
from stoker.server.http.pages import Pages
from stoker.server.http.responses import GUARDS, NotHere, WrongMethod, encode_json, extra_headers, status_of
from stoker.server.http.responses import problem as as_problem
from stoker.server.http.router import HttpRouter
from stoker.server.http.streams import EventStreams
from stoker.server.service import Service


async def refuse(request: Any, error: Any) -> Response:
    """Starlette's own refusals, as Stoker's errors."""
    problem: StokerError = NotHere("there is nothing at this path: /docs lists all paths")
    if error.status_code == 405:
        problem = WrongMethod(error.headers.get("Allow", "GET"))
    status = status_of(problem)
    headers = {name.decode(): value.decode() for name, value in (*GUARDS, *extra_headers(problem, status))}
    return Response(encode_json(as_problem(problem)), status, headers, media_type="application/json")


def make_app(service: Service) -> HttpRouter:
    streams = EventStreams(service)
    routes: list[BaseRoute] = [
        Route("/events", streams.sse),
        Route("/events/job/{id}", streams.sse),
        Route("/events/{queue}", streams.sse),
        Route("/queues/{queue}/events", streams.sse),
        WebSocketRoute("/ws", streams.ws),
        WebSocketRoute("/ws/{queue}", streams.ws),
    ]
    behind = Starlette(routes=routes, exception_handlers={HTTPException: refuse})
    pages = [*Pages(service).handlers(), *webhooks.handlers()]
    if service.config.dashboard.enabled:
        pages += Dashboard(service).handlers()
    return HttpRouter(service, behind, pages)
