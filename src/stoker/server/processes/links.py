"""Connects the processes of one server, or the seats of a cluster: one link for each pair.

The process with the higher number connects, and reconnects whenever the connection is lost. Both sides prove that they
know a secret, each to a number that the other side has just drawn: what was recorded on one connection is of no use on
another. Each side says its epoch. A link of an older epoch is refused, and cut as soon as a newer one is known: its
process was replaced. This module does not interpret the messages.
"""

import asyncio
import hmac
import logging
import secrets
import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from stoker.server.processes.ways import Ways, certificate_of, notice_silence

LENGTH = struct.Struct(">I")
AGAIN_S = 0.02
AGAIN_S_MAX = 0.5
"""The longest pause between two attempts to reach a process; it starts short and doubles."""
GREETING_BYTES_MAX = 256
GREETING_S = 5.0
"""For both sides to say who they are."""
NONCE_BYTES = 32
OUT_BYTES_MAX = 64 * 1024 * 1024
"""A process that has left this much unread is no longer alive, whatever it looks like."""
PING_S = 2.0
SILENT_S = 10.0
"""A process on another machine that says nothing for so long is gone. Its loop may be busy for some seconds."""

T = TypeVar("T")

log = logging.getLogger("stoker.processes")


class ProcessSeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is among those that share the shards."""

    number: int
    """Its seat. Processes without shards have numbers behind the seats."""
    seats: int
    secret: bytes
    epoch: int = 1
    """Rises each time that another process takes the seat."""
    directory: str = ""
    """The data directory, where the processes have their sockets, too. Empty in a cluster."""

    @property
    def can_move(self) -> bool:
        """Whether another node can take the seat: then this process leaves running jobs to the next one."""
        return not self.directory


class LinkHello(msgspec.Struct, frozen=True):
    """The first frame, from the side that connects."""

    process: int
    to: int
    epoch: int
    nonce: bytes


class LinkChallenge(msgspec.Struct, frozen=True):
    """The answer: it proves that this side knows the secret, and asks the other side to do so."""

    epoch: int
    nonce: bytes
    proof: bytes


class LinkProof(msgspec.Struct, frozen=True):
    """The last frame of the greeting, from the side that connects."""

    proof: bytes


class Receiver(Protocol):
    """Receives the events of the links: a `ProcessRouter`."""

    def receive(self, process: int, data: bytes) -> None: ...
    def peer_up(self, process: int) -> None: ...
    def peer_down(self, process: int) -> None: ...


class StrangeLink(Exception):
    """The other end is not a process of this server, or one that was replaced."""


class Greeting:
    """What both sides say before the first message. It is the same text for both, so that both prove the same."""

    def __init__(self, seat: ProcessSeat, hello: LinkHello, certificate: bytes) -> None:
        self._secret = seat.secret
        self._said: list[Any] = [hello.process, hello.to, hello.epoch, hello.nonce, certificate]

    def challenged(self, epoch: int, nonce: bytes) -> None:
        self._said += [epoch, nonce]

    def proof(self, side: str) -> bytes:
        return hmac.digest(self._secret, msgspec.msgpack.encode([side, *self._said]), "sha256")

    def check(self, side: str, proof: bytes) -> None:
        if not hmac.compare_digest(self.proof(side), proof):
            raise StrangeLink("it does not know the secret")


class ProcessLink(asyncio.Protocol):
    """One connection to one other process."""

    def __init__(self, links: "ProcessLinks", process: int | None) -> None:
        self._links = links
        self.process = process
        """The process at the other end; None until it has said so."""
        self.epoch = 0
        """Of the process at the other end."""
        self._connects = process is not None
        self._greeting: Greeting | None = None
        self._is_greeted = False
        self._transport: Any = None
        self._got = bytearray()
        self._out: list[bytes] = []
        loop = asyncio.get_running_loop()
        self.heard_at = loop.time()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._patience = loop.call_later(GREETING_S, self._check_greeted)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        links, seat = self._links, self._links.seat
        if links.ways.is_far:
            notice_silence(transport.get_extra_info("socket"))
        if self.process is not None:
            hello = LinkHello(seat.number, self.process, seat.epoch, secrets.token_bytes(NONCE_BYTES))
            self._greeting = Greeting(seat, hello, certificate_of(transport))
            self._say(hello)

    def _say(self, what: msgspec.Struct) -> None:
        self.send(msgspec.msgpack.encode(what))

    def _check_greeted(self) -> None:
        if not self._is_greeted:
            self.cut()

    def data_received(self, data: bytes) -> None:
        self.heard_at = asyncio.get_running_loop().time()
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
                return
        del got[:at]

    def _is_friend(self, frame: bytes) -> bool:
        """One step of the greeting."""
        try:
            if self._connects:
                self._challenged(decoded(frame, LinkChallenge))
            elif self._greeting is None:
                self._asked(decoded(frame, LinkHello))
            else:
                self._greeting.check("connects", decoded(frame, LinkProof).proof)
                self._links.check_epoch(self)
                self._is_up()
            return True
        except (StrangeLink, msgspec.MsgspecError) as error:
            log.warning("refused a link from another process: %s", error)
            self.cut()
            return False

    def _asked(self, hello: LinkHello) -> None:
        seat = self._links.seat
        if hello.to != seat.number:
            raise StrangeLink(f"it looks for process {hello.to}, and this is {seat.number}")
        self.process, self.epoch = hello.process, hello.epoch
        self._links.check_epoch(self)
        self._greeting = Greeting(seat, hello, self._links.ways.own_certificate())
        nonce = secrets.token_bytes(NONCE_BYTES)
        self._greeting.challenged(seat.epoch, nonce)
        self._say(LinkChallenge(seat.epoch, nonce, self._greeting.proof("accepts")))

    def _challenged(self, challenge: LinkChallenge) -> None:
        assert self._greeting is not None
        self._greeting.challenged(challenge.epoch, challenge.nonce)
        self._greeting.check("accepts", challenge.proof)
        self.epoch = challenge.epoch
        self._links.check_epoch(self)
        self._say(LinkProof(self._greeting.proof("connects")))
        self._is_up()

    def _is_up(self) -> None:
        self._is_greeted = True
        self._links.up(self)

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
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Send what is buffered, and close."""
        if self._out:
            self._flush()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        self._links.down(self)
        if not self.lost.done():
            self.lost.set_result(None)


