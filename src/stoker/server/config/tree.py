"""Every setting of a server as one tree of structs: the only place for names, types, defaults and reasons.

Settings of the queue itself (limits, engine, journal) are the queue's own structs. This module holds values; it reads
no file and no environment. Waiting times of the server are in seconds and end in `_s`; the queue counts in `_ms`.
"""

import ipaddress
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from stoker.brokers.local import LocalSettings
from stoker.journal.sqlite import JournalSettings
from stoker.model.errors import InvalidRequest
from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.model.replies import Level
from stoker.server.auth.settings import AuthSettings, Secret
from stoker.server.config.addresses import ListenAddress, parse_address

MIB = 1024 * 1024
QUEUE = LocalSettings()
"""The queue's own defaults."""

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]


# --- listeners ---------------------------------------------------------------------------------------


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Encryption of one listener. It is on when there is a certificate."""

    cert: str = ""
    """A PEM file: the certificate, followed by its chain up to the root."""
    key: str = ""
    """A PEM file: the certificate's private key, without a password."""
    client_ca: str = ""
    """A PEM file: clients must show a certificate that one of these has signed. Empty = they need none."""

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            raise InvalidRequest("TLS needs both: cert and key")
        if self.client_ca and not self.cert:
            raise InvalidRequest("client_ca needs TLS: set cert and key, too")

    @property
    def is_on(self) -> bool:
        return bool(self.cert)


