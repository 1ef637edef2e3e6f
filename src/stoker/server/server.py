"""A broker on the network: its listeners, their start, and their orderly stop.

Each listener is independent: any of them may be off. They share one event loop, one dispatcher and one gate, so that
the same request has the same effect on every transport.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from stoker.brokers.directory_socket import SocketPath
from stoker.brokers.local import LocalBroker
from stoker.model.errors import InvalidRequest, Unsupported
from stoker.server.acceptor import Acceptor
from stoker.server.auth.gate import Gate
from stoker.server.binding import Bound, address_text
from stoker.server.config import ServerConfig, tls_context
from stoker.server.descriptors import limit
from stoker.server.dispatcher import Dispatcher
from stoker.server.history import HistorySampler
from stoker.server.inbox import InboxReading
from stoker.server.served_broker import ServedBroker
from stoker.server.service import Service
from stoker.server.tcp import StreamConnections
from stoker.server.webhooks import Webhooks

if TYPE_CHECKING:
    from stoker.server.processes.links import ProcessSeat
    from stoker.server.processes.team import Team
    from stoker.server.processes.ways import Ways

POLL_S = 0.05
"""How often a draining server looks whether the last job has ended."""

log = logging.getLogger("stoker.server")


class Listener(Protocol):
    """One transport of a server."""

    async def start(self) -> str:
        """Begin to serve: the line that says where."""
        ...

    async def stop_accepting(self) -> None:
        """Take no new connections; those that are there go on."""
        ...

    async def stop(self) -> None:
        """Close everything."""
        ...


class StreamListener:
    """Frames over TCP or a Unix socket."""

    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self._name = name
        self._door = StreamConnections(service, is_local=name == "unix")
        self._acceptor: Acceptor | None = None
        self._path: Path | None = None

    async def start(self) -> str:
        service, config = self._service, self._service.config
        bound = service.bound.take(self._name)
        tls = None if self._name == "unix" else tls_context(config.tcp.tls)
        self._acceptor = Acceptor(service.connections, self._name, self._door.connect, tls, config.server.handshake_s)
        self._acceptor.start(bound)
        if self._name == "unix":
            if config.processes == 1 and config.unix.path is not None:  # else the supervisor removes it
                self._path = Path(config.unix.path)
            return f"unix   {config.unix.path}"
        return f"tcp    {address_text(bound[0])}"

    async def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop_accepting()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def stop(self) -> None:
        await self.stop_accepting()
        if self._acceptor is not None:
            await self._acceptor.close()
        await self._door.close()


class Server:
    """All listeners of one process over one broker."""

    def __init__(
        self,
        config: ServerConfig,
        broker: ServedBroker,
        seat: "ProcessSeat | None" = None,
        bound: Bound | None = None,
        ways: "Ways | None" = None,
    ) -> None:
        """`seat` says which of several processes this is, and `ways` how it reaches the others: None = Unix sockets.

        `bound` has the sockets that are bound already.
        """
        self.config = config
        self.broker = broker
        self.gate = Gate(config.auth)
        self.dispatcher = dispatcher_for(config, broker)
        self.service = Service(self.dispatcher, self.gate, config)
        if broker.counters is not None:
            broker.counters.refuse_schedules_when(self.service.is_over)
        self.service.webhooks = self.webhooks = Webhooks(self.dispatcher, config.webhooks)
        self.inbox = InboxReading(self.service)
        self.service.inbox_report = self.inbox.report
        self.service.bound = bound or Bound()
        self.team: Team | None = None
        if seat is not None:
            from stoker.server.processes.member import join
            from stoker.server.processes.ways import UnixWays

            ways = ways or UnixWays(seat.directory, seat.number)
            self.team = join(self.service, seat, ways, local(broker))
        self._listeners: list[Listener] = [make(self.service) for make in wanted(config)]
        if self.team is not None and self.team.seat.directory and self.team.seat.number == 0:
            self._listeners.append(shared_data_socket(self.team, self.service, local(broker)))
        elif isinstance(broker, LocalBroker) and (place := broker.data_directory) is not None and place.notice:
            self._listeners.append(data_socket(self.service, broker, place.path))
        self._sampler = HistorySampler(broker.counters)
        self._at_once = asyncio.Event()

    async def start(self) -> list[str]:
        """Begin to serve on every listener, or on none: the lines that say where."""
        lines: list[str] = []
        try:
            if self.team is not None:
                await self.team.start()
            await self.webhooks.start()
            await self.service.bound.bind(self.config)
            for listener in self._listeners:
                lines.append(await listener.start())  # noqa: PERF401  those that have started must be known
            if self.team is None or self.team.seat.number == 0:
                await self.inbox.start()
        except OSError as error:
            await self.close()
            raise InvalidRequest(
                f"cannot listen: {error.strerror or error}; choose another address, or end what is there"
            ) from None
        except BaseException:
            await self.close()
            raise
        self._sampler.start()
        self._say_if_bounded()
        return [line for line in lines if line]

    def _say_if_bounded(self) -> None:
        wanted, most = self.config.server.connections_max, self.service.bounds().all
        if most < wanted:
            log.warning(
                "at most %d connections and not server.connections_max = %d: the limit of open files is %d;"
                " raise it (ulimit -n, or LimitNOFILE of systemd), or lower server.connections_max",
                most,
                wanted,
                limit(),
            )

    def reload(self, config: ServerConfig) -> None:
        """Take over tokens, keys, quotas and limits. Raises, and changes nothing, if they are no good."""
        self.gate.reload(config.auth)
        kept = msgspec.structs.replace(self.config, auth=config.auth, server=config.server, limits=config.limits)
        self.config = self.service.config = kept
        self.broker.set_limits(config.limits)

    def hurry(self) -> None:
        """Do not wait for running jobs any longer."""
        self._at_once.set()

    async def stop(self) -> None:
        """Give out no more jobs, let running ones end for a while, hand the rest back, and close."""
        for listener in self._listeners:
            await listener.stop_accepting()
        await self.inbox.close()
        await self.dispatcher.stop_dispatching()
        await self._drain()
        await self.close()

    async def _drain(self) -> None:
        counters, remote = self.broker.counters, self.broker.remote
        moves = self.team is not None and self.team.seat.can_move
        if moves or (counters is None and remote is None):
            return  # the queue outlives this server: its workers settle their jobs through another one
        loop = asyncio.get_running_loop()
        until = loop.time() + self.config.stop.drain_s
        while await self._active() and loop.time() < until and not self._at_once.is_set():
            try:
                async with asyncio.timeout(POLL_S):
                    await self._at_once.wait()
            except TimeoutError:
                pass
        handed_back = 0
        if counters is not None:
            handed_back = counters.hand_back_all()
        elif remote is not None:
            handed_back = await remote.hand_back_all()
        if handed_back:
            log.info("handed %d running jobs back; no attempt is counted for them", handed_back)

    async def _active(self) -> int:
        """How many jobs run, in all processes: workers that are connected here may have jobs of another one.

        Of several servers in front of one broker, each waits for the jobs that were pulled through it.
        """
        if self.team is not None:
            from stoker.server.processes.member import active_everywhere

            return await active_everywhere(self.team)
        if self.broker.counters is not None:
            return sum(stats.counts.active for stats in self.broker.counters.shard_stats())
        return self.broker.remote.running() if self.broker.remote is not None else 0

    async def close(self) -> None:
        """Close every connection, at once."""
        await self.inbox.close()
        for listener in self._listeners:
            await listener.stop()
        await self._sampler.close()
        await self.webhooks.close()
        await self.dispatcher.close()
        self.service.bound.close()
        if self.team is not None:
            await self.team.close()


def local(broker: ServedBroker) -> LocalBroker:
    """Only the local engine can be shared by several processes."""
    if not isinstance(broker, LocalBroker):
        raise Unsupported.by(broker.name, "a server in several processes")
    return broker


def dispatcher_for(config: ServerConfig, broker: ServedBroker) -> Dispatcher:
    """The one that tells OpenTelemetry is another one, so that this one costs nothing."""
    if not config.tracing.enabled:
        return Dispatcher(broker)
    from stoker.server.spans import TracedDispatcher

    return TracedDispatcher(broker, tenants=config.metrics.tenant_labels)


def wanted(config: ServerConfig) -> list[Callable[[Service], Listener]]:
    """The listeners that are on. What one needs is loaded only if it is."""
    found: list[Callable[[Service], Listener]] = []
    if config.tcp.address is not None:
        found.append(lambda service: StreamListener(service, "tcp"))
    if config.unix.path is not None:
        found.append(lambda service: StreamListener(service, "unix"))
    if config.http.address is not None:
        from stoker.server.http.listener import HttpPort

        found.append(HttpPort)
    if config.grpc.address is not None:
        from stoker.server.grpc.listener import GrpcPort

        found.append(GrpcPort)
    return found


def data_socket(service: Service, broker: LocalBroker, directory: Path) -> Listener:
    """Lets programs that embed the queue use the directory beside the server, as they share it with each other."""
    from stoker.server.sharing import SharedListener
    from stoker.server.snapshots import of_broker

    return SharedListener(
        service.dispatcher, SocketPath(directory.resolve()), of_broker(broker), connections=service.connections
    )


def shared_data_socket(team: "Team", service: Service, broker: LocalBroker) -> Listener:
    """The same for a server in several processes: one of them lets the programs in, for all."""
    from stoker.server.processes.member import snapshots_of
    from stoker.server.sharing import SharedListener

    place = SocketPath(Path(team.seat.directory))
    return SharedListener(service.dispatcher, place, snapshots_of(team, broker), connections=service.connections)
