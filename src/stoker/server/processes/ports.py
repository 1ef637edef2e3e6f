"""The addresses that all processes of a server share: bound once and kept, so that no other program can take them.

Every process listens for itself (SO_REUSEPORT), and the kernel distributes the connections. The supervisor holds each
port without listening on it: it stays reserved while a process restarts, and port 0 is the same for all.
"""

import socket
from pathlib import Path
from typing import Any

import msgspec

from stoker.server.acceptor import BACKLOG
from stoker.server.binding import bind_unix, bound_socket, cannot_listen
from stoker.server.config import ListenAddress, ServerConfig


class Ports:
    """The ports held for a configuration, now with their numbers."""

    def __init__(self, config: ServerConfig) -> None:
        self._held: list[socket.socket] = []
        self.unix: socket.socket | None = None
        self._path: Path | None = None
        self.config = config
        try:
            self.config = self._taken(config)
        except BaseException:
            self.close()
            raise

    def _taken(self, config: ServerConfig) -> ServerConfig:
        for name, address in config.listeners.items():
            section: Any = getattr(config, name)
            listen = str(self._hold(name, address))
            config = msgspec.structs.replace(config, **{name: msgspec.structs.replace(section, listen=listen)})
        if config.unix.path is not None:
            self._path = Path(config.unix.path)
            self.unix = bind_unix(self._path, config.unix.permissions)
            self.unix.listen(BACKLOG)
            self.unix.setblocking(False)
        return config

    def _hold(self, name: str, address: ListenAddress) -> ListenAddress:
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, where = found[0][0], found[0][4]
            bound_socket(family, where, is_shared=False).close()  # another program could share the port with us
            held = bound_socket(family, where, is_shared=True)
            self._held.append(held)
        except OSError as error:
            raise cannot_listen(name, address, error) from None
        return address._replace(port=held.getsockname()[1])

    def stop_accepting(self) -> None:
        """Remove the Unix socket, so that no new client finds it."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        self.stop_accepting()
        for held in self._held:
            held.close()
        if self.unix is not None:
            self.unix.close()
