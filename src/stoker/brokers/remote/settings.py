"""How a client reaches a server: what the URL says, and what else may be set.

    tcp://[:TOKEN@]HOST[:PORT][,HOST[:PORT]...]    tcps:// with TLS
    unix:///path/to/socket
    http://, https://, grpc://, grpcs://

Parameters after `?` are the fields of `RemoteSettings`: `tcp://queue:6789?timeout_s=5&codec=json`.
"""

import os
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.wire.frames import Codec

PORTS = {"tcp": 6789, "tcps": 6789, "http": 6790, "https": 6790, "grpc": 6791, "grpcs": 6791}
SCHEMES = (*PORTS, "unix")
Scheme = Literal["tcp", "tcps", "unix", "http", "https", "grpc", "grpcs"]


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to talk to a server."""

    token: str | None = None
    """An API token or a JWT; in the URL it stands where a password would. `STOKER_TOKEN` says it for all."""
    codec: Codec = "msgpack"
    """`json` to be able to read along."""
    timeout_s: float = 30.0
    """For one answer, besides the time that a pull or a wait may wait."""
    connect_timeout_s: float = 5.0
    """For one try to connect."""
    retry_s: float | None = None
    """For how long a call is tried again while the server does not answer; 0 = not at all. None = 5 s, and 30 s in
    workers: a web request should not wait for a server that is away, and a job can."""
    connections_max: int = 64
    """Idle connections that are kept for the next call; as many as there are threads are open at once."""
    ca: str | None = None
    """A PEM file with the authorities to trust, instead of the system's."""
    verify: bool = True
    """False takes any certificate: for trying things out."""
    cert: str | None = None
    """A PEM file with this client's own certificate, for servers that ask for one."""
    key: str | None = None
    """A PEM file with its private key; None = it is in `cert`, too."""
    resend: bool = True
    """Let the server remember each push for a while: sent again after a lost answer, it makes no second job."""

    def __repr__(self) -> str:
        """Without the token: a repr ends up in logs."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name != "token"}
        token = "None" if self.token is None else "'***'"
        return f"RemoteSettings(token={token}, {', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class ServerAddress(msgspec.Struct, frozen=True):
    """Where the server is."""

    scheme: Scheme
    host: str
    port: int
    ip: str = ""
    """Where the name `host` was found. Empty if it is to be looked up."""
    others: tuple[tuple[str, int], ...] = ()
    """Hosts and ports of further servers of the same queue."""

    @property
    def each(self) -> "list[ServerAddress]":
        """All servers, one by one."""
        places = ((self.host, self.port), *self.others)
        return [ServerAddress(self.scheme, host, port) for host, port in places] if self.others else [self]

    @property
    def is_encrypted(self) -> bool:
        return self.scheme.endswith("s")

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.host}"
        more = "".join(f",{host}:{port}" for host, port in self.others)
        return f"{self.scheme}://{self.host}:{self.port}{more}"


def read_url(parts: SplitResult, settings: RemoteSettings | None) -> tuple[ServerAddress, RemoteSettings]:
    """The address in a URL and the settings with what the URL says of them."""
    said: dict[str, str] = dict(parse_qsl(parts.query, keep_blank_values=True))
    try:
        token = parts.password or parts.username
        places = [] if parts.scheme == "unix" else places_of(parts)
    except ValueError as error:
        raise InvalidRequest(f"cannot connect to {parts.scheme}://{parts.hostname or ''}: {error}") from None
    if token:
        said.setdefault("token", unquote(token))
    elif settings is None or settings.token is None:
        from_environment = os.environ.get("STOKER_TOKEN")
        if from_environment:
            said.setdefault("token", from_environment)
    try:
        told = msgspec.convert(said, dict[str, str])
        known = {field.name: field for field in msgspec.structs.fields(RemoteSettings)}
        unknown = sorted(told.keys() - known.keys())
        if unknown:
            raise InvalidRequest(f"unknown parameters {unknown}: a URL may say {', '.join(known)}")
        changes = {name: msgspec.convert(text, known[name].type, strict=False) for name, text in told.items()}
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"invalid parameter in the URL: {error}") from None
    settings = msgspec.structs.replace(settings or RemoteSettings(), **changes)
    if parts.scheme == "unix":
        path = unquote(parts.netloc + parts.path)
        if not path:
            raise InvalidRequest("unix:// needs the path of a socket: unix:///run/stoker.sock")
        return ServerAddress("unix", path, 0), settings
    if parts.path not in ("", "/"):
        raise InvalidRequest(f"{parts.scheme}://{parts.hostname} takes no path, and the URL has {parts.path!r}")
    scheme: Scheme = parts.scheme  # type: ignore[assignment]
    (host, port), *others = places
    return ServerAddress(scheme, host, port, others=tuple(others)), settings


def places_of(parts: SplitResult) -> list[tuple[str, int]]:
    """The hosts and ports that a URL names, divided by commas. Raises `ValueError`."""
    named = parts.netloc.rpartition("@")[2].split(",")
    if len(named) > 1 and not all(named):
        raise ValueError("an address between two commas is empty")
    found = [urlsplit(f"//{place}") for place in named]
    return [(place.hostname or "127.0.0.1", place.port or PORTS[parts.scheme]) for place in found]
