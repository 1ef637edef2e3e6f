"""Invalid WebSocket data from a client: it is told so, and other clients are not affected."""

import logging
from collections.abc import Callable

import pytest

from stoker.server.config.tree import ServerLimits
from tests.http.support import HttpServer, wait_until

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
TEXT, MORE, PING, CLOSE, LAST = 1, 0, 9, 8, 0x80


def frame(first: int, data: bytes) -> bytes:
    """Masked with zeros, as a client's frames must be masked with something."""
    return bytes((first, 0x80 | len(data), 0, 0, 0, 0)) + data


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (frame(LAST | TEXT, b"\xff\xfe"), 1007),
        (frame(LAST | TEXT, b"\xff\xfe") * 3, 1007),
        (frame(TEXT, b"\xf0\x9f") + frame(LAST | MORE, b"\x99"), 1007),
        (frame(LAST | TEXT, b"fine") * 4 + frame(LAST | TEXT, b"\xc3"), 1007),
        (frame(LAST | MORE, b"of nothing"), 1002),
        (frame(LAST | CLOSE, b"\x00\x01"), 1002),
        (frame(PING, b"in parts"), 1002),
        (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff", 1009),
    ],
)
def test_nonsense_is_answered_with_its_status_and_logged_by_nobody(
    server: HttpServer, caplog: pytest.LogCaptureFixture, sent: bytes, status: int
):
    with caplog.at_level(logging.WARNING), server.socket() as connected:
        connected.sendall(UPGRADE + b"\r\n")
        assert connected.recv(65_536).startswith(b"HTTP/1.1 101")
        connected.sendall(sent)
        got = b""
        while piece := connected.recv(65_536):
            got += piece
        assert server.get("/health").status == 200
    assert got[got.index(b"\x88") + 2 :][:2] == status.to_bytes(2, "big")
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    "more", [b"X: y\r\n" * 300, b"X: " + b"y" * 10_000 + b"\r\n", b"X: " + b"y" * 70_000 + b"\r\n"]
)
def test_a_head_that_is_too_large_for_a_websocket_is_refused(server: HttpServer, more: bytes):
    """It was never answered, and its connection was neither counted nor closed."""
    assert server.raw(UPGRADE + more + b"\r\n").startswith(b"HTTP/1.1 431")
    wait_until(server, lambda: server.server.service.meter.connections["http"] == 0)


def test_a_websocket_keeps_its_place_among_the_connections(serve: Callable[..., HttpServer]):
    """It has a descriptor like any other."""
    server = serve(server=ServerLimits(connections_max=1))
    with server.socket() as connected:
        connected.sendall(UPGRADE + b"\r\n")
        assert connected.recv(65_536).startswith(b"HTTP/1.1 101")
        assert server.server.service.meter.connections["http"] == 1
        with server.socket() as other:
            assert other.recv(1) == b""  # its client is known: it does not make room
    wait_until(server, lambda: server.server.service.meter.connections["http"] == 0)
    assert server.get("/health").status == 200
