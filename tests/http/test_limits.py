"""What one HTTP client may take of the server, and that the others do not notice."""

from collections.abc import Callable

import pytest

from stoker.server.config.tree import ServerLimits
from tests.http.support import HttpServer

Serve = Callable[..., HttpServer]
KNOWN = b"GET /queues HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""By this a client is known: it needs rights, which everybody on this machine has while there are no tokens."""


def test_a_body_that_is_too_large_is_not_read(serve: Serve):
    server = serve(server=ServerLimits(http_body_bytes_max=1_000))
    answer = server.post("/queues/a/jobs", b'{"data":"' + b"x" * 2_000 + b'"}')
    assert (answer.status, answer.json["code"], answer.headers["connection"]) == (413, "limit_exceeded", "close")
    assert server.post("/queues/a/jobs", {"data": 1}).status == 200


def test_nor_one_that_does_not_say_how_large_it_is(serve: Serve):
    server = serve(server=ServerLimits(http_body_bytes_max=1_000))
    head = b"POST /queues/a/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    got = server.raw(head + b"7d0\r\n" + b"x" * 2_000 + b"\r\n")
    assert got.startswith(b"HTTP/1.1 413")


def test_a_head_that_is_too_large_is_refused(serve: Serve):
    server = serve(server=ServerLimits(http_header_bytes_max=2_000))
    assert server.get("/health", x="y" * 3_000).status == 431
    assert server.get("/health", x="y" * 1_000).status == 200


def test_a_body_that_comes_with_its_head_is_not_taken_for_a_part_of_it(serve: Serve):
    server = serve(server=ServerLimits(http_header_bytes_max=2_000))
    body = b'{"data":"' + b"x" * 20_000 + b'"}'
    head = b"POST /queues/a/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: %b\r\nContent-Length: %d\r\n\r\n"
    got = server.raw(head % (b"keep-alive", len(body)) + body + head % (b"close", len(body)) + body)
    assert got.count(b"HTTP/1.1 200 OK") == 2


def test_a_head_without_end_is_cut_off(serve: Serve):
    server = serve(server=ServerLimits(http_header_bytes_max=2_000))
    with server.socket() as connected:
        connected.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
        got = b""
        try:
            for _ in range(1_000):
                connected.sendall(b"y" * 1_000)
            while piece := connected.recv(65536):
                got += piece
        except OSError:
            pass  # it has closed while we were still sending
    assert got == b"" or got.startswith(b"HTTP/1.1 431")
    assert server.get("/health").status == 200


def test_a_connection_that_asks_nothing_is_closed_like_an_idle_one(serve: Serve):
    server = serve(server=ServerLimits(handshake_s=0.1, http_keep_alive_s=1))
    with server.socket() as connected:
        assert connected.recv(1) == b""


def test_a_silent_connection_makes_room_and_one_whose_client_is_known_does_not(serve: Serve):
    server = serve(server=ServerLimits(connections_max=2))
    with server.socket() as known, server.socket() as silent:
        known.sendall(KNOWN)
        assert known.recv(15) == b"HTTP/1.1 200 OK"
        assert server.get("/queues").status == 200
        assert silent.recv(1) == b""
        known.sendall(KNOWN)
        assert known.recv(100_000)


def test_a_head_that_trickles_is_cut_off(serve: Serve):
    server = serve(server=ServerLimits(frame_s=0.1))
    with server.socket() as connected:
        connected.sendall(b"GET /health HT")
        assert connected.recv(1) == b""


def test_a_body_that_trickles_is_given_up(serve: Serve):
    server = serve(server=ServerLimits(frame_s=0.1))
    got = server.raw(b"POST /queues/a/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
    assert got.startswith(b"HTTP/1.1 408")


def test_an_idle_connection_is_closed(serve: Serve):
    server = serve(server=ServerLimits(http_keep_alive_s=1))
    got = server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")


def test_also_one_that_was_answered_before_it_had_said_all(serve: Serve):
    server = serve(server=ServerLimits(http_keep_alive_s=3))
    with server.socket() as connected:
        head = (
            b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 10\r\n\r\n"
        )
        connected.sendall(head)
        assert connected.recv(65536).startswith(b"HTTP/1.1 403")
        connected.sendall(b"0123456789")
        assert connected.recv(65536) == b""


def test_there_are_only_so_many_connections(serve: Serve):
    server = serve(server=ServerLimits(connections_per_address_max=3))
    held = [server.socket() for _ in range(3)]
    for each in held:
        each.sendall(KNOWN)
        assert each.recv(10)
    with server.socket() as one_more:
        try:
            one_more.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            got = one_more.recv(10)
        except ConnectionError:
            got = b""
    assert got == b""
    for each in held:
        each.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: nonsense\r\n\r\n",
        b'{"cmd": "push"}\n',
    ],
)
def test_what_is_no_http_is_refused(server: HttpServer, nonsense: bytes):
    got = server.raw(nonsense)
    assert got == b"" or got.startswith(b"HTTP/1.1 400")
    assert server.get("/health").status == 200


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ],
)
def test_a_request_needs_exactly_one_host(server: HttpServer, request_head: bytes):
    assert server.raw(request_head).startswith(b"HTTP/1.1 400")
    assert server.get("/health").status == 200


def test_http_1_0_needs_none(server: HttpServer):
    assert server.raw(b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/api/call", "/api/command", "/queues/a/jobs", "/queues/a/jobs/batch"])
def test_deep_nesting_is_refused(server: HttpServer, path: str):
    deep = b'{"cmd": "PUSH", "queue": "a", "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert server.post(path, deep).status == 400
    assert server.get("/queues").json["data"] == []
