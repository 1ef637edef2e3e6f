"""Connections to a server: for threads, which block, and for event loops, which must not.

A link carries requests there and replies back, and knows nothing of what they mean. When it breaks it says whether
the request can have arrived. Here are those over TCP and Unix sockets; each other transport has a file of its own.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from stoker.brokers.remote import name_lookup
from stoker.brokers.remote.forking import leave_to_parent
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.model.errors import InvalidRequest, StokerError, Unknown, Unreachable
from stoker.wire import native
from stoker.wire.frames import LENGTH, Codec, Frames, framed

READ_BYTES = 256 * 1024
CHUNK_BYTES = 16 * 1024
"""What a blocking link asks the socket for, before it knows how long the reply is. Python allocates all of it for each
read. From 128 KiB on, glibc asks the kernel for the memory and gives it back each time: ten threads then made a third
of the pushes, at four times the CPU time.
"""
REPLY_BYTES_MAX = 1 << 31
WELCOME_BYTES_MAX = 64 * 1024
"""The longest answer to the greeting. A longer one is not from a Stoker server; its length is other text."""
NOT_OURS = "what answers there is not a Stoker server, or not one for this scheme"


ReplyFuture = asyncio.Future[native.ReplyHead]


class LinkLost(Exception):
    """The connection broke; `sent` says whether the server can have got the request."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class BlockingLink(Protocol):
    """A connection for one thread at a time."""

    @property
    def is_alive(self) -> bool:
        """Whether it can be used again: asked after it was idle."""
        ...

    def call(self, body: bytes, timeout_s: float) -> bytes:
        """Send an encoded request and wait for the encoded reply. Raises `LinkLost`."""
        ...

    def close(self) -> None:
        """Also from another thread: it wakes the thread that waits for a reply."""
        ...

    def forget(self) -> None:
        """In a forked process: the connection is the parent's alone. The other side hears nothing of it."""
        ...


class AsyncLink(Protocol):
    """A connection for one event loop, with any number of requests at once."""

    @property
    def is_alive(self) -> bool: ...

    def call(self, request: native.NativeRequest) -> "ReplyFuture":
        """Send a request; the future brings the head of its reply, or `LinkLost`."""
        ...

    def let_go(self, future: "ReplyFuture") -> "tuple[int, ReplyFuture] | None":
        """The caller of a request has left, and its future is cancelled. Returns the number by which the server knows
        the request, and a future for the reply that may come all the same.

        None where the transport itself tells the server, and when the request has ended.
        """
        ...

    def given_up(self, number: int) -> None:
        """The server has given a request up: no reply will come."""
        ...

    def close(self) -> None: ...

    def forget(self) -> None:
        """In a forked process: the connection is the parent's alone."""
        ...


class TransportLinks(Protocol):
    """How one transport makes connections. Both raise `Unreachable`, or what the server said to the greeting."""

    def connect(self, address: ServerAddress, settings: RemoteSettings) -> BlockingLink: ...

    async def connect_async(
        self, address: ServerAddress, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]"
    ) -> AsyncLink:
        """`lost` is called once, when the link is of no more use."""
        ...


class StreamLinks:
    """Over TCP and Unix sockets."""

    def connect(self, address: ServerAddress, settings: RemoteSettings) -> BlockingLink:
        return SocketLink(address, settings)

    async def connect_async(
        self, address: ServerAddress, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]"
    ) -> AsyncLink:
        return await StreamLink.connect(address, settings, lost)


def framing_of(codec: Codec) -> str:
    return "lines" if codec == "json" else "lengths"


def greet(settings: RemoteSettings) -> bytes:
    """The first request of a connection."""
    greeting = native.NativeHello(token=settings.token, client="python", tokens=False, ranges=True)
    return native.FORMATS[settings.codec].encode(native.NativeRequest("hello", greeting))  # type: ignore[no-any-return]


def read_head(frame: bytes, codec: Codec) -> native.ReplyHead:
    """What every reply begins with. Raises `LinkLost` if these bytes are no reply."""
    try:
        return native.open_head(frame, codec)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise LinkLost(f"{NOT_OURS} (a reply that cannot be read: {error})", sent=True) from None


def check_welcome(frame: bytes, address: ServerAddress, codec: Codec) -> None:
    check_head(read_head(frame, codec), address, codec)


def check_head(head: native.ReplyHead, address: ServerAddress, codec: Codec) -> None:
    """Raises what the server says, or that it speaks another protocol than we do."""
    if not head.ok:
        raise native.error_of(head)
    theirs = native.protocol_of(head, codec)
    if theirs != native.PROTOCOL:
        raise InvalidRequest(
            f"{address} speaks protocol {theirs}, and this release of Stoker {native.PROTOCOL}: use the same"
            " release on both sides"
        )


async def greeted(link: AsyncLink, address: ServerAddress, settings: RemoteSettings) -> AsyncLink:
    """A link whose greeting is a request like any other, once the server has answered it; else it is closed."""
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            head = await link.call(native.NativeRequest("hello", native.NativeHello(client="python", tokens=False)))
        check_head(head, address, settings.codec)
    except BaseException as error:
        link.close()
        if isinstance(error, OSError | LinkLost):
            raise unreachable(address, error) from None
        raise
    return link


