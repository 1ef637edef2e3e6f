"""Parses and formats `HOST:PORT`, and tells whether a host is only this machine."""

import ipaddress
import re
from typing import NamedTuple

from stoker.model.errors import InvalidRequest

OFF = "off"
WRITTEN = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")


class ListenAddress(NamedTuple):
    """Where a listener listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. Of names only `localhost` counts: others may change their meaning."""
        return self.host == "localhost" or is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether this is an address of only this machine. A name never is, even if it begins like `127.`"""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def parse_address(text: str) -> ListenAddress | None:
    """The address, or None for `off`."""
    if text == OFF:
        return None
    found = WRITTEN.fullmatch(text)
    if found is None:
        raise InvalidRequest('expected HOST:PORT or "off", an IPv6 host in brackets: [::1]:6789')
    if int(found["port"]) > 65_535:
        raise InvalidRequest("a port goes up to 65535")
    return ListenAddress(found["six"] or found["host"], int(found["port"]))
