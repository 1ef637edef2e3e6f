"""S11: whatever a receiver answers, it costs bounded time and memory, and only its status is believed."""

import asyncio
import gzip
import socket
import ssl
from pathlib import Path

import pytest

from stoker.server.webhooks.addresses import networks
from stoker.server.webhooks.posting import Poster, PostOutcome
from stoker.server.webhooks.urls import parse
from tests.security.webhooks_support import certificate
from tests.webhooks.support import LOOPBACK, Got, Receiver, Respond, answering, run, settings

OK_HEAD = b"HTTP/1.1 200 OK\r\n"
MIB = 1024 * 1024


async def by_address(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def post_to(respond: Respond, **given: float) -> tuple[PostOutcome, Receiver]:
    async with Receiver(respond) as receiver:
        poster = Poster(settings(**given), networks(LOOPBACK), by_address)
        return await poster.post(parse(receiver.url()), {}, b"{}"), receiver


def writing(*pieces: bytes) -> Respond:
    async def respond(got: Got, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return respond


@pytest.mark.parametrize(
    "answer",
    [
        OK_HEAD + b"\r\n",
        OK_HEAD + b"Content-Length: 2\r\n\r\nok",
        b"HTTP/1.0 204 \r\n\r\n",
        b"HTTP/1.1 201\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n",
        OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK_HEAD + b"Content-Length: 999999999999999999\r\n\r\nshort",
        OK_HEAD + b"Content-Length: -5\r\n\r\n",
    ],
)
def test_an_answer_with_a_good_status_is_success(answer: bytes):
    """The positive control."""
    outcome, _ = run(post_to(writing(answer)))
    assert outcome.ok


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 +200 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"200 OK\r\n\r\n",
        b"\x00" * 100,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_a_failure(answer: bytes):
    outcome, _ = run(post_to(writing(answer)))
    assert not outcome.ok
    assert outcome.status == 0


def test_a_giant_body_is_not_read():
    sent = 0

    async def giant(got: Got, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(OK_HEAD + b"\r\n")
        for _ in range(512):
            writer.write(b"x" * MIB)
            await writer.drain()
            sent += 1

    outcome, _ = run(post_to(giant, response_bytes_max=64 * 1024))
    assert outcome.ok
    assert sent < 64  # what sockets hold; the rest found nobody who reads


@pytest.mark.parametrize("line", [b"X-Endless: y\r\n" * 100, b"X" * 1_000])
def test_an_endless_head_is_a_failure(line: bytes):
    async def endless(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(OK_HEAD)
        while True:
            writer.write(line)
            await writer.drain()

    outcome, _ = run(post_to(endless))
    assert not outcome.ok


def test_endless_early_hints_are_a_failure():
    async def endless(got: Got, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)
            await writer.drain()

    outcome, _ = run(post_to(endless))
    assert not outcome.ok


def test_a_head_that_trickles_in_runs_into_the_time_limit():
    async def trickle(got: Got, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"H")
            await asyncio.sleep(0.01)

    outcome, _ = run(post_to(trickle, timeout_s=0.2))
    assert not outcome.ok
    assert outcome.error == "timeout: no answer within 0.2 s"


def test_a_body_that_never_ends_does_not_undo_the_answer():
    async def never_ending(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(OK_HEAD + b"\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    outcome, _ = run(post_to(never_ending, timeout_s=3.0))
    assert outcome.ok


def test_a_receiver_that_takes_the_connection_and_says_nothing_runs_into_the_time_limit():
    async def silent(got: Got, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    outcome, _ = run(post_to(silent, timeout_s=0.2))
    assert "timeout" in outcome.error


def test_a_receiver_that_does_not_read_runs_into_the_time_limit():
    async def claim() -> PostOutcome:
        with socket.create_server(("127.0.0.1", 0)) as deaf:  # the kernel takes the connection, and nobody else does
            poster = Poster(settings(timeout_s=0.3), networks(LOOPBACK), by_address)
            return await poster.post(parse(f"http://127.0.0.1:{deaf.getsockname()[1]}/"), {}, b"x" * (64 * MIB))

    assert "timeout" in run(claim()).error


def test_a_slow_resolver_runs_into_the_time_limit():
    async def claim() -> PostOutcome:
        async def slow(host: str, port: int) -> list[str]:
            await asyncio.Event().wait()
            return []

        poster = Poster(settings(timeout_s=0.1), networks(LOOPBACK), slow)
        return await poster.post(parse("http://slow.example/"), {}, b"{}")

    assert "timeout" in run(claim()).error


def test_a_closed_port_and_an_unknown_name_are_failures():
    async def claim() -> None:
        async def unknown(host: str, port: int) -> list[str]:
            raise OSError("no such name")

        async with Receiver() as receiver:
            port = receiver.port
        poster = Poster(settings(), networks(LOOPBACK), unknown)
        assert not (await poster.post(parse(f"http://127.0.0.1:{port}/"), {}, b"{}")).ok
        assert not (await poster.post(parse("http://unknown.example/"), {}, b"{}")).ok

    run(claim())


def test_a_compressed_answer_is_asked_not_to_come_and_never_unpacked():
    bomb = gzip.compress(b"\x00" * (8 * MIB))
    outcome, receiver = run(post_to(writing(OK_HEAD + b"Content-Encoding: gzip\r\n\r\n" + bomb)))
    assert outcome.ok
    assert receiver.got[0].headers["accept-encoding"] == "identity"


def test_what_a_receiver_says_is_never_repeated():
    outcome, _ = run(post_to(writing(b"HTTP/1.1 500 canary-of-the-inside\r\n\r\ncanary-of-the-inside")))
    assert "canary" not in outcome.error


# --- TLS -------------------------------------------------------------------------------------------


async def post_over_tls(tmp_path: Path, host: str, *, trusted: bool = True, name: str = "hooks.example") -> PostOutcome:
    """To a receiver whose certificate is for `name`, as `host`."""
    cert, key = certificate(tmp_path, name)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    asked: list[str | None] = []
    serving.sni_callback = lambda _socket, server_name, _context: asked.append(server_name)
    client = ssl.create_default_context(cafile=str(cert) if trusted else None)
    receiver = Receiver(answering())
    server = await asyncio.start_server(receiver._serve, "127.0.0.1", 0, ssl=serving)
    async with server:
        port = server.sockets[0].getsockname()[1]
        poster = Poster(settings(), networks(LOOPBACK), by_address, client)
        outcome = await poster.post(parse(f"https://{host}:{port}/x"), {}, b"{}")
    assert outcome.ok == bool(receiver.got)
    if outcome.ok:
        assert asked == [host]
        assert receiver.got[0].headers["host"] == f"{host}:{port}"
    return outcome


def test_the_certificate_is_checked_against_the_name_though_an_address_is_called(tmp_path: Path):
    """The positive control."""
    assert run(post_over_tls(tmp_path, "hooks.example")).ok


def test_a_certificate_for_another_name_is_refused(tmp_path: Path):
    outcome = run(post_over_tls(tmp_path, "other.example"))
    assert not outcome.ok
    assert "TLS failed" in outcome.error


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path):
    assert "TLS failed" in run(post_over_tls(tmp_path, "hooks.example", trusted=False)).error


def test_a_receiver_that_speaks_no_tls_is_a_failure():
    async def claim() -> PostOutcome:
        async with Receiver() as receiver:
            poster = Poster(settings(timeout_s=0.3), networks(LOOPBACK), by_address)
            return await poster.post(parse(f"https://127.0.0.1:{receiver.port}/"), {}, b"{}")

    assert not run(claim()).ok
