"""One WebSocket: uvicorn's protocol, quiet about invalid data from clients, and counted as a connection."""

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from stoker.server.http.protocol import HEAD_TOO_LARGE, log

if TYPE_CHECKING:
    from stoker.server.http.protocol import HttpConnection

INVALID_TEXT = 1007
"""The WebSocket status for text that is not UTF-8."""


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One client, from the moment that its connection became a WebSocket."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.logger = self.conn.logger = log
        self._before: HttpConnection | None = None

    def take_over(self, connection: "HttpConnection") -> None:
        """Continue an HTTP connection, and take over its place."""
        self._before = connection
        if not self.handshake_initiated:  # the head is larger than a WebSocket's may be, and nothing answers it
            self.transport.write(HEAD_TOO_LARGE)
            self.transport.close()

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["connection"] = self  # type: ignore[typeddict-unknown-key]

    @property
    def loopback(self) -> bool:
        return self._before is not None and self._before.loopback

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closing()

    def know(self) -> None:
        """The client has authenticated."""
        if self._before is not None:
            self._before.know()

    def send_receive_event_to_app(self) -> None:
        """Like uvicorn, except for text that is not UTF-8: that is the client's error, not ours."""
        if self.curr_msg_data_type == "text" and not self.close_sent and not is_utf8(b"".join(self.frames)):
            self.frames = []
            self.conn.fail(INVALID_TEXT, "text must be UTF-8")
            self.handle_parser_exception()
        else:
            super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._before is not None:
            self._before.connection_lost(exc)


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