def tls_context(settings: RemoteSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca)
        if settings.cert is not None:
            context.load_cert_chain(settings.cert, settings.key)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"TLS cannot use {settings.ca or ''} {settings.cert or ''}: {error}") from None
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def unreachable(address: ServerAddress, error: Exception) -> Unreachable:
    why = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
    if not why.isprintable():  # what another protocol said there
        why = NOT_OURS
    return Unreachable(f"no server answers at {address}: {why}; is it running, and is the address right?")


# --- for threads ---------------------------------------------------------------------------------


def connected_to(address: ServerAddress, settings: RemoteSettings) -> socket.socket:
    """A socket to where a server should be, encrypted if the address says so. Raises `OSError` or `ValueError`."""
    if address.scheme == "unix":
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        plain.settimeout(settings.connect_timeout_s)
        try:
            plain.connect(address.host)
        except BaseException:
            plain.close()
            raise
        return plain
    plain = name_lookup.connect(address.ip or address.host, address.port, settings.connect_timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.is_encrypted:
            return tls_context(settings).wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise
    return plain


class SocketLink:
    """A blocking connection with one request at a time."""

    def __init__(self, address: ServerAddress, settings: RemoteSettings) -> None:
        self._codec = settings.codec
        self._left = b""
        self._bytes_max = WELCOME_BYTES_MAX
        self._deadline = 0.0
        self._timeout_s = -1.0
        """What the socket was told last: telling it again is a call of the system."""
        try:
            self._socket = connected_to(address, settings)
        except (OSError, ValueError) as error:  # a name that cannot be one is a ValueError
            raise unreachable(address, error) from None
        try:
            check_welcome(self.call(greet(settings), settings.connect_timeout_s), address, self._codec)
            self._bytes_max = REPLY_BYTES_MAX
        except LinkLost as error:
            self.close()
            raise unreachable(address, error) from None
        except BaseException:
            self.close()
            raise

    def call(self, body: bytes, timeout_s: float) -> bytes:
        """Send a request and wait for its reply."""
        sent = False
        try:
            self._deadline = time.monotonic() + timeout_s
            if timeout_s != self._timeout_s:
                self._socket.settimeout(timeout_s)
                self._timeout_s = timeout_s
            frame = framed(body, framing_of(self._codec))
            sent = True  # a part of it may arrive even if sending fails
            self._socket.sendall(frame)
            return self._read_line() if self._codec == "json" else self._read_frame()
        except OSError as error:
            raise LinkLost(str(error) or type(error).__name__, sent=sent) from None

    def _read_frame(self) -> bytes:
        got = self._more(self._left)
        while len(got) < 4:
            self._hurry()
            got = self._more(got)
        needed = self._checked(LENGTH.unpack_from(got)[0]) + 4
        if len(got) < needed:
            whole = bytearray(needed)
            whole[: len(got)] = got
            view, at = memoryview(whole), len(got)
            while at < needed:
                self._hurry()
                count = self._socket.recv_into(view[at:])
                if not count:
                    raise LinkLost("the server closed the connection", sent=True)
                at += count
            self._left = b""
            return bytes(view[4:])
        self._left = got[needed:]
        return got[4:needed]

    def _read_line(self) -> bytes:
        parts = [self._left]
        size = 0
        while b"\n" not in parts[-1]:
            parts.append(self._more(b""))
            size = self._checked(size + len(parts[-1]))
            self._hurry()
        line, _, self._left = b"".join(parts).partition(b"\n")
        return line

    def _hurry(self) -> None:
        """What comes in pieces has no more time than what comes at once."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)
        self._timeout_s = -1.0

    def _checked(self, size: int) -> int:
        if size > self._bytes_max:
            raise LinkLost(f"{NOT_OURS} (a reply of {size} bytes and more)", sent=True)
        return size

    def _more(self, got: bytes) -> bytes:
        chunk = self._socket.recv(CHUNK_BYTES)
        if not chunk:
            raise LinkLost("the server closed the connection", sent=True)
        return got + chunk if got else chunk

    @property
    def is_alive(self) -> bool:
        """Whether the server has not closed it meanwhile. Nothing is due to be read on an idle connection."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._timeout_s = -1.0
                self._socket.setblocking(False)
                self._socket.recv(1)
            else:
                os.read(self._socket.fileno(), 1)  # a socket with a timeout does not block by itself
            return False
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False

    def forget(self) -> None:
        self._socket.close()

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a reply
        except OSError:
            pass
        self._socket.close()


# --- for event loops -----------------------------------------------------------------------------


class OpenCalls:
    """The requests of a link that are not answered yet, by number, each with the future of its caller.

    A caller that leaves cancels its future. The reply may come before the link hears of that: it is kept until then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_number: dict[int, ReplyFuture] = {}
        self._unheard: dict[ReplyFuture, tuple[int, native.ReplyHead]] = {}

    def __len__(self) -> int:
        return len(self._by_number) + len(self._unheard)

    def add(self, number: int) -> ReplyFuture:
        future = self._by_number[number] = self._loop.create_future()
        return future

    def has(self, number: int) -> bool:
        return number in self._by_number

    def take(self, number: int) -> ReplyFuture | None:
        """The future of a request that ends in another way than with a reply."""
        return self._by_number.pop(number, None)

    def answer(self, number: int, head: native.ReplyHead) -> bool:
        """Hand a reply to its caller. False if no request has this number."""
        future = self._by_number.pop(number, None)
        if future is None:
            return False
        if not future.done():
            future.set_result(head)
        elif future.cancelled():
            self._unheard[future] = (number, head)
        return True

    def let_go(self, future: ReplyFuture) -> tuple[int, ReplyFuture] | None:
        """See `AsyncLink.let_go`."""
        number, head = self._unheard.pop(future, (None, None))
        if number is None:
            number = next((number for number, known in self._by_number.items() if known is future), None)
        if number is None:
            return None
        late: ReplyFuture = self._loop.create_future()
        if head is None:
            self._by_number[number] = late
        else:
            late.set_result(head)
        return number, late

    def fail(self, why: str) -> None:
        """The link is of no more use: tell all callers."""
        waiting, self._by_number, self._unheard = self._by_number, {}, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LinkLost(why, sent=True))


class StreamLink(asyncio.BufferedProtocol):
    """A connection for any number of requests at once, each with a number by which its reply is known."""

    def __init__(self, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._codec = settings.codec
        self._framing = framing_of(settings.codec)
        self._frames = Frames(bytearray(READ_BYTES), WELCOME_BYTES_MAX)
        self._calls = OpenCalls(self._loop)
        self._out: list[bytes] = []
        self._is_lone = False
        """Whether the last requests came one after another: then none waits for others of its turn."""
        self._lost = lost
        self._number = 0
        self._transport: Any = None
        self.is_alive = True

    @classmethod
    async def connect(
        cls, address: ServerAddress, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]"
    ) -> "StreamLink":
        loop = asyncio.get_running_loop()
        made: list[StreamLink] = []

        def make() -> StreamLink:
            made.append(cls(settings, lost))
            return made[-1]

        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                if address.scheme == "unix":
                    _, link = await loop.create_unix_connection(make, address.host)
                else:
                    tls = tls_context(settings) if address.is_encrypted else None
                    name = address.host if tls is not None else None
                    _, link = await loop.create_connection(
                        make, address.ip or address.host, address.port, ssl=tls, server_hostname=name
                    )
                head = await link.call(
                    native.NativeRequest("hello", native.NativeHello(settings.token, "python", tokens=False))
                )
            check_head(head, address, settings.codec)
        except BaseException as error:
            for begun in made:  # those of which the handshake failed, too
                begun.close()
            if isinstance(error, OSError | ValueError | LinkLost):
                raise unreachable(address, error) from None
            raise
        link._frames.bytes_max = REPLY_BYTES_MAX
        return link

    def call(self, request: native.NativeRequest) -> ReplyFuture:
        """Send a request with a number of its own; the future brings the head of its reply.

        All requests of one turn of the event loop leave in one write. That of a lone caller leaves at once.
        """
        self._number = number = self._number + 1
        request.reqId = number
        frame = framed(native.encoded(request, self._codec), self._framing)
        if self._is_lone and self.is_alive and not len(self._calls):
            self._transport.write(frame)
            return self._calls.add(number)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)
        return self._calls.add(number)

    def let_go(self, future: ReplyFuture) -> tuple[int, ReplyFuture] | None:
        return self._calls.let_go(future)

    def given_up(self, number: int) -> None:
        self._calls.take(number)

    def _flush(self) -> None:
        out, self._out = self._out, []
        self._is_lone = len(self._calls) == 1
        if self.is_alive:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def close(self) -> None:
        self._fail("this connection was closed")
        if self._transport is not None:
            self._transport.abort()

    def forget(self) -> None:
        connected = self._transport.get_extra_info("socket") if self._transport is not None else None
        if connected is not None and connected.fileno() >= 0:
            leave_to_parent(connected.fileno())

    # --- asyncio's calls -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        for frame in self._frames.received(nbytes):
            try:
                head = read_head(frame, self._codec)
            except LinkLost as error:
                self._cut(str(error))
                return
            is_known = type(head.reqId) is int and self._calls.answer(head.reqId, head)
            if not is_known and not head.ok:
                self._fail(head.error)
        if self._frames.failure is not None:
            self._cut(NOT_OURS)

    def _cut(self, why: str) -> None:
        """Nothing that comes after this can be understood."""
        self._fail(why)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the server closed the connection")

    def _fail(self, why: str) -> None:
        if self.is_alive:
            self.is_alive = False
            self._lost(self)
        self._calls.fail(why)


def lost_reply(command: Any, address: object, why: Exception) -> StokerError:
    return Unknown(
        f"it is not known whether this {type(command).__name__} happened: the connection to {address} broke before the"
        f" answer came ({why}); ask, or send it again with a key of your own"
    )
