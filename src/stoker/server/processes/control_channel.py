"""The messages between the supervisor and a process of the server, over a private socket.

The configuration goes this way because it has secrets: other users can read the arguments and the environment of a
process. When one side ends, the other one notices by the end of this connection.
"""

import asyncio
import socket
import struct
from typing import Any

import msgspec

from stoker.server.config import ServerConfig
from stoker.server.processes.links import ProcessSeat

LENGTH = struct.Struct(">I")


class DirectoryPart(msgspec.Struct, frozen=True, tag="part"):
    """The shards of a process lie in its part of a data directory."""

    path: str


class ClusterSeat(msgspec.Struct, frozen=True, tag="seat"):
    """The shards of a process lie in PostgreSQL. It has to take the seat first."""

    url: str
    node: str
    address: str
    """Where other processes reach this one."""
    instead_of: int = 0
    """The epoch of a process of this node that had the seat, and is known to be dead."""


class NoShards(msgspec.Struct, frozen=True, tag="none"):
    """The process has none: it serves requests, and other processes carry them out."""

    total: int
    """How many shards there are elsewhere."""


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """To a process that has no orders yet: load what a server with this configuration needs."""

    config: ServerConfig


class ProcessPrepared(msgspec.Struct, frozen=True, tag="prepared"):
    """From a process: it waits for its orders, and has nothing left to load."""


class Orders(msgspec.Struct, frozen=True, tag="orders"):
    """To a process that starts: its number, its shards, and its configuration."""

    seat: ProcessSeat
    config: ServerConfig
    shards: DirectoryPart | ClusterSeat | NoShards
    unix_descriptor: int | None = None
    """The bound socket that all processes accept from, if there is one."""
    link_descriptor: int | None = None
    """The bound socket on which other processes of a cluster reach this one."""


class SeatPlace(msgspec.Struct, frozen=True):
    """Where a seat is."""

    address: str
    epoch: int


class SeatPlaces(msgspec.Struct, frozen=True, tag="places"):
    """Where all seats are that are held, and which processes this node has. Told again and again."""

    places: dict[int, SeatPlace]
    siblings: list[int]


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """The node has lost its PostgreSQL, and why; with an empty text, it is there again."""

    why: str


class SeatTaken(msgspec.Struct, frozen=True, tag="taken"):
    """From a process: it has its seat, with this epoch."""

    epoch: int


class LookAgain(msgspec.Struct, frozen=True, tag="look"):
    """From a process: a link has broken, so a seat may have moved."""


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    """Take over tokens, keys, quotas and limits."""

    config: ServerConfig


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End in good order; with `at_once`, without waiting for running jobs. Not a signal, because two signals may become
    one.
    """

    at_once: bool = False


class ProcessReady(msgspec.Struct, frozen=True, tag="ready"):
    """From a process: it serves."""

    lines: list[str]


class ProcessFailed(msgspec.Struct, frozen=True, tag="failed"):
    """From a process: it cannot serve, and ends."""

    code: str
    message: str
    lost_seat: bool = False
    """Whether another node has taken its seat: then that node goes on with its work."""


Word = (
    Prepare
    | ProcessPrepared
    | Orders
    | SeatPlaces
    | Trouble
    | Reload
    | Stop
    | SeatTaken
    | LookAgain
    | ProcessReady
    | ProcessFailed
)

_word = msgspec.msgpack.Decoder(Word)


def framed(word: Word) -> bytes:
    body = msgspec.msgpack.encode(word)
    return LENGTH.pack(len(body)) + body


class Channel:
    """One end of the connection, on an event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def over(cls, connected: socket.socket) -> "Channel":
        return cls(*await asyncio.open_unix_connection(sock=connected))

    def say(self, word: Word) -> None:
        if not self._writer.is_closing():
            self._writer.write(framed(word))

    async def hear(self) -> Any:
        """The next message; None when the other side has ended."""
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return _word.decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            return None

    async def close(self) -> None:
        """Send what is buffered, and close."""
        try:
            self._writer.close()
            await self._writer.wait_closed()
        except OSError:
            pass
