"""One HTTP request: who asks, whether a browser was tricked into asking, and the request's content.

An identity belongs to one request, because HTTP connections have no identity. Nothing here knows what is asked.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from stoker.model import commands as c
from stoker.model.command_table import WITH_OPTIONS, Permission
from stoker.model.errors import Forbidden, InvalidRequest, Unauthenticated
from stoker.model.traces import carried, from_headers
from stoker.server.auth.identity import Identity
from stoker.server.config.addresses import is_loopback
from stoker.server.http.protocol import answer_whole
from stoker.server.http.responses import Send, TooLarge, TooSlow
from stoker.server.service import FORWARDED, Service

Receive = Callable[[], Awaitable[Any]]

HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/@]+))(?::[0-9]{1,5})?")
"""The Host header: an IPv6 address in brackets, or a name or an IPv4 address, and perhaps a port."""
FORWARDED_HEADERS = tuple(name.encode() for name in FORWARDED)
SAME_SITE = (b"same-origin", b"none")
TENANT = b"stoker-tenant"
ENTITLEMENT = b"stoker-entitlement"
"""The header with an entitlement for this request."""


class HttpRequest:
    """One request and its response."""

    __slots__ = (
        "_identity",
        "_send",
        "headers",
        "method",
        "parameters",
        "path",
        "receive",
        "scope",
        "service",
        "status",
    )

    def __init__(self, service: Service, scope: Any, receive: Receive, send: Send) -> None:
        self.service = service
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope.get("method", "GET")
        self.path: str = scope["path"]
        self.receive = receive
        self._send = send
        self._identity: Identity | None = None
        self.status = 0
        """The response's status, once it has begun."""
        self.parameters: dict[str, str] = {}
        """From the path."""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    def answer_whole(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
        """Write a whole response at once, if possible. Returns whether it was."""
        self.status = status
        return answer_whole(self._send, status, body, headers)

    # --- the client ----------------------------------------------------------------------------------

    @property
    def is_loopback(self) -> bool:
        """Whether the client is on this machine, as far as can be known."""
        headers = self.headers
        connection = self.scope.get("connection")
        near = connection.loopback if connection is not None else is_near(self.scope)
        return self.service.config.insecure or (near and not any(name in headers for name in FORWARDED_HEADERS))

    def identify(self, *, in_query: bool = False, in_session: str | None = None) -> Identity:
        """`in_query`: for readers of events, which cannot always send a header. `in_session`: the token that a browser
        has logged in with, for the dashboard's pages alone.
        """
        given = self.headers.get(b"authorization")
        credential: str | None = None
        if given is not None:
            credential = credential_of(given)
        elif in_query:
            credential = self.query().get("token")
        else:
            credential = in_session
        service, entitlement = self.service, self.headers.get(ENTITLEMENT)
        if not service.gate.configured and not service.config.insecure:
            self._check_host()
        self._identity = service.identify(
            credential,
            loopback=self.is_loopback,
            entitlement=None if entitlement is None else entitlement.decode("latin-1"),
        )
        connection = self.scope.get("connection")
        if connection is not None:
            connection.know()
        return self._identity

    def admit(self, identity: Identity, permission: Permission, command: c.Command[Any] | None = None) -> str:
        """The tenant to act for."""
        return self.service.admit(identity, permission, self.tenant_asked, command)

    @property
    def tenant_asked(self) -> str | None:
        """The tenant that the request names in its headers."""
        named = self.headers.get(TENANT)
        return named.decode("latin-1") if named is not None else None

    def _check_host(self) -> None:
        """Without authentication, a page of another site must not reach this server through a host name of its own."""
        host = self.headers.get(b"host")
        if host is None:  # HTTP/1.0, which no browser speaks
            return
        name = host_name(host)
        server = self.scope.get("server") or ("", 0)
        if name != "localhost" and not is_loopback(name) and name != str(server[0]):
            raise Forbidden(
                "this server has no tokens and so answers only to localhost: configure tokens to use other names"
            )

    # --- browser checks ------------------------------------------------------------------------------

    def check_origin(self) -> None:
        """Refuse a request that another site made a browser send: it would have this machine's rights."""
        headers = self.headers
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1") in self.service.config.http.origins:
            return
        site = headers.get(b"sec-fetch-site")
        if site is not None and site.lower() not in SAME_SITE:
            raise Forbidden("cross-site request: another site's page may not change anything here")
        if origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
            raise Forbidden("cross-origin request: another site's page may not change anything here")

    def check_deliberate(self) -> None:
        """The one GET with an effect: only for programs, not for navigation or images in a page."""
        self.check_origin()
        headers = self.headers
        accept = headers.get(b"accept", b"*/*")
        navigates = headers.get(b"sec-fetch-mode", b"") in (b"navigate", b"no-cors") or b"purpose" in headers
        if navigates or b"sec-purpose" in headers or b"text/html" in accept or accept.startswith(b"image/"):
            raise Forbidden("a page cannot pull jobs: send POST /queues/{queue}/pull, from a program")

    # --- content -------------------------------------------------------------------------------------

    def query(self) -> dict[str, str]:
        """The parameters after `?`. A duplicate is ambiguous, and refused."""
        text = self.scope["query_string"]
        if not text:
            return {}
        try:
            pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
        except ValueError as error:
            raise InvalidRequest(f"invalid query: {error}") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise InvalidRequest("invalid query: a parameter is there twice")
        return found

    @property
    def trace(self) -> str | None:
        """The trace of the request (W3C's `traceparent`), for the jobs that it pushes."""
        given = self.headers.get(b"traceparent")
        if given is None:
            return None
        return from_headers(given.decode("latin-1"), self.headers.get(b"tracestate", b"").decode("latin-1"))

    async def body(self) -> bytes:
        """The whole body, within the limits for size and time."""
        limit = self.service.config.server.http_body_bytes_max
        told = self.headers.get(b"content-length")
        if told is not None and told.isdigit() and int(told) > limit:
            raise TooLarge(f"the body has {int(told)} bytes: the limit is {limit}")
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            piece: bytes = message["body"]
            if len(piece) > limit:
                raise TooLarge(f"the body has {len(piece)} bytes: the limit is {limit}")
            return piece
        return await self._rest(message, limit)

    async def _rest(self, message: Any, limit: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.service.config.server.frame_s):
                while True:
                    if message["type"] != "http.request":
                        raise ClientLeft
                    pieces.append(message["body"])
                    size += len(pieces[-1])
                    if size > limit:
                        raise TooLarge(f"the body has more than {limit} bytes, which is the limit")
                    if not message.get("more_body"):
                        return b"".join(pieces)
                    message = await self.receive()
        except TimeoutError:
            raise TooSlow("timeout: the body of this request did not come in time") from None

    # --- waiting for a reply -------------------------------------------------------------------------

    async def carry_out(self, tenant: str, command: c.Command[Any]) -> Any:
        """The reply of a command. Raises `StokerError`, or `ClientLeft` when the client has left meanwhile."""
        if type(command) in WITH_OPTIONS and (trace := self.trace) is not None:
            command = carried(command, trace)
        reply = await self.service.call(tenant, command, self._identity, self._reply_or_leave)
        if type(command) is c.Pull and self.is_gone:
            self.service.dispatcher.return_unsent(tenant, command, reply)
            raise ClientLeft
        return reply

    async def _reply_or_leave(self, future: "asyncio.Future[Any]") -> Any:
        """Wait for a reply, unless the client leaves first."""
        leaving = asyncio.ensure_future(self.until_left())
        try:
            await asyncio.wait((future, leaving), return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            raise ClientLeft
        finally:
            leaving.cancel()

    async def until_left(self) -> None:
        """Wait until the client has closed its connection."""
        while (await self.receive())["type"] == "http.request":
            pass

    @property
    def is_gone(self) -> bool:
        connection = self.scope.get("connection")
        return connection is not None and bool(connection.is_gone)


class ClientLeft(Exception):
    """The client has left: there is no connection to answer on."""


def credential_of(header: bytes) -> str:
    """The token in `Authorization`. `Basic` is for senders that can only put a password into a URL."""
    kind, _, rest = header.partition(b" ")
    rest = rest.strip()
    if kind.lower() == b"bearer" and rest:
        return rest.decode("latin-1")
    if kind.lower() == b"basic":
        try:
            return base64.b64decode(rest, validate=True).decode("latin-1").partition(":")[2]
        except (binascii.Error, ValueError):
            pass
    raise Unauthenticated("authentication failed: expected `Authorization: Bearer TOKEN`")


def host_name(host: bytes) -> str:
    """A Host header without its port. Empty if it is malformed."""
    found = HOST.fullmatch(host)
    return (found[1] or found[2]).decode("latin-1").lower() if found is not None else ""


def is_near(scope: Any) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback(str(client[0]))


def convert(text: Any, kind: Any, name: str) -> Any:
    """Convert a URL parameter to its type."""
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"invalid parameter {name}: {error}") from None
