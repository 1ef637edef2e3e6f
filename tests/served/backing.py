"""Brokers of the conformance suite that are reached over a network, through a server in another process."""

from collections.abc import Callable
from itertools import count, cycle
from typing import Any

from stoker.brokers.connect import open_broker
from stoker.journal.postgres.schema import install, remove
from stoker.model.limits import Limits
from stoker.model.options import Settings
from tests.postgres_server import shared
from tests.served.process import NODES, ServerProcess, the_process

_numbers = count(1)


class Served:
    """A client's broker and the clock of the server behind it."""

    def __init__(
        self,
        transport: str,
        settings: Settings,
        limits: Limits,
        shards: int,
        parameters: str = "",
        on_disk: bool = False,
        processes: int = 1,
        has_turns: bool = True,
    ) -> None:
        self._process: ServerProcess = the_process()
        if processes == 1:
            asked: tuple[Any, ...] = ("open", transport, settings, limits, shards, on_disk, has_turns)
        else:
            asked = ("open2", transport, settings, limits, shards, on_disk)
        self._world, where = self._process.call(*asked)
        self.broker: Any = open_broker(f"{transport}://{where}{parameters}")
        if processes > 1 and shards > 1:
            self.broker = Settling(self.broker, self._settle)

    @property
    def now(self) -> int:
        return int(self._process.call("now", self._world))

    def advance(self, ms: int) -> None:
        self._process.call("advance", self._world, ms)

    def _settle(self) -> None:
        self._process.call("settle", self._world)

    def picture(self, tenant: str) -> Any:
        return self._process.call("picture", self._world, tenant)

    def close(self) -> None:
        self.broker.close()
        self._process.call("close", self._world)


class InCluster(Served):
    """Three nodes; each command goes to the next one."""

    def __init__(self, settings: Settings, limits: Limits, shards: int) -> None:
        self._process = the_process()
        self._url = f"{shared().url()}?schema=nodes_{next(_numbers)}"
        install(self._url, shards, min(NODES, shards))
        self._world, where = self._process.call("open3", "tcp", settings, limits, shards, self._url)
        self._nodes = [open_broker(f"tcp://{each}") for each in where.split(",")]
        self.broker: Any = Settling(InTurn(self._nodes), self._settle)

    def close(self) -> None:
        super().close()
        remove(self._url)


class InTurn:
    """Asks one broker after the other."""

    def __init__(self, brokers: list[Any]) -> None:
        self._brokers, self._turns = brokers, cycle(brokers)

    def execute(self, tenant: str, command: Any) -> Any:
        return next(self._turns).execute(tenant, command)

    async def execute_async(self, tenant: str, command: Any) -> Any:
        return await next(self._turns).execute_async(tenant, command)

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()


class Settling:
    """Servers write letters to each other that no client waits for: the next command comes when all have arrived."""

    def __init__(self, broker: Any, settle: Callable[[], None]) -> None:
        self._broker, self._settle = broker, settle
        self.close = broker.close

    def execute(self, tenant: str, command: Any) -> Any:
        try:
            return self._broker.execute(tenant, command)
        finally:
            self._settle()

    async def execute_async(self, tenant: str, command: Any) -> Any:
        try:
            return await self._broker.execute_async(tenant, command)
        finally:
            self._settle()


def tcp_msgpack(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("tcp", settings, limits, shards)


def cluster(settings: Settings, limits: Limits, shards: int) -> InCluster:
    """Three nodes of a cluster in PostgreSQL, asked in turn."""
    return InCluster(settings, limits, shards)


def tcp_2_processes(settings: Settings, limits: Limits, shards: int) -> Served:
    """Two servers over one directory, the client at the one that has half of the shards, or none of one."""
    return Served("tcp", settings, limits, shards, processes=2)


def tcp_without_turns(settings: Settings, limits: Limits, shards: int) -> Served:
    """A broker that the server gives each command as a task of its own."""
    return Served("tcp", settings, limits, shards, has_turns=False)


def tcp_json(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("tcp", settings, limits, shards, "?codec=json")


def unix(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("unix", settings, limits, shards, on_disk=True)


def http(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("http", settings, limits, shards)


def grpc(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("grpc", settings, limits, shards)
