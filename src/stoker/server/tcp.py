"""Frames over TCP and Unix sockets.

A connection cuts its input into frames, passes them to its session and writes the replies of a turn at once. Requests
without a `reqId` are answered in order; all others as soon as their reply is ready. The server stops reading from a
peer that does not read its replies, and cuts it off when it keeps them waiting too long.
"""

import asyncio
import socket
import time
from collections import deque
from functools import partial
from typing import Any

from stoker.model.errors import StokerError
from stoker.server.config.addresses import is_loopback
from stoker.server.connections import ConnectionPlace
from stoker.server.service import Service
from stoker.server.session import Session
from stoker.wire import native
from stoker.wire.frames import SHARED_BYTES, Codec, Frames, codec_of, framed
from stoker.wire.native_push import open_push

SWEEP_S = 1.0
"""How often connections are looked at for being slow. Their limits are tens of seconds."""
LINGER_S = 2.0
"""How long a refused peer may go on sending, unread: closing at once could lose the answer on its way."""
HIGH_BYTES = 1 << 20
"""A peer that leaves this many bytes unread is not read from, and is sent no events."""


class StreamConnections:
    """All connections of one transport: looked after, and closed together."""

    def __init__(self, service: Service, *, is_local: bool = False) -> None:
        self.service = service
        self.is_local = is_local
        """Whether peers are on this machine by the nature of the socket."""
        self.shared = bytearray(SHARED_BYTES)
        self.connections: set[StreamConnection] = set()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    def connect(self, place: ConnectionPlace) -> "StreamConnection":
        return StreamConnection(self, place)

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


class StreamConnection(asyncio.BufferedProtocol):
    """One peer on a stream."""

    def __init__(self, door: StreamConnections, place: ConnectionPlace) -> None:
        self._door = door
        self.place = place
        self._limits = door.service.config.server
        self._frames = Frames(door.shared, self._limits.frame_bytes_max)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._order: deque[list[bytes]] = deque()
        """Places for the replies to requests that had no number, in the order of the requests."""
        self._since = time.monotonic()
        """When the peer began the frame that is not complete."""
        self._heard_at = self._since
        self._paused_since: float | None = None
        self._rejected_at: float | None = None
        self._has_said_all = False
        """Whether the peer sends nothing more, and waits for answers."""
        self._is_done = False
        """Whether the last word has been sent."""
        self.session: Session | None = None
        self.transport: Any = None

    # --- asyncio's calls -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.place.cut = transport.abort
        self._door.connections.add(self)
        keep_alive(transport.get_extra_info("socket"), self._limits.keepalive_s)
        transport.set_write_buffer_limits(high=min(HIGH_BYTES, self._limits.output_buffer_bytes_max))
        loopback = self._door.is_local or is_loopback(self.place.address)
        self.session = Session(self._door.service, loopback=loopback, send=self.send, has_room=self._has_room)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.space() if self._rejected_at is None else memoryview(self._door.shared)

    def buffer_updated(self, nbytes: int) -> None:
        if self._rejected_at is not None:
            return
        frames = self._frames
        self._heard_at = time.monotonic()
        was_partial = frames.is_partial
        for frame in frames.received(nbytes):
            self._take(frame)
            if not self.place.is_known:
                self._introduce()
        if frames.failure is not None:
            self._reject(frames.failure)
        elif frames.is_partial and not was_partial:
            self._since = self._heard_at

    def eof_received(self) -> bool:
        """A peer that has closed its sending side still gets answers to requests under way, as for `printf ... | nc`.

        A peer that only waits for jobs or events may be gone, and is disconnected.
        """
        self._has_said_all = (
            self.session is not None and self.session.is_at_work and bool(self.transport.can_write_eof())
        )
        return self._has_said_all

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.discard(self)
        self._door.service.connections.leave(self.place)
        if self.session is not None:
            self.session.close()

    def pause_writing(self) -> None:
        self._paused_since = time.monotonic()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused_since = None
        self.transport.resume_reading()
        if self.session is not None:
            self.session.go_on()

    def _introduce(self) -> None:
        """A whole request has come: it may have authenticated the peer."""
        connections = self._door.service.connections
        connections.spoke(self.place)
        if self.session is not None and self.session.identity is not None:
            connections.know(self.place)

    # --- requests and replies --------------------------------------------------------------------

    def _take(self, frame: bytes) -> None:
        assert self.session is not None
        framing = self._frames.framing
        push = open_push(frame) if framing == "lengths" else None
        if push is not None:
            answer = self.send if push.reqId is not None else partial(self._fill, self._place())
            self.session.push(push, answer)
            return
        codec = codec_of(frame, framing)
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
            self._door.service.dispatcher.after_turn(self._flush)
        self._out.append(framed(body, self._frames.framing))
        self._out_bytes += len(body)

    def _has_room(self) -> bool:
        """Whether something that can wait may be sent now."""
        return self._paused_since is None and self._out_bytes < HIGH_BYTES

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if out and not self._is_done and not self.transport.is_closing():
            if self.transport.get_write_buffer_size() > self._limits.output_buffer_bytes_max:
                self.transport.abort()
            else:
                self.transport.write(out[0] if len(out) == 1 else b"".join(out))
                if self._rejected_at is not None:
                    self._say_no_more()
                elif self._has_said_all and self.session is not None and not self.session.in_flight:
                    self.transport.close()
                elif self._paused_since is None and self.session is not None:
                    self.session.go_on()

    # --- the end ---------------------------------------------------------------------------------

    def _reject(self, error: StokerError) -> None:
        """The stream cannot go on: say why, and close when the peer has had time to read it."""
        codec: Codec = "json" if self._frames.framing == "lines" else "msgpack"
        self._rejected_at = time.monotonic()
        self.send(native.refused(error, None, codec))

    def _say_no_more(self) -> None:
        assert self.session is not None
        self.session.close()
        self._is_done = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def finish(self) -> None:
        self._flush()
        self.transport.close()

    @property
    def _is_waited_for(self) -> bool:
        """Whether the peer has asked for something that has not come yet."""
        return self.session is not None and self.session.is_waiting

    def check_pace(self, now: float) -> None:
        """Disconnect a peer that is too slow or idle, or that was refused a while ago."""
        limits = self._limits
        reads_nothing = self._paused_since is not None and now - self._paused_since > limits.output_stalled_s
        trickles = self._frames.is_partial and now - self._since > limits.frame_s
        is_idle = limits.idle_s > 0 and now - self._heard_at > limits.idle_s and not self._is_waited_for
        was_told_off = self._rejected_at is not None and now - self._rejected_at > LINGER_S
        if reads_nothing or trickles or is_idle or was_told_off:
            self.transport.abort()


def keep_alive(connected: Any, seconds: float) -> None:
    """Let the kernel find out whether a silent peer is still there."""
    if not seconds or connected is None or connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), max(1, round(seconds)))
