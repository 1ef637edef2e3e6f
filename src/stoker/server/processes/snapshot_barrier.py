"""Stops all processes of a server at the same moment, for a snapshot.

A snapshot must not show a message as received in one process and not yet sent in another, so all processes stop their
turns before the first one goes on. One process, the host, leads; the others connect to a socket in the snapshot's
folder:

    guest: ready     it can stop at once: its next log file is there, and its upkeep rests
    host:  stop
    guest: stopped   it holds its lock: no turns from now on
    host:  go        after stopping itself. All begin the next log file, and go on

Event loops may wait for the locks meanwhile, so all of this runs on threads, with their own blocking sockets. A process
that does not answer in time ends the meeting: all go on, and there is no snapshot.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from stoker.brokers.directory_socket import SocketPath
from stoker.model.errors import Unavailable

NAME: Final = "meeting"
READY, STOP, STOPPED, GO = b"r", b"s", b"p", b"g"
READY_S: Final = 60.0
"""How long a process may take to come: its upkeep may be finishing a log file."""
LOOK_S: Final = 0.02
STOP_S: Final = 5.0
"""How long all processes may take to stop. Those that have stopped wait, and serve no requests."""


class BarrierLeader:
    """The process that leads the meeting."""

    def __init__(self, folder: Path, others: int, ready_s: float = READY_S, stop_s: float = STOP_S) -> None:
        self._others = others
        self._ready_s, self._stop_s = ready_s, stop_s
        self._place = SocketPath(folder, NAME)
        self._bound = self._place.listen()
        self._bound.settimeout(LOOK_S)
        self._is_over = False
        self._guests: list[socket.socket] = []

    def ready(self) -> None:
        until = time.monotonic() + self._ready_s
        try:
            while len(self._guests) < self._others:
                self._let_in(until)
            for guest in self._guests:
                expect(guest, READY, self._ready_s)
            self._tell(STOP)
            for guest in self._guests:
                expect(guest, STOPPED, self._stop_s)
        except OSError as error:
            self.end()
            raise missed(error) from None

    def _let_in(self, until: float) -> None:
        """Accept the next guest. Nothing wakes a thread that waits in accept, so it looks now and then."""
        if self._is_over or time.monotonic() > until:
            raise TimeoutError("not all processes came")
        with suppress(TimeoutError):
            self._guests.append(self._bound.accept()[0])

    def paused(self) -> None:
        try:
            self._tell(GO)
        except OSError as error:
            self.end()
            raise missed(error) from None

    def _tell(self, word: bytes) -> None:
        for guest in self._guests:
            guest.sendall(word)

    def end(self) -> None:
        """From any thread: all that still wait, including this process, go on without a snapshot."""
        self._is_over = True
        for guest in list(self._guests):
            with suppress(OSError):
                guest.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._place.remove()
        self._bound.close()
        for guest in self._guests:
            guest.close()
        self._place.close()


class BarrierMember:
    """Each of the other processes."""

    def __init__(self, folder: Path, ready_s: float = READY_S, stop_s: float = STOP_S) -> None:
        self._ready_s, self._stop_s = ready_s, stop_s
        self._place = SocketPath(folder, NAME)
        self._host = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def ready(self) -> None:
        self._host.settimeout(self._ready_s)
        try:
            self._host.connect(self._place.address)
            self._host.sendall(READY)
            expect(self._host, STOP, self._ready_s)
        except OSError as error:
            raise missed(error) from None

    def paused(self) -> None:
        try:
            self._host.sendall(STOPPED)
            expect(self._host, GO, self._stop_s)
        except OSError as error:
            raise missed(error) from None

    def close(self) -> None:
        self._host.close()
        self._place.close()


def expect(peer: socket.socket, word: bytes, within_s: float) -> None:
    peer.settimeout(within_s)
    if peer.recv(1) != word:
        raise ConnectionError("the other side has left")


def missed(error: OSError) -> Unavailable:
    return Unavailable(
        f"no snapshot: the processes of the server did not stop at the same moment ({error}); try again when it is"
        " less busy, or has started"
    )