class TcpListener(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JSON lines and MessagePack frames, for flashQ's SDKs and Stoker's own clients."""

    shorthand: ClassVar[str] = "listen"

    listen: str = "127.0.0.1:6789"
    """`HOST:PORT`, or `off`. Port 0 takes a free one; `[::]:6789` is IPv6, `0.0.0.0:6789` every IPv4 address."""
    tls: Tls = Tls()

    def __post_init__(self) -> None:
        parse_address(self.listen)

    @property
    def address(self) -> ListenAddress | None:
        """Where to listen; None means nowhere."""
        return parse_address(self.listen)


class HttpListener(TcpListener, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """REST, bulk NDJSON, events, metrics, health and the API's description."""

    listen: str = "127.0.0.1:6790"
    """`HOST:PORT`, or `off`."""
    tls: Tls = Tls()
    origins: tuple[str, ...] = ()
    """Sites (`https://dash.example`) whose pages may use this API from a browser. Others may change nothing here."""


class GrpcListener(TcpListener, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unary calls, batches and streams of work."""

    listen: str = "127.0.0.1:6791"
    """`HOST:PORT`, or `off`."""
    tls: Tls = Tls()


class UnixListener(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The TCP protocol on a socket in the file system."""

    shorthand: ClassVar[str] = "listen"

    listen: str = "off"
    """A path, or `off`."""
    mode: Annotated[str, Meta(pattern="^0?[0-7]{3}$")] = "600"
    """The socket's permissions, in octal: users who may write to it may connect. 660 allows the group."""

    @property
    def path(self) -> str | None:
        """Where to listen; None means nowhere."""
        return None if self.listen == "off" else self.listen

    @property
    def permissions(self) -> int:
        return int(self.mode, 8)


# --- limits ------------------------------------------------------------------------------------------


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one client may use of a server, so that enough is left for all others."""

    frame_bytes_max: Positive = 64 * MIB
    """Size of one request or reply. A length is checked before anything of the frame is kept; six full payloads fit."""
    connections_max: Positive = 10_000
    """Over all listeners of a process; each costs up to 30 KB and a file descriptor even when it is idle. Fewer where
    the limit of open files (`ulimit -n`) is lower: the journal keeps its share. When there is no room, the oldest
    connection whose client has not authenticated is closed, silent ones first.
    """
    connections_per_address_max: Positive = 5_000
    """One host cannot take all connections. High, because proxies and containers share addresses. At most three
    quarters of what the limit of open files leaves.
    """
    connections_unauthenticated_max: Positive = 2_500
    """Where tokens are configured: connections whose client has not sent one yet. At most a quarter of all."""
    connections_per_second_max: Positive = 2_000
    """From one address: a storm of connections is turned away before it costs a handshake."""
    requests_in_flight_max: Positive = 1_000
    """Per connection, including waiting pulls. Further requests are refused with `busy`."""
    output_buffer_bytes_max: Positive = 64 * MIB
    """Replies that a client has not read yet; a whole frame fits. When it is full, the connection is not read any
    further.
    """
    output_stalled_s: Seconds = 30.0
    """A client with a full output buffer that reads nothing for this long is cut off."""
    handshake_s: Seconds = 10.0
    """For the handshakes of TLS and gRPC. Silent connections that have finished theirs stay while there is room."""
    frame_s: Seconds = 30.0
    """From the first byte of a request to its last: this stops slow-loris clients."""
    idle_s: Seconds = 0.0
    """Close a connection that has sent no request for this long; 0 = never. `keepalive_s` finds dead peers."""
    keepalive_s: Seconds = 60.0
    """How often the kernel probes a silent peer; 0 = never."""
    subscriptions_max: Positive = 100
    """Per connection; each is a separate reader of events."""
    streams_max: Positive = 1_000
    """Event streams and work streams over HTTP, WebSocket and gRPC at once; each has its own buffer."""
    http_body_bytes_max: Positive = 64 * MIB
    """Size of one HTTP request; as large as a frame. Bulk NDJSON is read in pieces and not bounded by it."""
    http_line_bytes_max: Positive = 16 * MIB
    """Size of one line of NDJSON: a full payload as base64 fits."""
    http_header_bytes_max: Positive = 64 * 1024
    """Size of the head of one HTTP request: a token and a trace context fit many times."""
    http_keep_alive_s: Seconds = 75.0
    """How long an HTTP connection may wait for its first or next request: longer than the 60 s of common proxies."""
    unknown_fields: Literal["warn", "refuse"] = "warn"
    """What flashQ's dialect does with unknown fields of a command; REST and Stoker's own dialect refuse them."""


# --- the rest ----------------------------------------------------------------------------------------


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Posting events to URLs that tenants have registered."""

    enabled: bool = True
    """False refuses registrations and posts nothing."""
    allow: tuple[str, ...] = ()
    """Networks (`10.1.0.0/16`) that may be called although they are private, local or reserved."""
    timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """For one attempt, from resolving the name to the end of the answer."""
    attempts_max: Positive = 10
    """After this many attempts a hook gives an event up: with the backoff below, after a quarter of an hour."""
    backoff_s: Annotated[float, Meta(gt=0)] = 2.0
    """Before the second attempt; doubled with each further one, with jitter."""
    backoff_s_max: Annotated[float, Meta(gt=0)] = 900.0
    """The longest backoff."""
    circuit_failures: Positive = 5
    """After this many failures in a row, a hook is not called for `circuit_open_s`."""
    circuit_open_s: Seconds = 60.0
    """After this time one attempt decides whether the hook is called again."""
    concurrency: Positive = 16
    """Attempts at once, over all hooks: a slow receiver must not use up the sockets."""
    body_bytes_max: Positive = MIB
    """A larger event is posted without its data, and says so."""
    response_bytes_max: Positive = 64 * 1024
    """How much of a response is read: only its status matters."""
    hooks_per_tenant_max: Positive = 100
    """Each event is matched against all of them."""

    def __post_init__(self) -> None:
        for network in self.allow:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise InvalidRequest(f"expected networks like 10.1.0.0/16: {error}") from None


class InboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reading an inbox: jobs that programs insert into their own PostgreSQL, inside their transactions."""

    shorthand: ClassVar[str] = "url"

    url: Secret = ""
    """`postgresql://USER:PASSWORD@HOST:PORT/DATABASE`. Empty = the server reads none. Needs `stoker[postgres]`."""
    tenants: tuple[str, ...] = ("default",)
    """The tenants that rows may name. Rows of others are set aside. Empty = all."""

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("postgresql://", "postgres://")):
            raise InvalidRequest("expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE")


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server's log on standard error."""

    format: Literal["plain", "json"] = "plain"
    """Plain lines, or one JSON object a line."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""


class StopSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the server stops on SIGTERM and SIGINT."""

    drain_s: Seconds = 30.0
    """How long running jobs may take to end; then their leases are handed back. A second signal does that at once."""


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `/metrics` shows."""

    tenant_labels: bool = False
    """A label for each tenant. This multiplies the time series by the number of tenants."""


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server's OpenTelemetry spans. OpenTelemetry's own settings say where they go: `opentelemetry-instrument
    stoker serve`.
    """

    shorthand: ClassVar[str] = "enabled"

    enabled: bool = False
    """A span for each command, as part of the trace that a push belongs to. Needs `stoker[otel]`."""


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages at `/ui/` of the HTTP listener."""

    shorthand: ClassVar[str] = "enabled"

    enabled: bool = True
    """False serves no pages."""
    read_only: bool = False
    """Pages show and change nothing, whatever a token may do elsewhere."""
    payloads: Literal["shown", "hidden"] = "shown"
    """`hidden` shows no payloads, results and partial results, only their sizes."""
    redact: tuple[str, ...] = ()
    """Fields of payloads and results whose values are not shown, by name (`password`), at any depth. Upper and lower
    case do not matter.
    """
    session_s: Annotated[float, Meta(gt=0)] = 12 * 3_600.0
    """A login ends when its browser has asked for nothing for this long, or when its token ends."""
    trace_url: str = ""
    """Where traces are shown: `https://jaeger.example/trace/{trace_id}`. Empty = jobs have no link to their trace."""
    lake: str = ""
    """The directory of a lake, which `stoker pipeline stream` fills: operators see how far it is behind, and the
    newest report (`*.html`) in it. Empty = none."""


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node of a cluster whose queue is in PostgreSQL."""

    shorthand: ClassVar[str] = "url"

    url: Secret = ""
    """`postgresql://USER@HOST/DATABASE[?schema=NAME]`, where `stoker cluster init` has made a cluster. Empty = none."""
    node: str = ""
    """The name of this node, which no other living node has. Empty = the machine's name and the port."""
    listen: str = "127.0.0.1:0"
    """`HOST:PORT` for other nodes to connect to the first seat; seat 1 has the next port, and so on. Port 0 takes free
    ones."""
    advertise: str = ""
    """The same as other nodes reach it, where that is another address: behind a port mapping, or if `listen` is
    `0.0.0.0`. Empty = `listen`."""
    tls: Tls = Tls()
    """For the links between nodes. They show these certificates, and need no authority: the cluster's secret proves
    that they belong to it."""

    def __post_init__(self) -> None:
        if parse_address(self.listen) is None:
            raise InvalidRequest("other nodes must reach this one: expected HOST:PORT")
        if self.advertise and parse_address(self.advertise) is None:
            raise InvalidRequest("advertise: expected HOST:PORT, or nothing")

    @property
    def address(self) -> ListenAddress:
        found = parse_address(self.listen)
        assert found is not None
        return found

    def reached_at(self, seat: int, port: int) -> ListenAddress:
        """Where other nodes reach a seat that listens on this port."""
        told = parse_address(self.advertise) if self.advertise else None
        if told is None:
            return self.address._replace(port=port)
        return told._replace(port=told.port + seat if told.port else port)


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration."""

    data: str | None = None
    """The data directory, created if it does not exist. None = in memory: nothing survives the process."""
    broker: Annotated[str, Meta(extra={"secret": True})] | None = None
    """A queue in Redis instead of a data directory: `redis://HOST:PORT/DATABASE`, `rediss://` or `redis+unix:///PATH`.
    Any number of servers may be in front of one Redis."""
    durability: Level = QUEUE.durability
    """What replies wait for unless the push or the queue says: `memory`, `commit` or `fsync`."""
    shards: Annotated[int, Meta(ge=1, le=64)] | None = QUEUE.shards
    """A power of two. By default 1 in memory, 16 in a new directory, and unchanged in an old one."""
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    """How many processes share the shards and the ports. At most one for each core."""
    memory_bytes_max: int = QUEUE.memory_bytes_max
    """Beyond it no new jobs, entries and log lines are taken; with a data directory payloads and results are left in
    the journal long before. 0 = no limit."""
    events_bytes_max: int = QUEUE.events_bytes_max
    """How much of the latest history is kept in memory without a data directory."""
    insecure: bool = False
    """Allow other machines to connect without authentication. Only for networks that you trust entirely."""
    cluster: ClusterSettings = ClusterSettings()
    tcp: TcpListener = TcpListener()
    http: HttpListener = HttpListener()
    grpc: GrpcListener = GrpcListener()
    unix: UnixListener = UnixListener()
    auth: AuthSettings = AuthSettings()
    server: ServerLimits = ServerLimits()
    limits: Limits = QUEUE.limits
    engine: Settings = QUEUE.engine
    journal: JournalSettings = JournalSettings()
    webhooks: WebhookSettings = WebhookSettings()
    inbox: InboxSettings = InboxSettings()
    log: LogSettings = LogSettings()
    stop: StopSettings = StopSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    dashboard: DashboardSettings = DashboardSettings()

    @property
    def listeners(self) -> dict[str, ListenAddress]:
        """The listeners with a host and a port that are on, by name."""
        found = {"tcp": self.tcp.address, "http": self.http.address, "grpc": self.grpc.address}
        return {name: address for name, address in found.items() if address is not None}

    @property
    def local(self) -> LocalSettings:
        """The settings of the queue behind the server."""
        return LocalSettings(
            engine=self.engine,
            limits=self.limits,
            shards=self.shards,
            durability=self.durability,
            events_bytes_max=self.events_bytes_max,
            memory_bytes_max=self.memory_bytes_max,
            journal=self.journal,
        )


NOT_SETTINGS = frozenset({"engine.seed", "engine.batching", "journal.checkpoint_process", "journal.vfs"})
"""Fields of the queue's structs that only tests change."""
