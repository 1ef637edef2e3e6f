"""Cutting a stream of bytes into frames, and putting frames on a stream.

Three framings, told apart by the first byte that a peer sends: JSON lines (`{` or a line break), or a 4-byte
big-endian length before each frame, which is MessagePack, or JSON if it starts with `{`. Nothing is allocated because
a length says so: only what has arrived, and what a frame within the limit still lacks.
"""

import struct
from typing import Literal

from stoker.model.errors import LimitExceeded

Codec = Literal["json", "msgpack"]

LENGTH = struct.Struct(">I")
SHARED_BYTES = 256 * 1024
"""One read at most, where nothing is left over from the last one."""
LINE_STARTS = b"{\r\n"
SLACK = 4096
"""How much more than a frame needs is read with it: the beginning of the next one."""


class Frames:
    """The frames of one peer. `space` gives room to read into, `received` takes what was read.

    Until a frame is only partly there, all peers read into one shared buffer, so that an idle peer costs no memory.
    """

    __slots__ = ("_end", "_own", "_searched", "_shared", "bytes_max", "failure", "framing")

    def __init__(self, shared: bytearray, bytes_max: int) -> None:
        self._shared = shared
        self._own: bytearray | None = None
        """What has come of a frame that is not complete."""
        self._end = 0
        self._searched = 0
        """No line break up to here."""
        self.bytes_max = bytes_max
        self.framing: Literal["lines", "lengths"] | None = None
        self.failure: LimitExceeded | None = None
        """Why the stream cannot go on: the start of the next frame is unknown."""

    @property
    def is_partial(self) -> bool:
        """Whether the peer owes the rest of a frame."""
        return self._own is not None

    def space(self) -> memoryview:
        if self._own is None:
            return memoryview(self._shared)
        return memoryview(self._own)[self._end :]

    def received(self, count: int) -> list[bytes]:
        """The frames that are complete now, in order."""
        if self._own is None:
            source = self._shared
            if self.framing == "lengths" and LENGTH.unpack_from(source)[0] + 4 == count <= self.bytes_max:
                return [bytes(memoryview(source)[4:count])]  # one frame and nothing else: what most reads bring
            self._end = count
        else:
            source, self._end = self._own, self._end + count
        if self.framing is None:
            self.framing = "lines" if source[0] in LINE_STARTS else "lengths"
        if self.framing == "lines":
            return self._lines(source)
        return self._framed(source)

    def _framed(self, source: bytearray) -> list[bytes]:
        end, position = self._end, 0
        found: list[bytes] = []
        needed = 0
        view = memoryview(source)
        while end - position >= 4:
            length = LENGTH.unpack_from(source, position)[0]
            if length > self.bytes_max:
                self.failure = LimitExceeded(
                    f"message too large: a frame of {length} bytes, at most {self.bytes_max} are taken"
                    " (a frame begins with its length as 4 bytes, big-endian)"
                )
                break
            needed = length + 4
            if end - position < needed:
                break
            found.append(bytes(view[position + 4 : position + needed]))
            position += needed
            needed = 0
        view.release()
        self._keep(source, position, needed)
        return found

    def _lines(self, source: bytearray) -> list[bytes]:
        end = self._end
        last = source.rfind(b"\n", self._searched, end)
        found: list[bytes] = []
        if last >= 0:
            found = [line for line in bytes(memoryview(source)[:last]).split(b"\n") if line and not line.isspace()]
        position = last + 1
        self._searched = end - position
        if self._searched > self.bytes_max or any(len(line) > self.bytes_max for line in found):
            self.failure = LimitExceeded(f"message too large: a line of more than {self.bytes_max} bytes")
            found = [line for line in found if len(line) <= self.bytes_max]
        self._keep(source, position, 0)
        return found

    def _keep(self, source: bytearray, position: int, needed: int) -> None:
        """What is left over waits in a buffer of its own, with room for what it lacks (at most twice what has come)."""
        left = self._end - position
        if not left:
            self._own, self._end = None, 0
            return
        room = needed + SLACK if needed and needed <= 2 * left + SHARED_BYTES else 2 * left + SLACK
        if source is self._own and position == 0 and len(source) >= min(room, left + SLACK):
            return
        kept = bytearray(room)
        kept[:left] = memoryview(source)[position : self._end]
        self._own, self._end = kept, left


def codec_of(frame: bytes, framing: str | None) -> Codec:
    return "json" if framing == "lines" or frame[:1] == b"{" else "msgpack"


def framed(body: bytes, framing: str | None) -> bytes:
    """A frame ready to be sent."""
    return body + b"\n" if framing == "lines" else LENGTH.pack(len(body)) + body
