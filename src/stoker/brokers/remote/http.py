"""Connections to a server over HTTP: native requests as bodies of `POST /api/call`, the token in a header.

Only the standard library: `http.client` for threads, and for event loops a small pool of HTTP/1.1 connections, each
with one request at a time. A request that is given up closes its connection, by which the server learns of it.
"""

import asyncio
import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import msgspec

from stoker.brokers.remote.broker import heard
from stoker.brokers.remote.forking import leave_to_parent
from stoker.brokers.remote.links import (
    NOT_OURS,
    REPLY_BYTES_MAX,
    AsyncLink,
    BlockingLink,
    LinkLost,
    ReplyFuture,
    check_welcome,
    connected_to,
    greet,
    greeted,
    read_head,
    tls_context,
    unreachable,
)
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.model import commands as c
from stoker.model.errors import InvalidRequest, Unknown
from stoker.model.unreceived import release_of
from stoker.wire import native

PATH = "/api/call"
READ_BYTES = 1024 * 1024
KINDS = {"json": "application/json", "msgpack": "application/msgpack"}


class HttpLinks:
    """Over HTTP and HTTPS."""

    def connect(self, address: ServerAddress, settings: RemoteSettings) -> BlockingLink:
        return ClientLink(address, settings)

    async def connect_async(
        self, address: ServerAddress, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]"
    ) -> AsyncLink:
        return await greeted(PoolLink(address, settings, lost), address, settings)


def headers_for(settings: RemoteSettings) -> dict[str, str]:
    found = {"Content-Type": KINDS[settings.codec]}
    if settings.token is not None:
        if not (settings.token.isascii() and settings.token.isprintable()):
            raise InvalidRequest("invalid token: expected printable ASCII, as in a header; is the end of a line in it?")
        found["Authorization"] = f"Bearer {settings.token}"
    return found


def check_answer(kind: str, status: int, settings: RemoteSettings) -> None:
    """What has not our type was not said by our server: a proxy on the way, or something else at this address."""
    if kind.partition(";")[0].strip() != KINDS[settings.codec]:
        raise LinkLost(f"{NOT_OURS} (HTTP status {status}, {kind or 'no type'})", sent=True)


# --- for threads ---------------------------------------------------------------------------------


class ClientLink:
    """A blocking connection with one request at a time."""

    def __init__(self, address: ServerAddress, settings: RemoteSettings) -> None:
        self._settings = settings
        self._headers = headers_for(settings)
        try:
            self._http = http.client.HTTPConnection(address.host, address.port)
        except http.client.HTTPException as error:
            raise unreachable(address, error) from None
        self._deadline = 0.0
        self._http.auto_open = 0  # what was closed stays closed
        self._http.response_class = self._response  # type: ignore[assignment]
        try:
            self._http.sock = connected_to(address, settings)
            bare = msgspec.structs.replace(settings, token=None)  # it is in the header
            check_welcome(self.call(greet(bare), settings.connect_timeout_s), address, settings.codec)
        except (OSError, ValueError, http.client.HTTPException, LinkLost) as error:
            self.close()
            raise unreachable(address, error) from None
        except BaseException:
            self.close()
            raise

    def _response(self, connected: socket.socket, *more: Any, **named: Any) -> http.client.HTTPResponse:
        timed: Any = Timed(connected, self._deadline)
        return http.client.HTTPResponse(timed, *more, **named)

    def call(self, body: bytes, timeout_s: float) -> bytes:
        connected = self._http.sock
        if connected is None:
            raise LinkLost("this connection was closed", sent=False)
        sent = False
        try:
            self._deadline = time.monotonic() + timeout_s
            connected.settimeout(timeout_s)
            sent = True  # a part of it may arrive even if sending fails
            self._http.request("POST", PATH, body, self._headers)
            answer = self._http.getresponse()
            check_answer(answer.headers.get("content-type", ""), answer.status, self._settings)
            if (answer.length or 0) > REPLY_BYTES_MAX:
                raise LinkLost(f"{NOT_OURS} (a reply of {answer.length} bytes)", sent=True)
            return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise LinkLost(str(error) or type(error).__name__, sent=sent) from None
        except (ValueError, AttributeError) as error:  # closed by another thread in the middle, or no HTTP at all
            raise LinkLost(f"the connection was closed ({error})", sent=sent) from None

    @property
    def is_alive(self) -> bool:
        """Whether the server has not closed it meanwhile. Nothing is due to be read on an idle connection."""
        connected = self._http.sock
        if connected is None:
            return False
        try:
            connected.setblocking(False)
            connected.recv(1)
            return False
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False

    def close(self) -> None:
        connected = self._http.sock
        if connected is not None:
            try:
                connected.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a reply
            except OSError:
                pass
        self._http.close()

    def forget(self) -> None:
        self._http.close()


class Timed(io.RawIOBase):
    """What a socket brings until a deadline: bytes that trickle in have no more time than those that come at once."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket = connected
        self._raw: Any = connected.makefile("rb", buffering=0)
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        """As `http.client` asks a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)
        return self._raw.readinto(buffer)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._raw.close()
        super().close()


# --- for event loops -----------------------------------------------------------------------------


