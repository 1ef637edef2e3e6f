"""Parses a webhook's URL. One strict parser serves for registering and for connecting: if two parsers read a URL
differently, one address could be checked and another one called.

Every port is allowed: receivers listen where they like, and forbidden targets are recognised by their address.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, Literal

import msgspec

from stoker.model.errors import InvalidRequest, LimitExceeded

URL_CHARS_MAX: Final = 2_048
"""A length that every proxy takes."""
HOST_CHARS_MAX: Final = 253
PATTERN: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!$-;=@-\[\]_a-z~%]*)?"
    r"(?P<query>\?[!$-;=?@-\[\]_a-z~%]*)?"
)
NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
PORTS: Final = {"http": 80, "https": 443}
EXPECTED: Final = "expected http(s)://host[:port][/path][?query] in plain ASCII, without user, password or fragment"


class HookUrl(msgspec.Struct, frozen=True):
    """A parsed URL."""

    scheme: Literal["http", "https"]
    host: str
    """A name, or an address without brackets."""
    port: int
    resource: str
    """The path and the query, as in the request line."""
    address: IPv4Address | IPv6Address | None
    """Set if the host is an address."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: object) -> HookUrl:
    """Raises `InvalidRequest` for anything but a plain URL of http or https."""
    if not isinstance(url, str):
        raise InvalidRequest(f"invalid url: {EXPECTED}")
    if len(url) > URL_CHARS_MAX:
        raise LimitExceeded(f"the url has {len(url)} characters: the limit is {URL_CHARS_MAX}")
    found = PATTERN.fullmatch(url)
    if found is None:
        raise InvalidRequest(f"invalid url: {EXPECTED}")
    scheme: Literal["http", "https"] = "https" if found["scheme"] == "https" else "http"
    port = int(found["port"]) if found["port"] is not None else PORTS[scheme]
    if not 0 < port < 65_536:
        raise InvalidRequest("invalid url: ports are 1 to 65535")
    host, address = _host(found["host"])
    return HookUrl(scheme, host, port, (found["path"] or "/") + (found["query"] or ""), address)


def _host(text: str) -> tuple[str, IPv4Address | IPv6Address | None]:
    if text.startswith("["):
        try:
            six = IPv6Address(text[1:-1])
        except AddressValueError:
            raise InvalidRequest("invalid url: the text in the brackets is not an IPv6 address") from None
        return str(six), six
    name = text.removesuffix(".").lower()
    labels = name.split(".")
    if not name or len(name) > HOST_CHARS_MAX or not all(0 < len(label) < 64 for label in labels):
        raise InvalidRequest("invalid url: the host is not a valid name; its parts have 1 to 63 characters")
    if not NUMBER.fullmatch(labels[-1]):
        return name, None
    try:  # 2130706433, 0x7f.1 and 0177.0.0.1 are addresses to some resolvers, and names to some checks
        four = IPv4Address(name)
    except AddressValueError:
        raise InvalidRequest("invalid url: write an address as four decimal numbers, like 192.0.2.1") from None
    return str(four), four
