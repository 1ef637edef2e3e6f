"""The two clients over TCP: JSON lines, and MessagePack in frames of four bytes of length.

The first says nothing about itself, as flashQ's own clients do. The second says HELLO, and that it names the delivery
by its token only where it wants to.
"""

import json
import socket
import struct
from typing import Any

import msgspec

from tests.reference_clients.calling import PATIENCE_S, Answer, Pool, checked

LENGTH = struct.Struct(">I")


class Lines:
    """A connection that speaks JSON, one object a line."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), PATIENCE_S)
        self._file = self._socket.makefile("rb")

    def ask(self, request: Answer) -> Answer:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer: Answer = json.loads(self._file.readline())
        return answer

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Frames:
    """A connection that speaks MessagePack, one map a frame."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), PATIENCE_S)
        self._file = self._socket.makefile("rb")
        checked(self.ask({"cmd": "HELLO", "client": "a stranger", "tokens": False}))

    def ask(self, request: Answer) -> Answer:
        body = msgspec.msgpack.encode(request)
        self._socket.sendall(LENGTH.pack(len(body)) + body)
        (length,) = LENGTH.unpack(self._file.read(LENGTH.size))
        answer: Answer = msgspec.msgpack.decode(self._file.read(length))
        return answer

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class OverSockets:
    """A client: each call takes a connection of its own, so that one that waits holds back nobody."""

    def __init__(self, kind: type[Lines] | type[Frames], address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connect = lambda: kind(host, int(port))
        self._pool: Pool[Lines | Frames] = Pool()
        self._number = 0

    def call(self, cmd: str, tenant: str, **fields: Any) -> Answer:
        """A command of flashQ's dialect."""
        return self._ask({"cmd": cmd, "tenant": tenant, **fields})

    def read_events(self, tenant: str, **fields: Any) -> Answer:
        """Events by pages: a command of Stoker's own dialect, which may be mixed in."""
        found: Answer = self._ask({"cmd": "read_events", "tenant": tenant, "body": fields})["body"]
        return found

    def _ask(self, request: Answer) -> Answer:
        self._number += 1
        number = f"r{self._number}"
        connection = self._pool.take() or self._connect()
        try:
            answer = connection.ask({"reqId": number, **request})
        except BaseException:
            connection.close()
            raise
        self._pool.give_back(connection)
        if answer["ok"] or "reqId" in answer:  # what could not be read at all is refused without its number
            assert answer.pop("reqId") == number
        return checked(answer)

    def close(self) -> None:
        self._pool.close()
