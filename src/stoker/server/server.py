"""A broker on the network: its listeners, their start, and their stop in good order.

Each listener stands for itself: any of them may be off, and none needs another. They share one event loop, one desk and
one gate, so that the same request has the same effect wherever it comes in.
"""

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stoker.brokers.hosting import Place
from stoker.brokers.local import LocalBroker
from stoker.model.errors import InvalidRequest
from stoker.server.auth.gate import Gate
from stoker.server.config import ServerConfig, tls_context
from stoker.server.desk import Desk
from stoker.server.service import Service
from stoker.server.tcp import Door
from stoker.server.webhooks import Webhooks

if TYPE_CHECKING:
    from stoker.server.processes.links import Seat
    from stoker.server.processes.team import Team

BACKLOG = 1024
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
        self._door = Door(service, is_local=name == "unix")
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def start(self) -> str:
        loop, config = asyncio.get_running_loop(), self._service.config
        if self._name == "unix":
            assert config.unix.path is not None
            bound = self._service.unix_socket
            if bound is None:
                self._path = Path(config.unix.path)
                bound = bind_unix(self._path, config.unix.permissions)
            self._server = await loop.create_unix_server(self._door.connect, sock=bound, backlog=BACKLOG)
            return f"unix   {config.unix.path}"
        address = config.tcp.address
        assert address is not None
        tls = tls_context(config.tcp.tls)
        self._server = await loop.create_server(
            self._door.connect,
            address.host,
            address.port,
            ssl=tls,
            ssl_handshake_timeout=(config.server.handshake_s or None) if tls is not None else None,
            backlog=BACKLOG,
            reuse_port=config.processes > 1,
        )
        return f"tcp    {told(self._server.sockets[0])}"

    async def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def stop(self) -> None:
        await self.stop_accepting()
        await self._door.close()


class Server:
    """All listeners of one process over one broker."""

    def __init__(
        self,
        config: ServerConfig,
        broker: LocalBroker,
        seat: "Seat | None" = None,
        unix_socket: socket.socket | None = None,
    ) -> None:
        """`seat` says which of several processes this is, whose Unix socket is bound already."""
        self.config = config
        self.broker = broker
        self.gate = Gate(config.auth)
        self.desk = desk_for(config, broker)
        self.service = Service(self.desk, self.gate, config)
        self.service.webhooks = self.webhooks = Webhooks(self.desk, config.webhooks)
        self.service.unix_socket = unix_socket
        self.team: Team | None = None
        if seat is not None:
            from stoker.server.processes.member import join

            self.team = join(self.service, seat)
        self._listeners: list[Listener] = [make(self.service) for make in wanted(config)]
        if broker.store is not None and broker.store.directory.notice:
            self._listeners.append(data_socket(self.desk, broker.store.directory.path))
        self._at_once = asyncio.Event()

    async def start(self) -> list[str]:
        """Begin to serve on every listener, or on none: the lines that say where."""
        lines: list[str] = []
        try:
            if self.team is not None:
                await self.team.start()
            await self.webhooks.start()
            for listener in self._listeners:
                lines.append(await listener.start())  # noqa: PERF401  those that have started must be known
        except OSError as error:
            await self.close()
            raise InvalidRequest(
                f"cannot listen: {error.strerror or error}; choose another address, or end what is there"
            ) from None
        except BaseException:
            await self.close()
            raise
        return [line for line in lines if line]

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
        await self.desk.stop_dispatching()
        await self._drain()
        await self.close()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.config.stop.drain_s
        while await self._active() and loop.time() < until and not self._at_once.is_set():
            try:
                async with asyncio.timeout(POLL_S):
                    await self._at_once.wait()
            except TimeoutError:
                pass
        handed_back = self.broker.hand_back_all()
        if handed_back:
            log.info("handed %d running jobs back; no attempt is counted for them", handed_back)

    async def _active(self) -> int:
        """How many jobs run, in all processes: workers that are connected here may have jobs of another one."""
        if self.team is not None:
            from stoker.server.processes.member import active_everywhere

            return await active_everywhere(self.team)
        return sum(stats.counts.active for stats in self.broker.shard_stats())

    async def close(self) -> None:
        """Close every connection, at once."""
        for listener in self._listeners:
            await listener.stop()
        await self.webhooks.close()
        await self.desk.close()
        if self.team is not None:
            await self.team.close()


def desk_for(config: ServerConfig, broker: LocalBroker) -> Desk:
    """The one that tells OpenTelemetry is another one, so that this one costs nothing."""
    if not config.tracing.enabled:
        return Desk(broker)
    from stoker.server.spans import TracedDesk

    return TracedDesk(broker, tenants=config.metrics.tenant_labels)


def wanted(config: ServerConfig) -> list[Callable[[Service], Listener]]:
    """The listeners that are on. What one needs is loaded only if it is."""
    found: list[Callable[[Service], Listener]] = []
    if config.tcp.address is not None:
        found.append(lambda service: StreamListener(service, "tcp"))
    if config.unix.path is not None:
        found.append(lambda service: StreamListener(service, "unix"))
    if config.http.address is not None:
        from stoker.server.http.listener import HttpListener

        found.append(HttpListener)
    if config.grpc.address is not None:
        from stoker.server.grpc.listener import GrpcListener

        found.append(GrpcListener)
    return found


def data_socket(desk: Desk, directory: Path) -> Listener:
    """Lets programs that embed the queue use the directory beside the server, as they share it with each other."""
    from stoker.server.sharing import SharedListener

    return SharedListener(desk, Place(directory.resolve()))


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


def told(bound: Any) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
