"""The messages between a worker and its child processes: MessagePack values with a length in front, over a socket.

Nothing is pickled: a payload stays the bytes that came from the queue, and an exception is sent as text. A page of
shared memory holds the few words that must be readable when the other side can no longer speak.
"""

import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from stoker.model.commands import Command
from stoker.model.options import Options
from stoker.wire import native

LENGTH = struct.Struct(">I")
WORD = struct.Struct("=Q")


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages; a number tells them apart."""


# --- to a child --------------------------------------------------------------------------------------------------


class Setup(Frame, frozen=True, tag=0):
    """The first message: the handlers, and where to import them from."""

    handlers: dict[str, str]
    """Name -> `module:qualname`."""
    main: str = ""
    """The parent's `__main__`: the path of a script or the name of a module."""
    main_is_module: bool = False
    log_level: int = 0
    """Level of the parent's root logger if logging is set up there, else 0."""
    log_format: str = ""
    log_style: str = ""
    """`plain` or `json` where the parent logs like `stoker worker`; empty where it has its own format."""
    worker: str = ""
    """The id of the worker."""


class Part(Frame, frozen=True):
    """Jobs of one delivery, with what they have in common."""

    token: int
    queue: str
    ids: list[int]
    payloads: list[bytes]
    options: Options
    attempt: int
    pushed_at: int
    received_at: float
    """Time of the monotonic clock, which all processes of a machine share."""


class RunJobs(Frame, frozen=True, tag=1):
    """Jobs of one handler, to run one after another, or `together` in one call.

    They are numbered from `first` on, in the order in which this child gets them.
    """

    first: int
    handler: str
    parts: list[Part]
    together: bool = False


class TakeBack(Frame, frozen=True, tag=2):
    """Give back these jobs, if they have not begun."""

    numbers: list[int]


class HostAnswer(Frame, frozen=True, tag=3):
    """The reply to a question of the running handler."""

    question: int
    reply: bytes
    """Encoded as a server would send it."""


class Leave(Frame, frozen=True, tag=4):
    """No more work will come: end when all is done."""


ToChild = Setup | RunJobs | TakeBack | HostAnswer | Leave


# --- from a child ------------------------------------------------------------------------------------------------


class ChildReady(Frame, frozen=True, tag=0):
    """Everything was imported, except the `broken` handlers: name -> reason."""

    broken: dict[str, str] = {}


class Ending(Frame, frozen=True):
    """A job whose handler raised: the verdict of its policy, and the error as text."""

    kind: str
    after_ms: int | None
    reason: str
    error: str
    error_class: str
    stack: str


class JobsDone(Frame, frozen=True, tag=1):
    """Adjacent jobs from `first` on have ended: without a result, with one, or with an error."""

    first: int
    outcomes: list[bytes | Ending | None]
    spent: list[float]
    """Seconds for each of them."""


class TakenBack(Frame, frozen=True, tag=2):
    """These jobs had not begun and will not."""

    numbers: list[int]


class Said(Frame, frozen=True, tag=3):
    """A command about a running job, to be sent in the background; with a number, a question that expects an answer.

    Without a command it asks for the lease to be renewed.
    """

    job: int
    request: bytes = b""
    """Encoded as a client would send it."""
    question: int = 0


FromChild = ChildReady | JobsDone | TakenBack | Said

encode = msgspec.msgpack.Encoder().encode
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_from_child = msgspec.msgpack.Decoder(FromChild).decode


def framed(message: Frame) -> bytes:
    body = encode(message)
    return LENGTH.pack(len(body)) + body


def command_in(said: Said) -> Command[Any]:
    return native.command_of(native.open_envelope(said.request, "msgpack"), "msgpack")


class Buffer:
    """Collects received bytes and cuts frames out of them."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._bytes += data
        position, end = 0, len(self._bytes)
        try:
            while end - position >= LENGTH.size:
                after = position + LENGTH.size + LENGTH.unpack_from(self._bytes, position)[0]
                if after > end:
                    break
                frame = bytes(memoryview(self._bytes)[position + LENGTH.size : after])
                position = after
                yield frame
        finally:
            del self._bytes[:position]


# --- shared ------------------------------------------------------------------------------------------------------


class Board:
    """A page of shared memory. Each word has one writer and is read whole."""

    RUNNING, STOPPING, UNWANTED, ENDED = range(4)

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)

    def _read(self, word: int) -> int:
        value: int = WORD.unpack_from(self._memory, word * WORD.size)[0]
        return value

    def _write(self, word: int, value: int) -> None:
        WORD.pack_into(self._memory, word * WORD.size, value)

    @property
    def running(self) -> int:
        """The number of the job that the child runs; 0 means none. Written by the child."""
        return self._read(self.RUNNING)

    @running.setter
    def running(self, number: int) -> None:
        self._write(self.RUNNING, number)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is draining. Written by the parent."""
        return bool(self._read(self.STOPPING))

    @is_stopping.setter
    def is_stopping(self, value: bool) -> None:
        self._write(self.STOPPING, value)

    @property
    def unwanted(self) -> int:
        """The number of the job that a SIGTERM is meant for. Written by the parent."""
        return self._read(self.UNWANTED)

    @unwanted.setter
    def unwanted(self, number: int) -> None:
        self._write(self.UNWANTED, number)

    @property
    def ended(self) -> int:
        """All unreported jobs up to this number have completed without a result. Written by the child."""
        return self._read(self.ENDED)

    @ended.setter
    def ended(self, number: int) -> None:
        self._write(self.ENDED, number)

    def close(self) -> None:
        self._memory.close()


def new_page() -> int:
    """A descriptor of memory that can be passed to a child."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("stoker")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, mmap.PAGESIZE)
    return descriptor
