"""Serves the other processes of a shared data directory: the server's dispatcher and door over the owner's own broker.

A process that reaches the socket in the directory could as well read its files, so it may do everything. The limits
that protect strangers from each other are off: between processes of one program they would only be in the way.
"""

import asyncio
import socket

from stoker.brokers.directory_socket import SocketPath
from stoker.brokers.local import LocalBroker
from stoker.server.acceptor import Acceptor
from stoker.server.auth.gate import Gate
from stoker.server.config import ServerConfig
from stoker.server.config.tree import ServerLimits
from stoker.server.connections import Connections
from stoker.server.dispatcher import Dispatcher
from stoker.server.run import new_loop
from stoker.server.service import Service
from stoker.server.snapshots import Make, Snapshots, of_broker
from stoker.server.tcp import StreamConnections

GENEROUS = ServerLimits(
    frame_bytes_max=2**31 - 1,
    connections_max=100_000,
    connections_per_address_max=100_000,
    connections_per_second_max=100_000,
    requests_in_flight_max=1_000_000,
    output_buffer_bytes_max=2**31 - 1,
)
LAST_WORDS_S = 1.0
"""For answers that are on their way when the owner closes."""
LOOK_S = 0.002


class SharedListener:
    """The socket in a data directory, on any event loop."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        place: SocketPath,
        make: Make,
        bound: socket.socket | None = None,
        connections: Connections | None = None,
    ) -> None:
        """`connections`: that of the server that serves the directory, whose descriptors these connections take, too.

        `make` makes snapshots of the directory.
        """
        config = ServerConfig(server=GENEROUS, limits=dispatcher.broker.limits)
        service = Service(dispatcher, Gate(), config)
        service.connections = connections or service.connections
        service.snapshots = self._snapshots = Snapshots(place.file.parent, make)
        self.door = StreamConnections(service, is_local=True)
        self._place = place
        self._bound = bound
        self._acceptor: Acceptor | None = None

    async def start(self) -> str:
        """It is nothing that people connect to by name: there is no line to print."""
        self._acceptor = Acceptor(self.door.service.connections, "unix", self.door.connect)
        self._acceptor.start([self._bound or self._place.listen()])
        return ""

    async def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._place.remove()
            await self._acceptor.close()
            self._acceptor = None

    async def stop(self) -> None:
        """Let every connection have its last answers, then close it."""
        await self.stop_accepting()
        await self.door.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + LAST_WORDS_S
        while self.door.connections and loop.time() < until:  # noqa: ASYNC110  no event for a last moment
            await asyncio.sleep(LOOK_S)
        for connection in list(self.door.connections):
            connection.transport.abort()
        await self._snapshots.close()

    def descriptors(self) -> list[int]:
        found = (connection.transport.get_extra_info("socket") for connection in list(self.door.connections))
        return [bound.fileno() for bound in found if bound is not None]


class Sharing:
    """An owner's event loop for others, in a thread of its own."""

    def __init__(self, broker: LocalBroker, place: SocketPath, bound: socket.socket, ended: socket.socket) -> None:
        self._broker = broker
        self._place, self._bound = place, bound
        self._ended = ended
        """Readable when it is time to end."""
        self._listener: SharedListener | None = None
        self.dispatcher: Dispatcher | None = None

    def run(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve())

    def descriptors(self) -> list[int]:
        """Of the connections: a forked process has them too, and must not keep them open."""
        return self._listener.descriptors() if self._listener is not None else []

    async def _serve(self) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._ended.fileno(), end.set)
        dispatcher = self.dispatcher = Dispatcher(self._broker)
        self._listener = SharedListener(dispatcher, self._place, of_broker(self._broker), self._bound)
        await self._listener.start()
        try:
            await end.wait()
        finally:
            loop.remove_reader(self._ended.fileno())
            await self._listener.stop_accepting()
            await dispatcher.stop_dispatching()
            await dispatcher.close()
            await self._listener.stop()
