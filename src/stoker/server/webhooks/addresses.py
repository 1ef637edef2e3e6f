"""Checks which addresses a webhook may reach: only public ones, unless the operator allows a network.

A name is resolved once, all its addresses are checked, and the connection goes to one of exactly these. If the name
resolves differently a moment later, that does not matter.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from stoker.model.errors import Forbidden
from stoker.server.webhooks.urls import HookUrl

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a name and a port to its addresses."""

ADDRESSES_MAX: Final = 16
"""Addresses of one name; an attempt has no time for more."""

DENIED: Final[tuple[Network, ...]] = tuple(
    map(
        ip_network,
        """
        0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
        192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
        ::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
        """.split(),
    )
)
"""This machine, private and shared networks, links, tests, documentation, multicast, reserved. Written out, because
Python's own definition of global addresses changes with its release; both must agree that an address is public.
"""

LOOPBACK: Final[tuple[Address, ...]] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
LOOPBACK_NAMES: Final = frozenset(("ip6-localhost", "ip6-loopback", "localhost.localdomain"))
"""Names of this machine in the `/etc/hosts` of common systems, besides `localhost` and names below it."""
LOCAL_SUFFIXES: Final = (".local", ".localdomain", ".internal", ".lan", ".home.arpa")
"""Names below these are never public: they are reserved for local networks."""

NAT64: Final = IPv6Network("64:ff9b::/96")


class NotAllowed(Forbidden):
    """An address that may not be called. The message does not name it, because the tenant who registered the URL reads
    it.
    """

    def __init__(self) -> None:
        super().__init__(
            "the url leads to a private, local or reserved network: use a public address, or let the operator allow"
            " the network in webhooks.allow"
        )


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


def within(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one, which is where packets finally go."""
    if isinstance(address, IPv6Address):
        if address in NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def is_allowed(address: Address, allow: Sequence[Network]) -> bool:
    meant = within(address)
    if any(meant in network or address in network for network in allow):
        return True
    return meant.is_global and not meant.is_multicast and not any(meant in network for network in DENIED)


def may_get_an_address(host: str, allow: Sequence[Network]) -> bool:
    """Whether a name without an address now may get an allowed one later. It is checked again then."""
    if host == "localhost" or host.endswith(".localhost") or host in LOOPBACK_NAMES:
        return any(address in network for address in LOOPBACK for network in allow)
    is_local = "." not in host or host.endswith(LOCAL_SUFFIXES)
    return bool(allow) or not is_local


async def resolve(host: str, port: int) -> Sequence[str]:
    """By the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def checked(target: HookUrl, resolver: Resolve, allow: Sequence[Network]) -> list[str]:
    """The addresses to connect to. Raises `NotAllowed` if any of them may not be called, `OSError` if there is none."""
    if target.address is not None:
        found: list[Address] = [target.address]
    else:
        texts = (await resolver(target.host, target.port))[:ADDRESSES_MAX]
        found = [ip_address(text.partition("%")[0]) for text in texts]
    if not found:
        raise OSError("the name has no address")
    if not all(is_allowed(address, allow) for address in found):
        raise NotAllowed
    return [str(address) for address in found]
