"""One moment for all processes of a server: the one that a snapshot shows.

A process may not have heard of a message that another one has not sent yet, so all of them stop their turns before the
first one goes on. One process, the host, leads; each other one connects to a socket in the snapshot's folder:

    guest: ready     every process can stop at once: its next log file is there, and its upkeep rests
    host:  stop
    guest: stopped   it holds its lock: no turns from now on
    host:  go        after stopping itself. Everybody begins the next log file, and goes on

Event loops may wait for the locks meanwhile, so all of this happens on threads, with blocking sockets of their own.
A process that does not answer in time ends the meeting: all go on, and there is no snapshot.
"""

import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from stoker.brokers.hosting import Place
from stoker.model.errors import Unavailable

NAME: Final = "meeting"
READY, STOP, STOPPED, GO = b"r", b"s", b"p", b"g"
READY_S: Final = 60.0
"""For a process to come: its upkeep may be finishing a log file."""
LOOK_S: Final = 0.02
STOP_S: Final = 5.0
"""For all processes to stop. Processes that have stopped wait, and serve no requests."""


class Host:
    """The process that leads a meeting with so many others."""

    def __init__(self, folder: Path, others: int, ready_s: float = READY_S, stop_s: float = STOP_S) -> None:
        self._others = others
        self._ready_s, self._stop_s = ready_s, stop_s
        self._place = Place(folder, NAME)
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
        """The next one who comes. Nothing wakes a thread that waits for one, so it looks now and then."""
        if self._is_over or time.monotonic() > until:
            raise TimeoutError("not all of them came")
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
        """From any thread: who still waits, this process included, goes on without a snapshot."""
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


class Guest:
    """Each of the others."""

    def __init__(self, folder: Path, ready_s: float = READY_S, stop_s: float = STOP_S) -> None:
        self._ready_s, self._stop_s = ready_s, stop_s
        self._place = Place(folder, NAME)
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
