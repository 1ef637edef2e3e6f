"""The limits of one HTTP connection: size of a head, time for a request, patience with unread responses.

uvicorn's parser and flow control do the work; this adds only what they lack. Nothing here knows a path.
"""

import asyncio
import logging
import time
from collections import deque
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from stoker.model.errors import InvalidRequest
from stoker.server.config.addresses import is_loopback
from stoker.server.config.tree import ServerLimits
from stoker.server.connections import ConnectionPlace, Connections
from stoker.server.http import responses

if TYPE_CHECKING:
    from stoker.server.http.websocket import WebSocketConnection

log = logging.getLogger("stoker.server.http")
log.setLevel(logging.ERROR)  # nonsense from clients must not fill the log

SWEEP_S = 1.0
LAST_WORDS_S = 0.2
"""Time for responses that are almost done when the server closes."""
BODY_AHEAD_BYTES = 1024 * 1024
"""This much of a body is read ahead: the next batch arrives while one is pushed."""


class HttpConnections:
    """All connections of the listener: watched, and closed together."""

    def __init__(self, config: Config, limits: ServerLimits, connections: Connections) -> None:
        self.config = config
        self.limits = limits
        self.connections = connections
        self.state = ServerState()
        self.open: set[HttpConnection] = set()
        self.is_closing = False
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    def connect(self, place: ConnectionPlace) -> "HttpConnection":
        return HttpConnection(self, place)

    async def _sweep(self) -> None:
        while True:
            self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for connection in list(self.open):
                connection.check_pace(now)

    async def close(self) -> None:
        """End running requests, and close every connection."""
        self._sweeper.cancel()
        self.is_closing = True
        tasks = [task for task in self.state.tasks if not task.done()]
        for connection in list(self.state.connections):
            connection.shutdown()  # WebSockets included
        if tasks:
            # Requests that waited at the dispatcher have been told by now that the server stops; one turn of the loop
            # is enough.
            _, late = await asyncio.wait(tasks, timeout=LAST_WORDS_S)
            for connection in self.open:
                if connection.cycle is not None:
                    connection.cycle.disconnected = True  # suppresses the error about an incomplete response
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in list(self.open):
            connection.transport.close()
        await asyncio.sleep(0)


class HttpConnection(HttpToolsProtocol):
    """One client."""

    def __init__(self, door: HttpConnections, place: ConnectionPlace) -> None:
        super().__init__(config=door.config, server_state=door.state, app_state={})
        self.access_log = False
        self.logger = log
        self.pipeline = deque()
        self._door = door
        self.place = place
        self._limits = door.limits
        self.loopback = is_loopback(place.address)
        self._head_since: float | None = None
        """Since when the head of a request is incomplete; None between requests and inside of one."""
        self._head_open = True
        self._head_bytes = 0
        self._heads = 0
        """Heads that have arrived complete."""
        self._paused_since: float | None = None
        self._idle_since: float | None = time.monotonic()
        """Since when no request is under way: none has come yet, or the last one is answered."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.place.cut = transport.abort
        self._door.open.add(self)
        transport.set_write_buffer_limits(high=min(1 << 20, self._limits.output_buffer_bytes_max))

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.open.discard(self)
        self._door.connections.leave(self.place)
        super().connection_lost(exc)

    def know(self) -> None:
        """The client has authenticated."""
        self._door.connections.know(self.place)

    # --- the head of a request -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        was_open, heads = self._head_open, self._heads
        if was_open and self._head_since is None:
            self._head_since = time.monotonic()
        self._idle_since = None
        super().data_received(data)
        if self._head_open and was_open and heads == self._heads:  # else a whole request has come, with its body
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.http_header_bytes_max:
                self.transport.write(HEAD_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open = True

    def on_headers_complete(self) -> None:
        self._head_open, self._head_bytes, self._head_since = False, 0, None
        self._heads += 1
        self._door.connections.spoke(self.place)
        self.app = self._refusal() or self.config.loaded_app
        self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def _refusal(self) -> Any:
        """The application that answers if the head of the request is not acceptable."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.http_header_bytes_max:
            return too_many_headers
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            return not_one_host
        return None

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > BODY_AHEAD_BYTES:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_open = True

    def handle_websocket_upgrade(self) -> None:
        if self.app is not self.config.loaded_app:
            self.transport.write(HEAD_TOO_LARGE if self.app is too_many_headers else NOT_ONE_HOST)
            self.transport.close()
            return
        super().handle_websocket_upgrade()
        self._door.open.discard(self)  # from now on it is a stream: it has its own pace, and keeps its place
        cast("WebSocketConnection", self.transport.get_protocol()).take_over(self)

    def on_response_complete(self) -> None:
        """Like uvicorn, but without its timer: a sweep closes idle connections, and costs a request nothing."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = time.monotonic()

    # --- pace ----------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._paused_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._paused_since = None
        super().resume_writing()

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closing()

    def check_pace(self, now: float) -> None:
        """Close a connection that is too slow or idle for too long."""
        limits = self._limits
        cycle: Any = self.cycle  # None before the first request
        if cycle and cycle.response_complete and self._idle_since is None and self._head_since is None:
            self._idle_since = now  # it was answered before all of its body had come
        trickles = self._head_since is not None and now - self._head_since > limits.frame_s
        reads_nothing = self._paused_since is not None and now - self._paused_since > limits.output_stalled_s
        if trickles or reads_nothing:
            self.transport.abort()
        elif self._idle_since is not None and now - self._idle_since > limits.http_keep_alive_s:
            self.transport.close()


def answer_whole(send: Any, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    """Write head and body of a response at once, if `send` belongs to a request that waits for one.

    Sent as two messages, each response would be two system calls, and every header would be checked again: a third of
    the throughput of small requests. False means that it has to be sent as messages.
    """
    cycle = getattr(send, "__self__", None)
    if type(cycle) is not RequestResponseCycle or cycle.response_started or cycle.flow.write_paused:
        return False
    if cycle.disconnected or cycle.scope["method"] == "HEAD":
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    head = [STATUS_LINE[status]]
    closes = not cycle.keep_alive
    for name, value in (*cycle.default_headers, *headers):
        head.append(b"%b: %b\r\n" % (name, value))
        closes = closes or (name == b"connection" and value == b"close")
    if not cycle.keep_alive:
        head.append(b"connection: close\r\n")
    head += [b"content-length: %d\r\n\r\n" % len(body), body]
    cycle.transport.write(b"".join(head))
    cycle.message_event.set()
    if closes:
        cycle.transport.close()
    cycle.on_response()
    return True


HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


NOT_ONE_HOST = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


async def not_one_host(scope: Any, receive: Any, send: Any) -> None:
    error = InvalidRequest("invalid request: HTTP/1.1 needs the header Host, exactly once")
    await responses.send(
        send, 400, responses.encode_json(responses.problem(error)), headers=[(b"connection", b"close")]
    )


async def too_many_headers(scope: Any, receive: Any, send: Any) -> None:
    error = responses.TooLarge("the head of this request is too large: send fewer or shorter headers")
    await responses.send(
        send, 431, responses.encode_json(responses.problem(error)), headers=[(b"connection", b"close")]
    )
