"""Frames over TCP and Unix sockets.

A connection cuts what comes in into frames, hands them to its session and writes the replies of a turn at once.
Requests without a `reqId` are answered in their order; all others as soon as their reply is there. A peer that does
not read its replies is not read from either, and is cut off when it keeps them waiting too long.
"""

import asyncio
import time
from collections import deque
from functools import partial
from typing import Any

from stoker.model.errors import StokerError
from stoker.server.service import Service
from stoker.server.session import Session
from stoker.wire import native
from stoker.wire.frames import SHARED_BYTES, Codec, Frames, codec_of, framed

SWEEP_S = 1.0
"""How often connections are looked at for being slow. Their limits are tens of seconds."""


class Door:
    """All connections of one transport: counted, bounded, and closed together."""

    def __init__(self, service: Service, *, is_local: bool = False) -> None:
        self.service = service
        self.is_local = is_local
        """Whether peers are on this machine by the nature of the socket."""
        self.shared = bytearray(SHARED_BYTES)
        self.connections: set[Connection] = set()
        self._by_address: dict[str, int] = {}
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    def connect(self) -> "Connection":
        return Connection(self)

    def enter(self, connection: "Connection") -> bool:
        """Whether there is room for one more."""
        limits, address = self.service.config.server, connection.address
        if len(self.connections) >= limits.connections_max:
            return False
        if self._by_address.get(address, 0) >= limits.connections_per_address_max:
            return False
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self.connections.add(connection)
        self._count()
        return True

    def leave(self, connection: "Connection") -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._count()
            left = self._by_address[connection.address] - 1
            if left:
                self._by_address[connection.address] = left
            else:
                del self._by_address[connection.address]

    def _count(self) -> None:
        self.service.meter.connections["unix" if self.is_local else "tcp"] = len(self.connections)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for connection in list(self.connections):
                connection.check_pace(now)

    async def close(self) -> None:
        """Send what is ready and close every connection."""
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.finish()
        await asyncio.sleep(0)


class Connection(asyncio.BufferedProtocol):
    """One peer on a stream."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._limits = door.service.config.server
        self._frames = Frames(door.shared, self._limits.frame_bytes_max)
        self._out: list[bytes] = []
        self._order: deque[list[bytes]] = deque()
        """Places for the replies to requests that had no number, in the order of the requests."""
        self._since = time.monotonic()
        """When the peer came, or began the frame that is not complete."""
        self._asked = False
        self._paused_since: float | None = None
        self.address = ""
        self.session: Session | None = None
        self.transport: Any = None

    # --- asyncio's calls -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else "local"
        if not self._door.enter(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=min(1 << 20, self._limits.output_buffer_bytes_max))
        loopback = self._door.is_local or is_loopback(self.address)
        self.session = Session(self._door.service, loopback=loopback, send=self.send)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._frames
        was_partial = frames.is_partial
        for frame in frames.received(nbytes):
            self._asked = True
            self._take(frame)
        if frames.failure is not None:
            self._reject(frames.failure)
        elif frames.is_partial and not was_partial:
            self._since = time.monotonic()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.leave(self)
        if self.session is not None:
            self.session.close()

    def pause_writing(self) -> None:
        self._paused_since = time.monotonic()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused_since = None
        self.transport.resume_reading()

    # --- requests and replies --------------------------------------------------------------------

    def _take(self, frame: bytes) -> None:
        assert self.session is not None
        codec = codec_of(frame, self._frames.framing)
        try:
            envelope = native.open_envelope(frame, codec)
        except StokerError as error:
            self._fill(self._place(), native.refused(error, None, codec))
            return
        if envelope.reqId is None:
            self.session.request(envelope, frame, codec, partial(self._fill, self._place()))
        else:
            self.session.request(envelope, frame, codec, self.send)

    def _place(self) -> list[bytes]:
        place: list[bytes] = []
        self._order.append(place)
        return place

    def _fill(self, place: list[bytes], body: bytes) -> None:
        place.append(body)
        order = self._order
        while order and order[0]:
            self.send(order.popleft()[0])

    def send(self, body: bytes) -> None:
        """Write this with everything else of the turn."""
        if not self._out:
            self._door.service.desk.after_turn(self._flush)
        self._out.append(framed(body, self._frames.framing))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and not self.transport.is_closing():
            if self.transport.get_write_buffer_size() > self._limits.output_buffer_bytes_max:
                self.transport.abort()
            else:
                self.transport.write(out[0] if len(out) == 1 else b"".join(out))

    # --- the end ---------------------------------------------------------------------------------

    def _reject(self, error: StokerError) -> None:
        """The stream cannot go on: say why, and close."""
        codec: Codec = "json" if self._frames.framing == "lines" else "msgpack"
        self._out.append(framed(native.refused(error, None, codec), self._frames.framing))
        self.finish()

    def finish(self) -> None:
        self._flush()
        self.transport.close()

    def check_pace(self, now: float) -> None:
        """Cut off who holds a connection without using it as agreed."""
        limits = self._limits
        reads_nothing = self._paused_since is not None and now - self._paused_since > limits.output_stalled_s
        trickles = self._frames.is_partial and now - self._since > limits.frame_s
        says_nothing = not self._asked and now - self._since > limits.handshake_s
        if reads_nothing or trickles or says_nothing:
            self.transport.abort()


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "::ffff:127.0.0.1", "local")
