"""How the broker in Redis is set up, and what a URL says of it.

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]    rediss:// with TLS
    redis+unix://[[USER]:PASSWORD@]/path/to/socket      the database by ?database=N

Parameters after `?` are the fields of `RedisSettings` that are numbers, texts or yes and no:
`redis://cache:6379/1?prefix=shop&timeout_s=5`.
"""

from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

import msgspec

from stoker.model.errors import InvalidRequest
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings

PORT = 6379
BY_URL = (
    *(
        "prefix",
        "timeout_s",
        "connect_timeout_s",
        "retry_s",
        "connections_max",
        "calls_max",
        "cluster",
        "ca",
        "cert",
        "key",
    ),
    *("verify", "resend", "inspect_limit", "events_max", "net_ms"),
)
"""What a URL may say."""


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue in Redis is set up. The `engine` and `limits` of a tenant's first client are kept there, and hold."""

    engine: Settings = Settings()
    limits: Limits = DEFAULT_LIMITS
    prefix: str = "stoker"
    """All keys begin with it."""
    cluster: bool = False
    """Whether the server belongs to a Redis Cluster. A tenant is in one slot, and tenants spread over the cluster."""
    inspect_limit: int = 200
    """How many deadlines one script processes; a client calls again when there are more."""
    events_max: int = 1_000_000
    """How many records the history keeps, about."""
    net_ms: int = 5_000
    """A waiting call looks again after this time, in case the client that was woken for it has died."""
    timeout_s: float = 20.0
    """How long a call waits for an answer of Redis, besides the time that a pull or a wait may wait."""
    connect_timeout_s: float = 5.0
    """For one try to connect."""
    retry_s: float | None = None
    """For how long a call is tried again while Redis does not answer; 0 = not at all. None = 5 s, 30 s in workers."""
    connections_max: int = 64
    """Idle connections that are kept for the next call of a thread."""
    calls_max: int = 1_000
    """Calls of one event loop that are sent and not answered yet. More calls wait for their turn, up to `timeout_s`."""
    ca: str | None = None
    """A PEM file with the authorities to trust, instead of the system's."""
    verify: bool = True
    """False takes any certificate: for trying things out."""
    cert: str | None = None
    """A PEM file with this client's own certificate, for servers that ask for one."""
    key: str | None = None
    """A PEM file with its private key; None = it is in `cert`, too."""
    resend: bool = True
    """Let Redis remember each push for a while: sent again after a lost answer, it makes no second job."""

    def __post_init__(self) -> None:
        if not self.prefix or any(sign in self.prefix for sign in "{}"):
            raise InvalidRequest(f"invalid prefix {self.prefix!r}: expected a text without braces, like 'stoker'")
        for name in (
            "timeout_s",
            "connect_timeout_s",
            "net_ms",
            "inspect_limit",
            "events_max",
            "connections_max",
            "calls_max",
        ):
            if not getattr(self, name) > 0:
                raise InvalidRequest(f"invalid {name} {getattr(self, name)}: expected a number above 0")


class Target(msgspec.Struct, frozen=True):
    """Where a URL points. Of a Unix socket the host is its path, and the port 0."""

    host: str
    port: int = PORT
    database: int = 0
    username: str | None = None
    password: str | None = None
    is_encrypted: bool = False


def read_url(parts: SplitResult, settings: RedisSettings | None) -> tuple[Target, RedisSettings]:
    """The target in a URL, and the settings with what the URL says of them."""
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    is_unix = parts.scheme == "redis+unix"
    database = said.pop("database", "") if is_unix else parts.path.strip("/")
    unknown = sorted(said.keys() - set(BY_URL))
    if unknown:
        known = ", ".join((*BY_URL, "database") if is_unix else BY_URL)
        raise InvalidRequest(f"unknown parameters {unknown}: a {parts.scheme}:// URL may say {known}")
    types = {field.name: field.type for field in msgspec.structs.fields(RedisSettings)}
    try:
        changes: dict[str, Any] = {name: msgspec.convert(said[name], types[name], strict=False) for name in said}
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"invalid parameter in the URL: {error}") from None
    if database and not database.isdecimal():
        raise InvalidRequest(f"{parts.scheme}:// takes the number of a database after the host, not {database!r}")
    settings = msgspec.structs.replace(settings or RedisSettings(), **changes)
    if settings.cluster and database.strip("0"):
        raise InvalidRequest(f"a Redis Cluster has only database 0, and the URL names {database}: leave it out")
    return target_of(parts, int(database or 0)), settings


def target_of(parts: SplitResult, database: int) -> Target:
    try:
        port = parts.port or PORT
    except ValueError as error:
        raise InvalidRequest(f"cannot connect to {parts.scheme}://{parts.hostname or ''}: {error}") from None
    login: dict[str, Any] = {
        "database": database,
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }
    if parts.scheme != "redis+unix":
        return Target(parts.hostname or "127.0.0.1", port, is_encrypted=parts.scheme == "rediss", **login)
    if parts.hostname or not parts.path.strip("/"):
        raise InvalidRequest(
            "redis+unix:// needs the path of a socket after three slashes: redis+unix:///run/redis.sock"
        )
    return Target(unquote(parts.path), 0, **login)


def kept(settings: RedisSettings) -> bytes:
    """What scripts need to know, as the first client of a tenant writes it."""
    engine, limits = settings.engine, settings.limits
    return msgspec.msgpack.encode(
        {
            "seed": engine.seed,
            "retention": engine.retention,
            "dead": {name: getattr(engine.dead_letters, name) for name in engine.dead_letters.__struct_fields__},
            "request_ttl_ms": engine.request_ttl_ms,
            "inspect_limit": settings.inspect_limit,
            "events_max": settings.events_max,
            "attempt_history_max": limits.attempt_history_max,
            "log_lines_max": limits.log_lines_max,
            "partials_max": limits.partials_max,
            "senders_max": limits.senders_max,
            "sendings_max": limits.sendings_max,
            "workflow_results_bytes_max": limits.workflow_results_bytes_max,
            "queues_per_tenant_max": limits.queues_per_tenant_max,
        }
    )
