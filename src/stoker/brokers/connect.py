"""From a URL to a broker. What a scheme needs is imported only when it is asked for."""

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from stoker.brokers.contract import Broker
from stoker.model.errors import InvalidRequest

if TYPE_CHECKING:
    from stoker.brokers.local import LocalSettings

SCHEMES = ("memory",)


def open_broker(url: str, settings: "LocalSettings | None" = None) -> Broker:
    """The broker behind `url`: `memory://` is a new one, `memory://name` one that this process shares."""
    parts = urlsplit(url)
    if parts.scheme != "memory":
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise InvalidRequest(f"cannot connect to {url!r}: the scheme must be one of {known}")
    from stoker.brokers.local import open_memory

    return open_memory(parts.netloc, dict(parse_qsl(parts.query, keep_blank_values=True)), settings)