class Wire:
    """One connection of a pool."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.can_stay = True
        """Whether another request may follow."""

    @property
    def is_idle(self) -> bool:
        return self.can_stay and not self._writer.is_closing() and not self._reader.at_eof()

    async def exchange(self, request: bytes) -> tuple[int, str, bytes]:
        """Send a request: the status, the type and the body of its answer."""
        self._writer.write(request)
        await self._writer.drain()
        head = await self._reader.readuntil(b"\r\n\r\n")
        line, *lines = head[:-4].decode("latin-1").split("\r\n")
        status = int(line.split(" ", 2)[1])
        fields = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        if fields.get("connection", "").lower() == "close" or line.startswith("HTTP/1.0"):
            self.can_stay = False
        return status, fields.get("content-type", ""), await self._body(fields)

    async def _body(self, fields: dict[str, str]) -> bytes:
        if "content-length" in fields:
            return await self._reader.readexactly(int(fields["content-length"]))
        if fields.get("transfer-encoding", "").lower() != "chunked":
            self.can_stay = False
            return await self._reader.read()
        pieces: list[bytes] = []
        while True:
            size = int((await self._reader.readline()).split(b";")[0], 16)
            if not size:
                while (await self._reader.readline()).strip():
                    pass  # trailers
                return b"".join(pieces)
            pieces.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)

    def stop_asking(self) -> None:
        """Tell the server that the caller no longer waits; what it has sent already can still be read."""
        self.can_stay = False
        if self._writer.can_write_eof():
            self._writer.write_eof()
        else:
            self._writer.close()

    def close(self) -> None:
        self._writer.transport.abort()

    def forget(self) -> None:
        connected = self._writer.get_extra_info("socket")
        if connected is not None and connected.fileno() >= 0:
            leave_to_parent(connected.fileno())


class PoolLink:
    """Any number of requests at once, each on a connection of its own."""

    def __init__(self, address: ServerAddress, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._address, self._settings = address, settings
        self._lost = lost
        self._tls = tls_context(settings) if address.is_encrypted else None
        self._idle: list[Wire] = []
        self._busy: set[Wire] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Semaphore(settings.connections_max)
        """How many may be opened at once: a burst is not a storm."""
        self._head = self._make_head()
        self.is_alive = True

    def _make_head(self) -> bytes:
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        lines = [f"POST {PATH} HTTP/1.1", f"Host: {host}:{self._address.port}"]
        lines += [f"{name}: {value}" for name, value in headers_for(self._settings).items()]
        return "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")

    def call(self, request: native.NativeRequest) -> "asyncio.Future[native.ReplyHead]":
        body = native.encoded(request, self._settings.codec)
        future: asyncio.Future[native.ReplyHead] = self._loop.create_future()
        task = self._loop.create_task(self._carry(request, body, future))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return future

    def let_go(self, future: ReplyFuture) -> tuple[int, ReplyFuture] | None:
        return None

    def given_up(self, number: int) -> None:
        """It has no numbers."""

    def close(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self._lost(self)
        for wire in (*self._idle, *self._busy):
            wire.close()
        self._idle.clear()
        for task in self._tasks:
            task.cancel()

    def forget(self) -> None:
        for wire in (*self._idle, *self._busy):
            wire.forget()

    async def _carry(
        self, request: native.NativeRequest, body: bytes, future: "asyncio.Future[native.ReplyHead]"
    ) -> None:
        """From the request to its reply. Cancelling the future gives the request up."""
        sent = False
        wire: Wire | None = None
        try:
            wire = await self._take()
            self._busy.add(wire)
            if future.cancelled():
                self._give_back(wire)
                return
            sent = True
            future.add_done_callback(lambda done: wire.stop_asking() if done.cancelled() else None)
            head = await self._ask(wire, body)
        except asyncio.CancelledError:
            self._fail(future, LinkLost("this connection was closed", sent=sent))
            self._drop(wire)
            raise
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, LinkLost) as error:
            self._fail(future, LinkLost(str(error) or type(error).__name__, sent=sent))
            self._drop(wire)
        except Exception as error:
            self._fail(future, Unknown(f"the server's answer to {request.cmd} cannot be read: {error}"))
            self._drop(wire)
        else:
            self._give_back(wire)
            if not future.done():
                future.set_result(head)
            else:
                self._return(request, head)

    async def _ask(self, wire: Wire, body: bytes) -> native.ReplyHead:
        status, kind, frame = await wire.exchange(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        check_answer(kind, status, self._settings)
        return read_head(frame, self._settings.codec)

    def _return(self, request: native.NativeRequest, head: native.ReplyHead) -> None:
        """Jobs that came after all go back, as if never pulled."""
        if not head.ok or type(request.body) is not c.Pull or not self.is_alive:
            return
        back = release_of(request.body, native.reply(head, c.Pull, self._settings.codec))
        if back is not None:
            self.call(native.NativeRequest(native.NAMES[c.Release], back, None, request.tenant)).add_done_callback(
                heard
            )

    # --- the pool ------------------------------------------------------------------------------------

    async def _take(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_idle:
                return wire
            wire.close()
        async with self._opening, asyncio.timeout(self._settings.connect_timeout_s):
            address = self._address
            name = address.host if self._tls is not None else None
            reader, writer = await asyncio.open_connection(
                address.ip or address.host, address.port, ssl=self._tls, server_hostname=name, limit=READ_BYTES
            )
        return Wire(reader, writer)

    def _give_back(self, wire: Wire) -> None:
        self._busy.discard(wire)
        if self.is_alive and wire.is_idle and len(self._idle) < self._settings.connections_max:
            self._idle.append(wire)
        else:
            wire.close()

    def _drop(self, wire: Wire | None) -> None:
        if wire is not None:
            self._busy.discard(wire)
            wire.close()

    @staticmethod
    def _fail(future: "asyncio.Future[native.ReplyHead]", error: Exception) -> None:
        if not future.done():
            future.set_exception(error)
