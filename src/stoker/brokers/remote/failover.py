"""The servers that a URL names: a connection goes to one of them, and to the next one while that one is away.

A URL may name several hosts, and a name may have several addresses. All calls of a broker prefer the same address,
until a connection to it fails or breaks. The first one is chosen at random, so that clients spread over the servers.
"""

import asyncio
import random
import socket
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from stoker.brokers.remote import name_lookup
from stoker.brokers.remote.links import AsyncLink, BlockingLink, TransportLinks, unreachable
from stoker.brokers.remote.settings import RemoteSettings, ServerAddress
from stoker.model.errors import ShuttingDown, StokerError, Unreachable
from stoker.model.steps import carry_out, carry_out_async


class LookUp(msgspec.Struct, frozen=True):
    """Asks for the addresses of a name."""

    host: str
    port: int


class FailoverLinks:
    """Makes connections to the servers of one URL."""

    def __init__(self, links: TransportLinks, address: ServerAddress, settings: RemoteSettings) -> None:
        self._links, self._address, self._settings = links, address, settings
        self._start = random.randrange(1 + len(address.others))
        """Which of them is tried first. It only ever grows; what matters is its remainder."""

    @property
    def is_single(self) -> bool:
        """Whether there is no other server to go to, as far as the URL tells."""
        return not self._address.others and not has_name(self._address)

    def leave(self) -> None:
        """The server that was used last is away, or is shutting down: prefer the next one."""
        self._start += 1

    def connect(self) -> BlockingLink:
        """Raises `Unreachable` if no server answers, or what the first one said that did."""

        def do(step: LookUp | ServerAddress) -> Any:
            if isinstance(step, ServerAddress):
                return self._links.connect(step, self._settings)
            return name_lookup.addresses_of(step.host, step.port, self._settings.connect_timeout_s)

        link: BlockingLink = carry_out(self._steps(), do)
        return link

    async def connect_async(self, lost: "Callable[[AsyncLink], None]") -> AsyncLink:
        """The same for an event loop. `lost` is called once, when the link is of no more use."""

        async def do(step: LookUp | ServerAddress) -> Any:
            if isinstance(step, ServerAddress):
                return await self._links.connect_async(step, self._settings, lost)
            async with asyncio.timeout(self._settings.connect_timeout_s):
                loop = asyncio.get_running_loop()
                return await loop.getaddrinfo(step.host, step.port, type=socket.SOCK_STREAM)

        link: AsyncLink = await carry_out_async(self._steps(), do)
        return link

    def _steps(self) -> Generator[LookUp | ServerAddress, Any, Any]:
        """Try all servers. Each step is a name to look up, or an address to connect to."""
        failures: dict[ServerAddress, StokerError] = {}
        for host in self._in_turn(self._address.each):
            try:
                found = (yield LookUp(host.host, host.port)) if has_name(host) else []
            except (OSError, ValueError) as error:
                failures[host] = unreachable(host, error)
                self.leave()
                continue
            for address in self._in_turn(resolved(host, found)):
                try:
                    return (yield address)
                except (Unreachable, ShuttingDown) as error:
                    failures[host] = error
                    self.leave()
        if len(failures) == 1:
            raise failures.popitem()[1]
        told = "; ".join(error.message for error in failures.values())
        raise Unreachable(f"no server answers at any address of {self._address}: {told}")

    def _in_turn(self, addresses: list[ServerAddress]) -> list[ServerAddress]:
        at = self._start % len(addresses)
        return addresses[at:] + addresses[:at]


def has_name(host: ServerAddress) -> bool:
    """Whether a name has to be looked up. gRPC looks names up by itself."""
    return host.scheme != "unix" and not host.scheme.startswith("grpc") and not name_lookup.is_numeric(host.host)


def resolved(host: ServerAddress, found: list[Any]) -> list[ServerAddress]:
    """One address for each that the name has; the host itself where none was looked up."""
    places = dict.fromkeys(where[:2] for *_, where in found)
    return [msgspec.structs.replace(host, ip=ip, port=port) for ip, port in places] or [host]
