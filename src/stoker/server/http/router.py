"""The ASGI application: receives every HTTP request and passes it to its handler.

Calls and REST go straight to their handlers. Pages, event streams and WebSockets are a Starlette application behind
them, because its router costs a third of the throughput.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

from starlette.applications import Starlette

from stoker.model.errors import StokerError, Unknown
from stoker.server.http import bulk, cors, flashq_calls, native_calls, responses, rest
from stoker.server.http.paths import Handler, Paths
from stoker.server.http.protocol import HttpConnections
from stoker.server.http.request import ClientLeft, HttpRequest
from stoker.server.http.responses import NotHere
from stoker.server.service import Service

log = logging.getLogger("stoker.server")


class HttpRouter:
    """An ASGI application."""

    def __init__(self, service: Service, behind: Starlette, pages: Iterable[tuple[str, str, Handler]] = ()) -> None:
        self.service = service
        self.behind = behind
        self._origins = service.config.http.origins
        self.door: HttpConnections | None = None
        self.paths = Paths()
        self.paths.add("POST", "/api/call", native_calls.call)
        self.paths.add("POST", "/api/call/{name}", native_calls.call_named)
        self.paths.add("POST", "/api/command", flashq_calls.command)
        self.paths.add("POST", bulk.PATH, bulk.push_lines)
        for method, path, handler in (*rest.handlers(), *pages):
            self.paths.add(method, path, handler)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._lead(scope, receive, send)
        except asyncio.CancelledError:
            if self.door is None or not self.door.is_closing:
                raise

    async def _lead(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.behind(scope, receive, send)
            return
        if self._origins:
            origin = cors.origin_of(scope, self._origins)
            if origin is not None:
                send = cors.named(send, origin)
                if scope["method"] == "OPTIONS":
                    await cors.allow(send)
                    return
        http_request = HttpRequest(self.service, scope, receive, send)
        try:
            handler: Handler = self.paths.find(http_request)
        except NotHere:
            await self.behind(scope, receive, send)
            return
        except StokerError as error:
            await responses.refuse(send, error)
            return
        await self._answer(http_request, handler)

    async def _answer(self, http_request: HttpRequest, handler: Handler) -> None:
        started = time.perf_counter()
        try:
            await handler(http_request)
        except ClientLeft:
            return
        except StokerError as error:
            await responses.refuse(http_request.send, error)
        except Exception as error:
            log.exception("%s %s failed with an unexpected error", http_request.method, http_request.path[:200])
            unknown = Unknown(f"it is not known whether this happened: an unexpected {type(error).__name__}")
            await responses.refuse(http_request.send, unknown)
        finally:
            self.service.meter.http(http_request.status, time.perf_counter() - started)
