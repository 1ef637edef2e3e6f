"""Events as they happen, over server-sent events and over WebSocket: the same JSON, the same filters, the same pace.

GET /events, /events/{queue}, /events/job/{id}      WS /ws, /ws/{queue}
?events=completed,failed   only these kinds      ?after=CURSOR   from where a reader was (or Last-Event-ID)
?from=beginning            all that is kept      ?token=TOKEN    where no header can be sent
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from stoker.model.errors import Busy, Forbidden, StokerError
from stoker.model.events import Event
from stoker.server.http import responses
from stoker.server.http.feed import EventFeed, filter_of, read_cursor
from stoker.server.http.request import HttpRequest, convert
from stoker.server.reader import MissedEvents
from stoker.server.service import Service
from stoker.wire.flashq.events import event_answer

POLICY_VIOLATION = 1008
TRY_AGAIN_LATER = 1013
RETRY_MS = 2_000


class EventStreams:
    """All streams of one listener."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        most, meter = self._service.config.server.streams_max, self._service.meter
        if meter.streams >= most:
            raise Busy(f"too many streams: {most} are open; close one, or come back later")
        meter.streams += 1
        try:
            yield
        finally:
            meter.streams -= 1

    async def feed(self, http_request: HttpRequest, queue: str | None, job: int | None) -> EventFeed:
        """What a request asks for, ready to be read."""
        identity = http_request.identify(in_query=True)
        tenant = http_request.admit(identity, "read")
        query = http_request.query()
        wanted = filter_of(queue or query.get("queue"), query.get("events"), job)
        text = http_request.headers.get(b"last-event-id", b"").decode("latin-1") or query.get("after")
        dispatcher = self._service.dispatcher
        start = read_cursor(text, dispatcher.logs.shards) if text else {}
        ends = await dispatcher.ends(tenant)  # before the client hears that the stream begins
        return EventFeed(dispatcher, identity, tenant, wanted, start, ends, query.get("from") == "beginning")

    # --- server-sent events --------------------------------------------------------------------------

    async def sse(self, request: Request) -> "Sse":
        return Sse(self, request)

    # --- WebSocket -----------------------------------------------------------------------------------

    async def ws(self, socket: WebSocket) -> None:
        http_request = HttpRequest(self._service, socket.scope, socket.receive, socket.send)
        try:
            check_same_origin(http_request)
            feed = await self.feed(http_request, socket.path_params.get("queue"), None)
        except StokerError as error:
            await socket.close(POLICY_VIOLATION, error.message[:120])
            return
        await socket.accept()
        try:
            async with self.room():
                await self._talk(socket, feed)
        except Busy as error:
            await socket.close(TRY_AGAIN_LATER, error.message[:120])

    async def _talk(self, socket: WebSocket, feed: EventFeed) -> None:
        await until_either(self._send_all(socket, feed), self._until_left(socket))

    async def _send_all(self, socket: WebSocket, feed: EventFeed) -> None:
        try:
            async with aclosing(feed.items()) as items:
                async for cursor, item in items:
                    if item is not None:
                        await socket.send_text(responses.encode_json(shown(cursor, item)).decode())
        except WebSocketDisconnect:
            pass
        except StokerError as error:
            await socket.send_text(responses.encode_json(responses.problem(error)).decode())
            await socket.close(POLICY_VIOLATION, error.code)

    async def _until_left(self, socket: WebSocket) -> None:
        """What a reader says is not listened to; it only has to be taken off the line."""
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass


class Sse:
    """An answer that goes on until the client stops reading."""

    def __init__(self, streams: EventStreams, request: Request) -> None:
        self._streams, self._request = streams, request

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        http_request = HttpRequest(self._streams._service, scope, receive, send)
        try:
            check_same_origin(http_request)
            parameters = self._request.path_params
            job = convert(parameters["id"], int, "id") if "id" in parameters else None
            feed = await self._streams.feed(http_request, parameters.get("queue"), job)
            async with self._streams.room():
                headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), *responses.GUARDS]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                if http_request.method == "HEAD":
                    await send({"type": "http.response.body", "body": b""})
                    return
                await until_either(self._send_all(send, feed), http_request.until_left())
        except StokerError as error:
            await responses.refuse(send, error)

    async def _send_all(self, send: Any, feed: EventFeed) -> None:
        async def tell(text: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": text, "more_body": more})

        await tell(b"retry: %d\n\n" % RETRY_MS)
        try:
            async with aclosing(feed.items()) as items:
                async for cursor, item in items:
                    await tell(sse_block(cursor, item))
        except StokerError as error:
            body = responses.encode_json(responses.problem(error))
            await tell(b"event: error\ndata: %b\n\n" % body)
        await tell(b"", False)


async def until_either(sending: Coroutine[Any, Any, None], leaving: Coroutine[Any, Any, None]) -> None:
    """Send until there is nothing more to send, or the client is gone."""
    tasks = [asyncio.ensure_future(sending), asyncio.ensure_future(leaving)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def sse_block(cursor: str, item: Event | MissedEvents | None) -> bytes:
    if item is None:
        return b": here\nid: %b\n\n" % cursor.encode()
    name = "missed" if isinstance(item, MissedEvents) else str(item.kind)
    data = responses.encode_json(shown(cursor, item))
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (cursor.encode(), name.encode(), data)


def shown(cursor: str, item: Event | MissedEvents) -> dict[str, Any]:
    if isinstance(item, MissedEvents):
        return {
            "event_type": "missed",
            "cursor": cursor,
            "shard": item.shard,
            "after": item.after,
            "lowest": item.lowest,
            "message": "events between these positions are not kept any more",
        }
    return {**event_answer(item, "json"), "cursor": cursor}


def check_same_origin(http_request: HttpRequest) -> None:
    """A page of another site may not read along either: a browser opens streams without asking first."""
    try:
        http_request.check_origin()
    except Forbidden:
        raise Forbidden("cross-site request: another site's page may not read events here") from None
