"""A server that only decodes, commits and answers, or only echoes: what Python can do on this machine at all.

`python -m benchmarks.bare echo|commit DIRECTORY` prints its port and serves until its standard input ends. Frames are
those of the wire: a length and MessagePack. `commit` writes each turn of the loop in one transaction before it answers,
as the queue does. Neither has any queue logic.
"""

import asyncio
import struct
import sys
from typing import Any

import apsw
import msgspec
import uvloop

LENGTH = struct.Struct(">I")


class Body(msgspec.Struct, gc=False):
    queue: str = ""
    payload: bytes = b""
    payloads: list[bytes] = []
    queues: list[str] = []
    ids: list[int] = []


class BareRequest(msgspec.Struct, gc=False):
    cmd: str
    body: Body
    reqId: int | None = None


class BareIds(msgspec.Struct, gc=False):
    ids: tuple[int, int, int, int]


class Reply(msgspec.Struct, omit_defaults=True, gc=False):
    ok: bool
    body: Any
    reqId: int | None = None


class BareServer:
    """State that all connections share."""

    def __init__(self, directory: str | None) -> None:
        self.decode = msgspec.msgpack.Decoder(BareRequest).decode
        self.encode = msgspec.msgpack.Encoder().encode
        self.next_id = 1
        self.kept: list[BareRequest] = []
        self.rows: list[tuple[bytes]] = []
        self.waiting: list[tuple[Any, bytes]] = []
        self.connection: apsw.Connection | None = None
        if directory is not None:
            self.connection = apsw.Connection(f"{directory}/bare.db")
            for pragma in ("journal_mode=wal", "synchronous=normal", "wal_autocheckpoint=0"):
                self.connection.execute(f"pragma {pragma}")
            self.connection.execute("create table log(sequence integer primary key, body blob)")

    def answer(self, transport: Any, frame: bytes) -> None:
        if self.connection is None:
            transport.write(LENGTH.pack(len(frame)) + frame)
            return
        request = self.decode(frame)
        self.kept.append(request)
        first, count = self.next_id, len(request.body.payloads) or 1
        self.next_id += count
        body = self.encode(Reply(True, BareIds((-1, first, first + count, 1)), request.reqId))
        if not self.rows:
            asyncio.get_running_loop().call_soon(self.commit)
        self.rows.append((frame,))
        self.waiting.append((transport, LENGTH.pack(len(body)) + body))

    def commit(self) -> None:
        assert self.connection is not None
        self.connection.execute("begin")
        self.connection.executemany("insert into log(body) values(?)", self.rows)
        self.connection.execute("commit")
        waiting = self.waiting
        self.rows, self.waiting = [], []
        if len(self.kept) > 1000:
            self.kept.clear()
        for transport, reply in waiting:
            transport.write(reply)


class BarePeer(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, bare: BareServer) -> None:
        self._bare = bare
        self._buffer = bytearray(1 << 18)
        self._end = 0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._end == len(self._buffer):
            self._buffer += bytes(len(self._buffer))
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        buffer, position, end = self._buffer, 0, self._end
        while end - position >= 4:
            length = LENGTH.unpack_from(buffer, position)[0]
            if end - position - 4 < length:
                break
            self._bare.answer(self._transport, bytes(memoryview(buffer)[position + 4 : position + 4 + length]))
            position += 4 + length
        rest = buffer[position:end]
        if position:
            self._buffer = bytearray(max(1 << 18, len(rest)))
            self._buffer[: len(rest)] = rest
            self._end = len(rest)


async def main(kind: str, directory: str) -> None:
    loop = asyncio.get_running_loop()
    bare = BareServer(directory if kind == "commit" else None)
    server = await loop.create_server(lambda: BarePeer(bare), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*sys.argv[1:3]))
