"""The socket in a data directory: where its owner lets other processes of the same user in.

A thread waits for the first of them. Only when one comes are the parts of a server loaded and an event loop started,
so a process that is alone pays only for a socket and a sleeping thread.
"""

import logging
import os
import selectors
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.brokers.local import LocalBroker
from stoker.brokers.remote.forking import leave_to_parent
from stoker.model.errors import CannotOpen

if TYPE_CHECKING:
    from stoker.server.sharing import Sharing

NAME = "socket"
MODE = 0o600
BACKLOG = 1024
ADDRESS_BYTES_MAX = 100
"""Of a socket's path: systems take 104 to 108."""
STOP_S = 5.0
"""For the last answers of an owner that closes; clients without an answer by then ask the next owner."""

log = logging.getLogger("stoker.sharing")


class SocketPath:
    """The socket of a directory as a path that the system takes, however long the directory's own is."""

    def __init__(self, directory: Path, name: str = NAME) -> None:
        self._descriptor: int | None = None
        self.file = directory / name
        self.address = str(self.file)
        if len(os.fsencode(self.address)) > ADDRESS_BYTES_MAX:
            if not Path("/proc/self/fd").is_dir():
                raise CannotOpen(
                    f"{directory} cannot be shared: its path is too long for a socket in it; use a shorter one"
                )
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self.address = f"/proc/self/fd/{self._descriptor}/{name}"

    def listen(self) -> socket.socket:
        """For the directory's owner alone. No process can connect before the permissions are right."""
        self.remove()  # of an owner that was killed
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(self.address)
            os.chmod(self.address, MODE)
            bound.listen(BACKLOG)
        except BaseException:
            bound.close()
            raise
        bound.setblocking(False)
        return bound

    def remove(self) -> None:
        self.file.unlink(missing_ok=True)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class DirectoryHost:
    """What an owner does for others."""

    def __init__(self, broker: LocalBroker, place: SocketPath) -> None:
        self._broker = broker
        self._place = place
        try:
            self._listener = place.listen()
        except OSError as error:
            raise CannotOpen(f"{place.file} cannot be made: {error.strerror or error}") from None
        self._ended, self._end = socket.socketpair()
        self.sharing: Sharing | None = None
        """From the first guest on."""
        self._thread = threading.Thread(target=self._run, name="stoker-sharing", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._somebody_comes():
                from stoker.server.sharing import Sharing

                self.sharing = Sharing(self._broker, self._place, self._listener, self._ended)
                self.sharing.run()
        except Exception:
            log.exception("other processes cannot use %s any more: serving them has failed", self._place.file.parent)
        finally:
            self._listener.close()

    def _somebody_comes(self) -> bool:
        """Sleep until the first connection, or until the end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            ready = selector.select()
        return all(key.fileobj is not self._ended for key, _ in ready)

    def stop(self) -> None:
        """Accept no more connections, and answer the calls that can be answered. The directory is ours until then."""
        self._place.remove()
        self._end.close()
        self._thread.join(STOP_S)
        self._ended.close()

    def forget(self) -> None:
        """In a forked process: close the socket, so no process takes this one for the owner or waits for its end."""
        descriptors = [own.fileno() for own in (self._listener, self._ended, self._end)]
        if self.sharing is not None:
            descriptors += self.sharing.descriptors()
        for descriptor in descriptors:
            if descriptor >= 0:
                leave_to_parent(descriptor)
