"""How the processes of a server, or of a cluster, reach each other: Unix sockets in a directory, or TCP with TLS.

A way makes connections and knows no messages. `links.py` proves on each of them who is at the other end.
"""

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from stoker.brokers.directory_socket import BACKLOG, SocketPath
from stoker.server.config import Tls, tls_context

CONNECT_S = 2.0
KEEPALIVE_S = 5
USER_TIMEOUT_MS = 10_000
"""After this time without an acknowledgement the system gives a connection up."""

MakeLink = Callable[[], asyncio.Protocol]


class Ways(Protocol):
    """The way to the other processes."""

    is_far: bool
    """Whether the other end may be on another machine, so that its silence can mean that it is gone."""

    async def listen(self, make: MakeLink) -> None: ...

    async def connect(self, process: int, make: MakeLink) -> Any:
        """A link that `make` has made, connected to a process. Raises `OSError` if there is no way to it."""
        ...

    def own_certificate(self) -> bytes:
        """The digest of the certificate that this process shows to those who connect. Empty without TLS."""
        ...

    def close(self) -> None: ...


class UnixWays:
    """A socket for each process, in a directory that only processes of the same user may write to."""

    is_far = False

    def __init__(self, directory: str, number: int) -> None:
        self._directory = Path(directory)
        self._place = SocketPath(self._directory, socket_name(number))
        self._others: dict[int, SocketPath] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, make: MakeLink) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(make, sock=self._place.listen(), backlog=BACKLOG)

    async def connect(self, process: int, make: MakeLink) -> Any:
        place = self._others.get(process)
        if place is None:
            place = self._others[process] = SocketPath(self._directory, socket_name(process))
        _, link = await asyncio.get_running_loop().create_unix_connection(make, place.address)
        return link

    def own_certificate(self) -> bytes:
        return b""

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._place.remove()
        for place in (self._place, *self._others.values()):
            place.close()


class TcpWays:
    """Addresses that are told while the process runs: they change when a seat moves to another node."""

    is_far = True

    def __init__(self, listening: socket.socket | None, tls: Tls) -> None:
        """Without a socket that listens, no other process can connect to this one; it connects to them."""
        self._listening = listening
        self._tls = tls
        self.addresses: dict[int, str] = {}
        """`HOST:PORT` of each seat that is held, as far as is known."""
        self._server: asyncio.Server | None = None

    async def listen(self, make: MakeLink) -> None:
        if self._listening is not None:
            loop, tls = asyncio.get_running_loop(), tls_context(self._tls)
            self._server = await loop.create_server(make, sock=self._listening, backlog=BACKLOG, ssl=tls)

    async def connect(self, process: int, make: MakeLink) -> Any:
        host, _, port = self.addresses.get(process, "").rpartition(":")
        if not host:
            raise ConnectionError(f"no node has seat {process}")
        tls = trusting_context() if self._tls.is_on else None
        async with asyncio.timeout(CONNECT_S):
            transport, link = await asyncio.get_running_loop().create_connection(
                make, host.strip("[]"), int(port), ssl=tls, server_hostname="stoker" if tls is not None else None
            )
        notice_silence(transport.get_extra_info("socket"))
        return link

    def own_certificate(self) -> bytes:
        if not self._tls.is_on:
            return b""
        text = Path(self._tls.cert).read_text("ascii")
        first = text[text.index(ssl.PEM_HEADER) : text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).digest()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._listening is not None:
            self._listening.close()


def socket_name(process: int) -> str:
    return f"peer-{process}"


def trusting_context() -> ssl.SSLContext:
    """Takes any certificate: the other end proves with the secret that it is its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def certificate_of(transport: Any) -> bytes:
    """The digest of the certificate that the other end has shown. Empty without TLS."""
    encrypted = transport.get_extra_info("ssl_object")
    shown = encrypted.getpeercert(binary_form=True) if encrypted is not None else None
    return hashlib.sha256(shown).digest() if shown else b""


def notice_silence(connected: Any) -> None:
    """Let the system notice a machine that is gone."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", KEEPALIVE_S), ("TCP_KEEPINTVL", 1), ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
