"""The parts of the HTTP application, put together."""

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route, WebSocketRoute

from stoker.server.http.front import Front
from stoker.server.http.pages import Pages
from stoker.server.http.streams import Streams
from stoker.server.service import Service


def make_app(service: Service) -> Front:
    streams = Streams(service)
    routes: list[BaseRoute] = [
        Route("/events", streams.sse),
        Route("/events/job/{id}", streams.sse),
        Route("/events/{queue}", streams.sse),
        Route("/queues/{queue}/events", streams.sse),
        WebSocketRoute("/ws", streams.ws),
        WebSocketRoute("/ws/{queue}", streams.ws),
    ]
    return Front(service, Starlette(routes=routes), Pages(service, streams).handlers())
