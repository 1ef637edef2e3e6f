"""Brokers of the conformance suite that are reached over a network, through a server in another process."""

from typing import Any

from stoker.brokers.connect import open_broker
from stoker.model.limits import Limits
from stoker.model.options import Settings
from tests.served.process import ServerProcess, the_process


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
    ) -> None:
        self._process: ServerProcess = the_process()
        verb = "open" if processes == 1 else "open2"
        self._world, where = self._process.call(verb, transport, settings, limits, shards, on_disk)
        self.broker = open_broker(f"{transport}://{where}{parameters}")

    @property
    def now(self) -> int:
        return int(self._process.call("now", self._world))

    def advance(self, ms: int) -> None:
        self._process.call("advance", self._world, ms)

    def picture(self, tenant: str) -> Any:
        return self._process.call("picture", self._world, tenant)

    def close(self) -> None:
        self.broker.close()
        self._process.call("close", self._world)


def tcp_msgpack(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("tcp", settings, limits, shards)


def tcp_2_processes(settings: Settings, limits: Limits, shards: int) -> Served:
    """Two servers over one directory, the client at the one that has half of the shards, or none of one."""
    return Served("tcp", settings, limits, shards, processes=2)


def tcp_json(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("tcp", settings, limits, shards, "?codec=json")


def unix(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("unix", settings, limits, shards, on_disk=True)


def http(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("http", settings, limits, shards)


def grpc(settings: Settings, limits: Limits, shards: int) -> Served:
    return Served("grpc", settings, limits, shards)
