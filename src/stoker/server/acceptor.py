"""Accepts connections while there is room for them.

An event loop's own server accepts all pending connections before it handles the first one, and does not report those
that are still in their TLS handshake: a storm of connections could take every descriptor of the process. Here each
connection gets a place (`connections.py`), or is closed, before the next one is accepted.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from stoker.server.connections import ConnectionPlace, Connections

BACKLOG: Final = 1024
ACCEPTS_A_TURN: Final = 32
"""Then everything else of the event loop has its turn, and connections that were cut off are closed."""
AGAIN_S: Final = 0.2
"""How long nothing is accepted when the system has no descriptor or no memory for it."""
SAID_S: Final = 10.0
"""How often that is logged at most."""
EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

log = logging.getLogger("stoker.server")


class Acceptor:
    """Accepts the connections of one listener."""

    def __init__(
        self,
        connections: Connections,
        transport: str,
        make: Callable[[ConnectionPlace], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
        handshake_s: float = 0.0,
    ) -> None:
        """`handshake_s` bounds the TLS handshake; 0 = the event loop's own bound."""
        self._connections, self._transport, self._make, self._tls = connections, transport, make, tls
        self._handshake_s = (handshake_s or None) if tls is not None else None
        self._loop = asyncio.get_running_loop()
        self._bound: list[socket.socket] = []
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._silent_until = 0.0
        """Until then nothing is said about connections that cannot be accepted."""

    def start(self, bound: Iterable[socket.socket]) -> None:
        """Begin to accept. The sockets are closed with the acceptor."""
        for one in bound:
            self._bound.append(one)
            one.listen(BACKLOG)
            one.setblocking(False)
            self._loop.add_reader(one, self._accept, one)

    def stop_accepting(self) -> None:
        for timer in self._paused.values():
            timer.cancel()
        for one in self._bound:
            self._loop.remove_reader(one)
            one.close()
        self._bound.clear()

    async def close(self) -> None:
        """Accept no more, and give up those that are still being let in."""
        self.stop_accepting()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                connected, peer = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(bound, error)
                return
            connected.setblocking(False)
            address = str(peer[0]) if isinstance(peer, tuple) else "local"
            place = self._connections.enter(self._transport, address, partial(shut, connected))
            if place is None:
                connected.close()
                continue
            task = self._loop.create_task(self._let_in(connected, place))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _pause(self, bound: socket.socket, error: OSError) -> None:
        """Leave those that wait in the kernel's queue until there may be room again."""
        if error.errno not in EXHAUSTED:  # of this one connection, which the peer has given up
            return
        if self._loop.time() >= self._silent_until:
            log.warning("no connection can be accepted at the moment: %s; it is tried again", error.strerror)
            self._silent_until = self._loop.time() + SAID_S
        self._connections.make_room()
        self._loop.remove_reader(bound)
        self._paused[bound] = self._loop.call_later(AGAIN_S, self._loop.add_reader, bound, self._accept, bound)

    async def _let_in(self, connected: socket.socket, place: ConnectionPlace) -> None:
        """Until the protocol has the connection, TLS included. From then on the protocol leaves the connections
        itself."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(place), connected, ssl=self._tls, ssl_handshake_timeout=self._handshake_s
            )
        except OSError:  # TLS failed, or took too long
            self._connections.leave(place)
            connected.close()
        except BaseException:
            self._connections.leave(place)
            connected.close()
            raise


def shut(connected: socket.socket) -> None:
    """End a connection that may have no transport yet, or one that is not ours to close."""
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended by itself
