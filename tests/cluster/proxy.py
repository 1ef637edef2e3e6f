"""A TCP proxy whose ways can be cut: connections are broken, or what is sent one way does not arrive any more."""

import socket
import threading
from contextlib import suppress

CHUNK = 65_536


def listeners_in_a_row(count: int) -> list[socket.socket]:
    """Sockets that listen on neighbouring ports."""
    while True:
        found = [socket.create_server(("127.0.0.1", 0))]
        try:
            for _ in range(count - 1):
                found.append(socket.create_server(("127.0.0.1", found[-1].getsockname()[1] + 1)))
            return found
        except (OSError, OverflowError):
            for each in found:
                each.close()


class Proxy:
    """Passes connections on to a port of this machine, until it is told otherwise."""

    def __init__(self, target: int, listener: socket.socket | None = None) -> None:
        self._target = target
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._there, self._back, self._accepts = threading.Event(), threading.Event(), threading.Event()
        """Whether what is sent to the target arrives, and what it answers; whether new connections are passed on."""
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._is_over = False
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections, and take no new ones."""
        self._accepts.clear()
        self.break_all()

    def hold(self, there: bool = False, back: bool = False) -> None:
        """What is sent this way waits; the connections stay."""
        for event, is_held in ((self._there, there), (self._back, back)):
            if is_held:
                event.clear()

    def break_all(self) -> None:
        for pair in list(self._pairs):
            self._break(pair)

    def heal(self) -> None:
        for event in (self._there, self._back, self._accepts):
            event.set()

    def close(self) -> None:
        self._is_over = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self.break_all()

    def _accept(self) -> None:
        while not self._is_over:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._accepts.is_set():
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 5)
                server.settimeout(None)  # the 5 s are for connecting: a connection may be idle for longer
            except OSError:
                client.close()
                continue
            pair = (client, server)
            for end in pair:  # else small answers wait 40 ms for an acknowledgement
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.add(pair)
            threading.Thread(target=self._pump, args=(client, server, self._there, pair), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, self._back, pair), daemon=True).start()

    def _pump(
        self, source: socket.socket, sink: socket.socket, gate: threading.Event, pair: tuple[socket.socket, ...]
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                gate.wait()
                sink.sendall(data)
        self._break((pair[0], pair[1]))

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.discard(pair)
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
