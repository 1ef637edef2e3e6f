"""One WebSocket: uvicorn's protocol, quiet about nonsense that a peer sends, and with its place in the crowd."""

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from stoker.server.http.protocol import HEAD_TOO_LARGE, log

if TYPE_CHECKING:
    from stoker.server.http.protocol import Connection

INVALID_TEXT = 1007
"""The status that WebSocket has for text that is no UTF-8."""


class Socket(WebSocketsSansIOProtocol):
    """One peer, from the moment that its connection has become a WebSocket."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.logger = self.conn.logger = log
        self._before: Connection | None = None

    def take_over(self, connection: "Connection") -> None:
        """Go on with a connection of HTTP, whose place is now this one's."""
        self._before = connection
        if not self.handshake_initiated:  # the head is more than a WebSocket may begin with, and nothing answers it
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
        """The client has said who it is."""
        if self._before is not None:
            self._before.know()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn does it, but for text that is no UTF-8: that is the peer's fault, and no error of ours."""
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