def decoded(frame: bytes, kind: type[T]) -> T:
    return msgspec.msgpack.decode(frame, type=kind)


class ProcessLinks:
    """All connections of one process. Implements `Peers` for a `ProcessRouter`."""

    def __init__(self, seat: ProcessSeat, ways: Ways) -> None:
        self.seat = seat
        self.ways = ways
        self.receiver: Receiver | None = None
        self.when_lost: Callable[[], object] = lambda: None
        """Called when a link to a seat has broken: the seat may have moved."""
        self._by_process: dict[int, ProcessLink] = {}
        self._epochs: dict[int, int] = {}
        """The highest that is known of each process."""
        self._moved: dict[int, asyncio.Event] = {}
        """Set when a process that this one connects to has been replaced: it is tried again at once."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        loop, seat = asyncio.get_running_loop(), self.seat
        await self.ways.listen(lambda: ProcessLink(self, None))
        self._tasks = [loop.create_task(self._keep_connected(lower)) for lower in range(min(seat.number, seat.seats))]
        if self.ways.is_far:
            self._tasks.append(loop.create_task(self._ping()))

    async def _keep_connected(self, process: int) -> None:
        pause_s, moved = AGAIN_S, self._moved.setdefault(process, asyncio.Event())
        make: Callable[[], ProcessLink] = lambda: ProcessLink(self, process)  # noqa: E731
        while True:
            try:
                link = await self.ways.connect(process, make)
                await link.lost
                pause_s = AGAIN_S if link.epoch else min(AGAIN_S_MAX, pause_s * 2)
            except (OSError, ValueError):
                pause_s = min(AGAIN_S_MAX, pause_s * 2)
            try:
                async with asyncio.timeout(pause_s):
                    await moved.wait()
                pause_s = AGAIN_S
            except TimeoutError:
                pass
            moved.clear()

    async def _ping(self) -> None:
        """Notice a process on another machine that is gone, although no message tells so."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PING_S)
            for link in list(self._by_process.values()):
                if loop.time() - link.heard_at > SILENT_S:
                    log.warning("process %s has said nothing for %g s: the link is cut", link.process, SILENT_S)
                    link.cut()
                else:
                    link.send(b"")

    def send(self, process: int, data: bytes) -> bool:
        link = self._by_process.get(process)
        if link is None:
            return False
        link.send(data)
        return True

    def check_epoch(self, link: ProcessLink) -> None:
        assert link.process is not None
        newest = self._epochs.get(link.process, 0)
        if link.epoch < newest:
            raise StrangeLink(f"process {link.process} has epoch {link.epoch}, and was replaced by epoch {newest}")

    def know(self, process: int, epoch: int) -> None:
        """A process has taken a seat. The link to the one before it is cut."""
        if epoch > self._epochs.get(process, 0):
            self._epochs[process] = epoch
            if process in self._moved:
                self._moved[process].set()
            link = self._by_process.get(process)
            if link is not None and link.epoch < epoch:
                self.down(link)
                link.cut()

    def up(self, link: ProcessLink) -> None:
        assert link.process is not None
        assert self.receiver is not None
        old = self._by_process.get(link.process)
        if old is not None:  # it came back before its end was noticed
            self.down(old)
            old.cut()
        self.know(link.process, link.epoch)
        self._by_process[link.process] = link
        self.receiver.peer_up(link.process)

    def down(self, link: ProcessLink) -> None:
        if link.process is not None and self._by_process.get(link.process) is link:
            del self._by_process[link.process]
            if self.receiver is not None:
                self.receiver.peer_down(link.process)
            self.when_lost()

    def arrived(self, link: ProcessLink, frame: bytes) -> None:
        """An empty frame only says that the process is there."""
        is_current = link.process is not None and self._by_process.get(link.process) is link
        if frame and is_current and self.receiver is not None and link.process is not None:
            self.receiver.receive(link.process, frame)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in list(self._by_process.values()):
            link.close()
        self.ways.close()
