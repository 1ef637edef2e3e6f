"""From a URL to a broker. What a scheme needs is imported only when it is asked for."""

import os
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from stoker.brokers.contract import Broker
from stoker.model.errors import InvalidRequest

if TYPE_CHECKING:
    from stoker.brokers.local import LocalSettings
    from stoker.brokers.redis.settings import RedisSettings
    from stoker.brokers.remote.settings import RemoteSettings

    BrokerSettings = LocalSettings | RedisSettings | RemoteSettings

EMBEDDED = ("memory", "sqlite")
REMOTE = ("tcp", "tcps", "unix", "http", "https", "grpc", "grpcs")
REDIS = ("redis", "rediss", "redis+unix")
SCHEMES = (*EMBEDDED, *REMOTE, *REDIS)

DEFAULT_URL = "sqlite:///stoker.db"
"""Used if neither the caller nor STOKER_URL names a URL: a data directory in the working directory."""


def open_broker(url: str | None = None, settings: "BrokerSettings | None" = None) -> Broker:
    """The broker behind `url`, or behind STOKER_URL, or the one over the data directory `stoker.db`.

    `memory://` is a new one, `memory://name` one that this process shares; `sqlite:///path` is the one over a data
    directory, which any number of processes may open; `sqlite:////path` has a path from the root. `tcp://host:port`,
    `unix:///path`, `http://` and `grpc://` reach a server. `redis://host:port/database`, `rediss://` (TLS) and
    `redis+unix:///path` are a queue in Redis, without a server of Stoker.
    """
    url = url if url is not None else os.environ.get("STOKER_URL") or DEFAULT_URL
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        hint = "" if parts.scheme else f"; a directory is sqlite:///{parts.path}"
        raise InvalidRequest(f"cannot connect to {shown(parts)!r}: the scheme must be one of {known}{hint}")
    if parts.scheme in REMOTE:
        from stoker.brokers.remote.opening import open_remote

        return open_remote(parts, settings)
    if parts.scheme in REDIS:
        from stoker.brokers.redis.opening import open_redis

        return open_redis(parts, settings)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    from stoker.brokers.local import LocalSettings, open_memory

    if settings is not None and not isinstance(settings, LocalSettings):
        raise InvalidRequest(f"{parts.scheme}:// takes LocalSettings, not {type(settings).__name__}")

    if parts.scheme == "memory":
        return open_memory(parts.netloc, parameters, settings)
    if parts.netloc:
        raise InvalidRequest(
            f"cannot connect to {shown(parts)!r}: sqlite:// takes a path after three slashes, no host:"
            f" sqlite:///{shown(parts).removeprefix('sqlite://')}"
        )
    from stoker.brokers.shared_directory import open_shared

    return open_shared(unquote(parts.path[1:]), parameters, settings)


def settings_for(url: str, retry_s: float, token: str | None = None) -> "BrokerSettings | None":
    """Settings that the scheme of a URL takes. None for an embedded queue, which is never away."""
    scheme = urlsplit(url).scheme
    if scheme in EMBEDDED:
        return None
    if scheme in REDIS:
        from stoker.brokers.redis.settings import RedisSettings

        return RedisSettings(retry_s=retry_s)
    from stoker.brokers.remote.settings import RemoteSettings

    return RemoteSettings(retry_s=retry_s, token=token)


def shown(parts: SplitResult) -> str:
    """A URL as it may be shown: everything that could be a token or a password is left out."""
    host = parts.netloc.rpartition("@")[2]
    where = f"***@{host}" if "@" in parts.netloc else host
    rest = parts._replace(netloc=where, query="", fragment="")
    if where or not (parts.scheme and parts.path.startswith("/")):
        return rest.geturl()
    return f"{parts.scheme}://{parts.path}"  # `geturl` leaves the empty host out
