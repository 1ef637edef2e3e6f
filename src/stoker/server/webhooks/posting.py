"""One POST over HTTP/1.1 to a checked address: no redirects, no decoding, bounded in size and time.

It is a small client of its own, because it must connect to exactly the checked address, while the Host header, SNI and
the certificate use the name. Only the status of a response matters.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from stoker.model.errors import StokerError
from stoker.model.version import __version__
from stoker.server.config.tree import WebhookSettings
from stoker.server.webhooks.addresses import Network, Resolve, checked
from stoker.server.webhooks.urls import HookUrl

STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r?\n")
LENGTH: Final = re.compile(rb"\r?\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r?\n", re.IGNORECASE)
CHUNK: Final = 16 * 1024
DRAIN_S: Final = 1.0
"""How long a response may continue after its status, so that an honest receiver is not cut off at its end."""


class PostOutcome(msgspec.Struct, frozen=True):
    """The outcome of an attempt. `error` never repeats what the receiver sent."""

    ok: bool
    status: int = 0
    error: str = ""


class Poster:
    """Posts for all hooks: knows the allowed networks, and limits the attempts under way."""

    def __init__(
        self, settings: WebhookSettings, allow: Sequence[Network], resolve: Resolve, tls: ssl.SSLContext | None = None
    ) -> None:
        self._settings = settings
        self._allow = allow
        self._resolve = resolve
        self._tls = tls
        self._places = asyncio.Semaphore(settings.concurrency)

    async def post(self, target: HookUrl, headers: Mapping[str, str], body: bytes) -> PostOutcome:
        """Make one attempt. Raises nothing except a cancellation."""
        async with self._places:
            try:
                status = await self._attempt(target, request_head(target, headers, len(body)), body)
            except TimeoutError:
                return PostOutcome(False, error=f"timeout: no answer within {self._settings.timeout_s:g} s")
            except StokerError as error:
                return PostOutcome(False, error=error.message)
            except ssl.SSLError as error:
                return PostOutcome(False, error=f"TLS failed: {error.reason or type(error).__name__}")
            except (OSError, ValueError, EOFError) as error:
                return PostOutcome(False, error=f"no connection, or it broke: {type(error).__name__}")
        if 200 <= status < 300:
            return PostOutcome(True, status)
        told = " (redirects are not followed)" if 300 <= status < 400 else ""
        return PostOutcome(False, status, f"the receiver answered {status}{told}")

    async def _attempt(self, target: HookUrl, head: bytes, body: bytes) -> int:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.timeout_s
        async with asyncio.timeout_at(until):
            addresses = await checked(target, self._resolve, self._allow)
            reader, writer = await self._connect(target, addresses)
            try:
                writer.write(head + body)
                await writer.drain()
                status, rest = await self._status(reader)
            except BaseException:
                writer.transport.abort()
                raise
        try:
            async with asyncio.timeout_at(min(until, loop.time() + DRAIN_S)):
                await self._drain(reader, rest)
        except (TimeoutError, OSError):
            pass  # the status is known: the rest changes nothing
        finally:
            writer.transport.abort()
        return status

    async def _connect(
        self, target: HookUrl, addresses: Sequence[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first checked address that answers."""
        tls = self._context() if target.scheme == "https" else None
        for place, address in enumerate(addresses):
            try:
                return await asyncio.open_connection(
                    address,
                    target.port,
                    ssl=tls,
                    server_hostname=target.host if tls is not None else None,
                    limit=CHUNK,
                )
            except ssl.SSLError:
                raise
            except OSError:
                if place == len(addresses) - 1:
                    raise
        raise OSError("no address")

    def _context(self) -> ssl.SSLContext:
        """Made when first needed: reading the system's certificates takes a while."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        return self._tls

    async def _status(self, reader: asyncio.StreamReader) -> tuple[int, int]:
        """The final status, and how many more bytes may be read. Raises `ValueError` for an invalid response."""
        left = self._settings.response_bytes_max
        while True:
            lines: list[bytes] = []
            while not lines or lines[-1] not in (b"\r\n", b"\n"):
                lines.append(await reader.readline())  # ValueError if longer than the reader's limit
                left -= len(lines[-1])
                if not lines[-1].endswith(b"\n") or left < 0:
                    raise ValueError("no whole head")
            found, head = STATUS.fullmatch(lines[0]), b"".join(lines)
            if found is None:
                raise ValueError("not an HTTP/1 response")
            if not found[1].startswith(b"1"):
                told = LENGTH.search(head)
                return int(found[1]), min(left, int(told[1])) if told is not None else left

    async def _drain(self, reader: asyncio.StreamReader, left: int) -> None:
        """Let the response end, unless it is too long."""
        while left > 0:
            piece = await reader.read(min(CHUNK, left))
            if not piece:
                return
            left -= len(piece)


def request_head(target: HookUrl, headers: Mapping[str, str], length: int) -> bytes:
    """The request line and the headers. All values are ours; none may have a line break."""
    lines = [
        f"POST {target.resource} HTTP/1.1",
        f"Host: {target.authority}",
        f"User-Agent: stoker/{__version__}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
        "Accept-Encoding: identity",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    assert not any("\r" in line or "\n" in line for line in lines)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
