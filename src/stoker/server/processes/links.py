"""Connects the processes of one server: a Unix socket for each pair, in the data directory.

The process with the higher number connects, and reconnects whenever the connection is lost. Only processes that may
write to the directory reach the sockets. Both sides also prove that they know a secret of this start, so that a process
of an earlier start is refused. This module does not interpret the messages.
"""

import asyncio
import hmac
import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stoker.brokers.directory_socket import BACKLOG, SocketPath

LENGTH = struct.Struct(">I")
AGAIN_S = 0.02
AGAIN_S_MAX = 0.5
"""The longest pause between two attempts to reach a process; it starts short and doubles."""
GREETING_BYTES_MAX = 256
OUT_BYTES_MAX = 512 * 1024 * 1024
"""A process that has left this much unread is no longer alive, whatever it looks like."""

log = logging.getLogger("stoker.processes")


class ProcessSeat(msgspec.Struct, frozen=True, kw_only=True):
    """The number of this process in its server."""

    number: int
    processes: int
    directory: str
    secret: bytes

    def proof(self, sender: int, to: int) -> bytes:
        return hmac.digest(self.secret, f"{sender} to {to}".encode(), "sha256")


class LinkGreeting(msgspec.Struct, frozen=True):
    """The first frame in each direction."""

    process: int
    proof: bytes


class Receiver(Protocol):
    """Receives the events of the links: a `ProcessRouter`."""

    def receive(self, process: int, data: bytes) -> None: ...
    def peer_up(self, process: int) -> None: ...
    def peer_down(self, process: int) -> None: ...


class ProcessLink(asyncio.Protocol):
    """One connection to one other process."""

    def __init__(self, links: "ProcessLinks", process: int | None) -> None:
        self._links = links
        self.process = process
        """The process at the other end; None until it has said so."""
        self._is_greeted = False
        self._transport: Any = None
        self._got = bytearray()
        self._out: list[bytes] = []
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self.process is not None:
            self._greet(self.process)

    def _greet(self, process: int) -> None:
        seat = self._links.seat
        self.send(msgspec.msgpack.encode(LinkGreeting(seat.number, seat.proof(seat.number, process))))

    def data_received(self, data: bytes) -> None:
        got = self._got
        got += data
        at, end = 0, len(got)
        while end - at >= 4:
            (length,) = LENGTH.unpack_from(got, at)
            if not self._is_greeted and length > GREETING_BYTES_MAX:
                self.cut()
                return
            if end - at - 4 < length:
                break
            frame = bytes(got[at + 4 : at + 4 + length])
            at += 4 + length
            if self._is_greeted:
                self._links.arrived(self, frame)
            elif not self._is_friend(frame):
                log.warning(
                    "refused a connection to the socket in the data directory: it does not come from this server"
                )
                self.cut()
                return
        del got[:at]

    def _is_friend(self, frame: bytes) -> bool:
        seat = self._links.seat
        try:
            greeting = msgspec.msgpack.decode(frame, type=LinkGreeting)
        except msgspec.MsgspecError:
            return False
        known = self.process is None or self.process == greeting.process
        if not known or not hmac.compare_digest(greeting.proof, seat.proof(greeting.process, seat.number)):
            return False
        self._is_greeted = True
        if self.process is None:
            self.process = greeting.process
            self._greet(greeting.process)
        self._links.up(self)
        return True

    def send(self, data: bytes) -> None:
        """Everything of one turn of the loop is sent at once."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(LENGTH.pack(len(data)))
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > OUT_BYTES_MAX:
            log.error("process %s does not read its messages: the connection is closed", self.process)
            self.cut()
        else:
            self._transport.write(b"".join(out))

    def cut(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        """Send what is buffered, and close."""
        if self._out:
            self._flush()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.down(self)
        if not self.lost.done():
            self.lost.set_result(None)


class ProcessLinks:
    """All connections of one process. Implements `Peers` for a `ProcessRouter`."""

    def __init__(self, seat: ProcessSeat) -> None:
        self.seat = seat
        self.receiver: Receiver | None = None
        self._by_process: dict[int, ProcessLink] = {}
        self._place = SocketPath(Path(seat.directory), socket_name(seat.number))
        self._server: asyncio.Server | None = None
        self._connectors: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        bound = self._place.listen()
        self._server = await loop.create_unix_server(lambda: ProcessLink(self, None), sock=bound, backlog=BACKLOG)
        self._connectors = [loop.create_task(self._keep_connected(lower)) for lower in range(self.seat.number)]

    async def _keep_connected(self, process: int) -> None:
        place, loop = SocketPath(Path(self.seat.directory), socket_name(process)), asyncio.get_running_loop()
        pause_s = AGAIN_S
        make: Callable[[], ProcessLink] = lambda: ProcessLink(self, process)  # noqa: E731
        try:
            while True:
                try:
                    _, link = await loop.create_unix_connection(make, place.address)
                    await link.lost
                    pause_s = AGAIN_S
                except OSError:
                    pause_s = min(AGAIN_S_MAX, pause_s * 2)
                await asyncio.sleep(pause_s)
        finally:
            place.close()

    def send(self, process: int, data: bytes) -> bool:
        link = self._by_process.get(process)
        if link is None:
            return False
        link.send(data)
        return True

    def up(self, link: ProcessLink) -> None:
        assert link.process is not None
        assert self.receiver is not None
        old = self._by_process.get(link.process)
        if old is not None:  # it came back before its end was noticed
            self.down(old)
            old.cut()
        self._by_process[link.process] = link
        self.receiver.peer_up(link.process)

    def down(self, link: ProcessLink) -> None:
        if link.process is not None and self._by_process.get(link.process) is link:
            del self._by_process[link.process]
            if self.receiver is not None:
                self.receiver.peer_down(link.process)

    def arrived(self, link: ProcessLink, frame: bytes) -> None:
        if self.receiver is not None and link.process is not None and self._by_process.get(link.process) is link:
            self.receiver.receive(link.process, frame)

    async def close(self) -> None:
        for task in self._connectors:
            task.cancel()
        await asyncio.gather(*self._connectors, return_exceptions=True)
        if self._server is not None:
            self._server.close()
            self._place.remove()
        for link in list(self._by_process.values()):
            link.close()
        self._place.close()


def socket_name(process: int) -> str:
    return f"peer-{process}"
