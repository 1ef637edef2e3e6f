"""Binds the sockets of a server's listeners before anything else is opened, so that a port in use is reported early."""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stoker.model.errors import InvalidRequest
from stoker.server.config import ListenAddress, ServerConfig


class Bound:
    """The sockets that a configuration asks for, before they are listened at."""

    def __init__(self, sockets: dict[str, list[socket.socket]] | None = None) -> None:
        self._sockets = sockets or {}
        self._unlinked_with: Path | None = None

    async def bind(self, config: ServerConfig) -> None:
        """Bind what is not bound yet: everything, or nothing. gRPC binds for itself: its port is only tried."""
        try:
            for name, address in config.listeners.items():
                if name in self._sockets:
                    continue
                sockets = await bind(name, address, is_shared=config.processes > 1)
                if name == "grpc":
                    close_all(sockets)
                else:
                    self._sockets[name] = sockets
            if config.unix.path is not None and "unix" not in self._sockets:
                self._sockets["unix"] = [bind_unix(Path(config.unix.path), config.unix.permissions)]
                self._unlinked_with = Path(config.unix.path)
        except BaseException:
            self.close()
            raise

    def take(self, name: str) -> list[socket.socket]:
        """Those of a listener, which closes them from now on. Empty if they are not bound."""
        return self._sockets.pop(name, [])

    def close(self) -> None:
        """Close what was not taken."""
        if "unix" in self._sockets and self._unlinked_with is not None:
            self._unlinked_with.unlink(missing_ok=True)
        for name in list(self._sockets):
            close_all(self._sockets.pop(name))


async def bind(name: str, address: ListenAddress, *, is_shared: bool) -> list[socket.socket]:
    """A socket for each address that the host has. `is_shared`: other processes may bind the same port."""
    found: list[socket.socket] = []
    try:
        for family, where in await addresses_of(address):
            port = address.port or (found[0].getsockname()[1] if found else 0)
            try:
                found.append(bound_socket(family, (where[0], port, *where[2:]), is_shared=is_shared))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL or not found:
                    raise
    except OSError as error:
        close_all(found)
        raise cannot_listen(name, address, error) from None
    return found


async def addresses_of(address: ListenAddress) -> list[tuple[int, Any]]:
    """IPv4 first: `address_text` names the first one."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return sorted(dict.fromkeys((entry[0], entry[4]) for entry in found), key=lambda one: one[0])


def bound_socket(family: int, where: Any, *, is_shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(where)
    except BaseException:
        bound.close()
        raise
    return bound


def cannot_listen(name: str, address: ListenAddress, error: OSError) -> InvalidRequest:
    return InvalidRequest(
        f"cannot listen at {address} for {name}: {error.strerror or error}; choose another address, or end what is"
        " there"
    )


def close_all(sockets: Iterable[socket.socket]) -> None:
    for one in sockets:
        one.close()


def bind_unix(path: Path, mode: int) -> socket.socket:
    """A socket in the file system that only those may use whom its mode lets in, from its first moment on."""
    if path.exists():
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InvalidRequest(f"{path} exists and is not a socket: choose another path")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink(missing_ok=True)  # its owner is gone
            else:
                raise InvalidRequest(f"another server listens at {path}: end it, or choose another path")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        bound.bind(str(path))
    except OSError as error:
        bound.close()
        raise InvalidRequest(f"cannot listen at {path}: {error.strerror}") from None
    finally:
        os.umask(before)
    return bound


def address_text(bound: Any) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
