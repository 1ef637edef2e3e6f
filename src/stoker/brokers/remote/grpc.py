"""Connections to a server over gRPC: native requests in the frames of `stoker.v1.Queue/Call`.

Only here is grpcio loaded. Event loops use its channels for threads, too: grpc.aio has one queue for the whole process
and complains when there is more than one loop, and a program may well have several, one after another.
"""

import asyncio
import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from stoker.brokers.remote.links import (
    NOT_OURS,
    AsyncLink,
    BlockingLink,
    LinkLost,
    OpenCalls,
    ReplyFuture,
    check_welcome,
    greet,
    greeted,
    read_head,
    unreachable,
)
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.model.errors import BY_CODE, InvalidRequest, LimitExceeded, StokerError
from stoker.wire import native

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what matters is raised; the rest would go to standard error

try:
    import grpc
except ImportError:
    raise InvalidRequest("grpc:// needs grpcio: pip install 'stoker[grpc]', or use tcp:// or http://") from None

METHOD = "/stoker.v1.Queue/Call"
NOT_CONNECTED = "failed to connect"
"""How gRPC begins to say that a request has never left."""
BODY_TAG = b"\x0a"
"""Of the one field of a frame: number 1, bytes."""

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", -1),  # the server has a limit, and says so
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # as on every other transport
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 50),  # the broker has pauses of its own
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class GrpcLinks:
    """Channels to one address share a connection: gRPC sees to that."""

    def connect(self, address: ServerAddress, settings: RemoteSettings) -> BlockingLink:
        return GrpcLink(address, settings)

    async def connect_async(
        self, address: ServerAddress, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]"
    ) -> AsyncLink:
        return await greeted(GrpcAsyncLink(address, settings, lost), address, settings)


class GrpcLink:
    """A channel for one thread at a time."""

    def __init__(self, address: ServerAddress, settings: RemoteSettings) -> None:
        self._channel = open_channel(address, settings)
        self._call = self._channel.unary_unary(METHOD)
        self._metadata = metadata_of(settings)
        self._owner = os.getpid()
        try:
            check_welcome(self.call(greet(settings), settings.connect_timeout_s), address, settings.codec)
        except LinkLost as error:
            self.close()
            raise unreachable(address, error) from None
        except BaseException:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """A channel connects again by itself."""
        return self._owner == os.getpid()

    def call(self, body: bytes, timeout_s: float) -> bytes:
        try:
            return opened(self._call(enclosed(body), timeout=timeout_s, metadata=self._metadata))
        except grpc.RpcError as error:
            raise failure(error) from None
        except ValueError as error:  # the channel is closed
            raise LinkLost(str(error), sent=False) from None

    def close(self) -> None:
        if self._owner == os.getpid():
            self._channel.close()

    def forget(self) -> None:
        """gRPC looks after its own connections when a process forks."""


class GrpcAsyncLink:
    """A channel for any number of requests of one event loop."""

    def __init__(self, address: ServerAddress, settings: RemoteSettings, lost: "Callable[[AsyncLink], None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._channel = open_channel(address, settings)
        self._call = self._channel.unary_unary(METHOD)
        self._codec = settings.codec
        # By the session and its number the server knows a request that is given up.
        self._metadata = (*metadata_of(settings), ("stoker-session", secrets.token_hex(8)))
        self._calls = OpenCalls(self._loop)
        self._lost = lost
        self._number = 0
        self.is_alive = True

    def call(self, request: native.NativeRequest) -> ReplyFuture:
        self._number += 1
        number = request.reqId = self._number
        body = native.encoded(request, self._codec)
        future = self._calls.add(number)
        try:
            call = self._call.future(enclosed(body), metadata=self._metadata)
        except ValueError as error:  # the channel is closed
            self._calls.take(number)
            future.set_exception(LinkLost(str(error), sent=False))
            return future
        call.add_done_callback(partial(self._arrived, number))
        return future

    def let_go(self, future: ReplyFuture) -> tuple[int, ReplyFuture] | None:
        return self._calls.let_go(future)

    def given_up(self, number: int) -> None:
        self._calls.take(number)

    def close(self) -> None:
        self._end()
        self._calls.fail("this connection was closed")
        self._channel.close()

    def forget(self) -> None:
        """gRPC looks after its own connections when a process forks."""

    def _arrived(self, number: int, call: Any) -> None:
        """On a thread of gRPC's."""
        try:
            self._loop.call_soon_threadsafe(self._answered, number, call)
        except RuntimeError:
            pass  # the loop is closed, and no task waits

    def _answered(self, number: int, call: Any) -> None:
        if not self._calls.has(number):
            return
        try:
            self._calls.answer(number, read_head(opened(call.result()), self._codec))
        except LinkLost as error:
            self._failed(number, error)
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            self._failed(number, failure(error))
        if not self.is_alive and not self._calls:
            self._channel.close()

    def _failed(self, number: int, why: LinkLost | StokerError) -> None:
        future = self._calls.take(number)
        if future is not None and not future.done():
            future.set_exception(why)
        if isinstance(why, LinkLost):
            self._end()

    def _end(self) -> None:
        """Take no more requests; those that are under way come to their own end."""
        if self.is_alive:
            self.is_alive = False
            self._lost(self)


# --- channels and frames -------------------------------------------------------------------------


def open_channel(address: ServerAddress, settings: RemoteSettings) -> Any:
    host = f"[{address.host}]" if ":" in address.host else address.host
    where = f"{host}:{address.port}"
    # Channels with the same options share a connection. A forked process must not share its parent's.
    options = (*OPTIONS, ("stoker.process", os.getpid()))
    if not address.is_encrypted:
        return grpc.insecure_channel(where, options)
    if not settings.verify:
        raise InvalidRequest("grpcs:// always verifies certificates: name the authority to trust with ca=FILE")
    try:
        authority = Path(settings.ca).read_bytes() if settings.ca is not None else None
        cert = Path(settings.cert).read_bytes() if settings.cert is not None else None
        key = Path(settings.key or settings.cert).read_bytes() if settings.cert is not None else None
    except OSError as error:
        raise InvalidRequest(f"cannot read {error.filename} for TLS: {error.strerror}") from None
    return grpc.secure_channel(where, grpc.ssl_channel_credentials(authority, key, cert), options)


def metadata_of(settings: RemoteSettings) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {settings.token}"),) if settings.token is not None else ()


def failure(error: Any) -> LinkLost | StokerError:
    """What it means that a call has ended without a frame."""
    if isinstance(error, grpc.FutureCancelledError):
        return LinkLost("this connection was closed", sent=True)
    code, details = error.code(), error.details() or error.code().name
    told = dict(error.trailing_metadata() or ()).get("stoker-code")
    if told in BY_CODE:
        return BY_CODE[told](details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return LimitExceeded(f"message too large: {details}; send less at once")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return InvalidRequest(f"this is not a Stoker server: {details}; is the address right?")
    return LinkLost(details, sent=not details.startswith(NOT_CONNECTED))


def enclosed(body: bytes) -> bytes:
    """A frame by hand: its message has one field, and so the client needs no protobuf."""
    length, size = bytearray(), len(body)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"".join((BODY_TAG, length, body))


def opened(message: bytes) -> bytes:
    at = 1
    while message[at : at + 1] >= b"\x80":
        at += 1
    if message[:1] != BODY_TAG or at >= len(message):
        raise LinkLost(f"{NOT_OURS} (an answer that is not a frame)", sent=True)
    return message[at + 1 :]
