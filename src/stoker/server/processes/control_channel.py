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


class Orders(msgspec.Struct, frozen=True, tag="orders"):
    """To a process that starts: its number, and its configuration."""

    seat: ProcessSeat
    config: ServerConfig
    part: str
    unix_descriptor: int | None = None
    """The bound socket that all processes accept from, if there is one."""


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


Word = Orders | Reload | Stop | ProcessReady | ProcessFailed

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
