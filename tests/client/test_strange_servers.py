"""A client at an address with no server, or with something else: it soon raises a coded error with the address."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from stoker.brokers.connect import open_broker
from stoker.brokers.remote.opening import open_remote
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, StokerError, Unknown, Unreachable
from stoker.wire import native
from tests.client.serving import TIMEOUT_S, Behaviour, ServerThread, Stranger, read_all
from tests.ports import kept_port

HURRY = "timeout_s=0.3&connect_timeout_s=0.3&retry_s=0"
"""Behaviours that end in a timeout have to wait for it; the others never do, and may end in one on a busy machine."""
PATIENT = f"timeout_s={TIMEOUT_S}&connect_timeout_s={TIMEOUT_S}&retry_s=0"
"""For whoever has to be heard."""
SCHEMES = ["tcp", "http", "grpc"]
CODECS = ["msgpack", "json"]


def say(answer: bytes) -> Behaviour:
    """Answer the first thing that comes, then wait until the client leaves."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)
        read_all(connection)

    return behave


def say_and_close(answer: bytes) -> Behaviour:
    def behave(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    return behave


def close_at_once(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def dribble(connection: socket.socket) -> None:
    """Always a bit more, never all of it: no single read waits for long."""
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/msgpack\r\ncontent-length: 60000\r\n\r\n")
    connection.settimeout(0.02)
    while True:
        connection.sendall(b"\x00")
        try:
            if not connection.recv(65_536):
                return
        except TimeoutError:
            pass


def trickle(connection: socket.socket) -> None:
    """The same in frames."""
    connection.recv(65_536)
    connection.sendall(b"\x00\x00\xea\x60")
    connection.settimeout(0.02)
    while True:
        connection.sendall(b"\x00")
        try:
            if not connection.recv(65_536):
                return
        except TimeoutError:
            pass


WEB_PAGE = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nhello"
BEHAVIOURS: dict[str, Behaviour] = {
    "never answers": read_all,
    "closes at once": close_at_once,
    "half a frame": say(struct.pack(">I", 100) + b"half"),
    "half a line": say(b'{"ok": tr'),
    "half a frame, then closes": say_and_close(struct.pack(">I", 100) + b"half"),
    "garbage in a frame": say(struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1"),
    "garbage in a line": say(b"hello, who is there?\n"),
    "a frame of nothing": say(struct.pack(">I", 0)),
    "a lying length": say(b"\xff\xff\xff\xff"),
    "a list in a frame": say(struct.pack(">I", 1) + b"\x90"),
    "a web server": say(WEB_PAGE),
    "a web server that closes": say_and_close(WEB_PAGE),
    "a web server with a lying length": say(WEB_PAGE.replace(b"text/html", b"application/msgpack") + b"\x00"),
    "an SMTP server": say(b"220 mail.example ESMTP\r\n"),
    "bytes that dribble": dribble,
    "bytes that trickle": trickle,
    "endless zeros": say(bytes(1_000_000)),
    "deep nesting": say(b'{"ok":true,"body":' + b"[" * 20_000 + b"\n"),
}


def raised_by(url: str) -> tuple[StokerError, StokerError]:
    """What the two kinds of callers get."""
    found: list[StokerError] = []
    broker = open_broker(url)
    with pytest.raises(StokerError) as caught:
        broker.execute("default", c.ListQueues())
    found.append(caught.value)
    with pytest.raises(StokerError) as caught:
        asyncio.run(bounded(broker))
    found.append(caught.value)
    broker.close()
    return found[0], found[1]


async def bounded(broker: Any) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await broker.execute_async("default", c.ListQueues())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_stranger_gives_a_coded_error_with_the_address(name: str, scheme: str, codec: str):
    with Stranger(BEHAVIOURS[name]) as stranger:
        for error in raised_by(f"{scheme}://127.0.0.1:{stranger.port}?codec={codec}&{HURRY}"):
            assert isinstance(error, Unreachable), error
            assert f"{scheme}://127.0.0.1:{stranger.port}" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_there_is_unreachable(scheme: str):
    with kept_port() as port:
        for error in raised_by(f"{scheme}://127.0.0.1:{port}?{HURRY}"):
            assert isinstance(error, Unreachable)
            assert f"{scheme}://127.0.0.1:{port}" in str(error)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 80, "."])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_name_that_leads_nowhere_is_unreachable(scheme: str, host: str):
    for error in raised_by(f"{scheme}://{host}:6789?{HURRY}"):
        assert isinstance(error, Unreachable)
        assert host in str(error)


def test_a_path_without_a_socket_is_unreachable(tmp_path: Any):
    for path in (tmp_path / "socket", tmp_path, tmp_path / ("x" * 200)):
        for error in raised_by(f"unix://{path}?{HURRY}"):
            assert isinstance(error, Unreachable)
            assert str(path) in str(error)


@pytest.mark.parametrize("scheme", ["tcps", "https"])
def test_a_plain_server_where_tls_is_expected_is_unreachable(scheme: str):
    with Stranger(say(WEB_PAGE)) as stranger:
        for error in raised_by(f"{scheme}://127.0.0.1:{stranger.port}?{HURRY}"):
            assert isinstance(error, Unreachable)
            assert str(stranger.port) in str(error)


def test_another_protocol_is_told_apart_from_nobody():
    frame = msgspec.msgpack.encode({"ok": True, "reqId": 1, "body": {"protocol": 99}})
    with Stranger(say(struct.pack(">I", len(frame)) + frame)) as stranger:
        for error in raised_by(f"tcp://127.0.0.1:{stranger.port}?{PATIENT}"):
            assert isinstance(error, InvalidRequest)
            assert "protocol 99" in str(error)
            assert str(stranger.port) in str(error)


def test_a_token_that_no_header_can_hold_is_refused():
    for error in raised_by(f"http://:a%0Ab@127.0.0.1:1?{HURRY}"):
        assert isinstance(error, InvalidRequest)
        assert "token" in str(error)


# --- those that begin well -----------------------------------------------------------------------


def welcome_then(behave: Callable[[socket.socket], None]) -> Behaviour:
    """Greet as a server does, and then behave otherwise."""

    def greeting(connection: socket.socket) -> None:
        request = connection.recv(65_536)
        number = msgspec.msgpack.decode(request[4:]).get("reqId")
        frame = msgspec.msgpack.encode({"ok": True, "reqId": number, "body": {"protocol": native.PROTOCOL}})
        connection.sendall(struct.pack(">I", len(frame)) + frame)
        behave(connection)

    return greeting


LATER: dict[str, Behaviour] = {
    "never answers": read_all,
    "closes": say_and_close(b""),
    "half a frame": say(struct.pack(">I", 100) + b"half"),
    "garbage": say(struct.pack(">I", 4) + b"\xc1\xc1\xc1\xc1"),
    "trickles": trickle,
}


@pytest.mark.parametrize("name", LATER)
def test_a_server_that_goes_wrong_later_leaves_the_outcome_unknown(name: str):
    """An increment must not happen twice, so it is not sent twice."""
    with Stranger(welcome_then(LATER[name])) as stranger:
        url = f"tcp://127.0.0.1:{stranger.port}?timeout_s=0.3&connect_timeout_s={TIMEOUT_S}"
        broker = open_broker(url)
        with pytest.raises(Unknown, match=f"127.0.0.1:{stranger.port}"):
            broker.execute("default", c.KvIncrement("k"))
        with pytest.raises(Unknown, match=f"127.0.0.1:{stranger.port}"):
            asyncio.run(bounded_increment(broker))
        broker.close()
        assert len(stranger.connections) == 2


async def bounded_increment(broker: Any) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        await broker.execute_async("default", c.KvIncrement("k"))


def test_a_reply_that_is_none_does_not_stay_in_the_pool():
    with Stranger(welcome_then(LATER["garbage"])) as stranger:
        broker = open_remote(urlsplit(f"tcp://127.0.0.1:{stranger.port}?{HURRY}"), None)
        with pytest.raises(Unreachable):
            broker.execute("default", c.ListQueues())
        assert not broker._pool._idle
        assert not broker._pool._busy
        broker.close()


# --- name servers --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "http"])
def test_a_name_server_that_says_nothing_costs_no_more_than_the_timeout(scheme: str, monkeypatch: pytest.MonkeyPatch):
    """The one part that is not real: no test can count on a name server that keeps silent."""
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: answered.wait(TIMEOUT_S) and [])
    broker = open_broker(f"{scheme}://queue.example:6789?{HURRY}")
    with pytest.raises(Unreachable, match=r"queue\.example.*name server"):
        broker.execute("default", c.ListQueues())
    answered.set()
    broker.close()


def test_the_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch):
    with ServerThread() as server, kept_port() as nobody:
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", nobody)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *asked, **more: found)
        broker = open_broker(f"tcp://queue.example:6789?{PATIENT}")
        assert broker.execute("default", c.ListQueues()).names == []
        broker.close()
