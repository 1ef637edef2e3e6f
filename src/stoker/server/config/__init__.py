"""Every setting of a server. A value comes from the first of these that has it: a flag (`--tcp`, or
`--set KEY=VALUE` for settings without a flag), the environment, the file `stoker.toml` in the working directory
(or `--config FILE`, or STOKER_CONFIG), `[tool.stoker]` in its `pyproject.toml`, variables of flashQ, and the default
below.
`stoker serve --show-config` prints every value with its source.

In the environment a key is written in capitals behind `STOKER_`, with two underscores for a dot:
`limits.batch_jobs_max` is `STOKER_LIMITS__BATCH_JOBS_MAX`. Lists are words separated by commas, or JSON. A secret may
be in its own file: `STOKER_AUTH__ENTITLEMENT_SECRETS_FILE` names one with `auth.entitlement_secrets` in it.

Variables of flashQ work for settings that are set nowhere else: `PORT` or `TCP_PORT`, `HTTP_PORT` and
`GRPC_PORT` are ports on 127.0.0.1, `UNIX_SOCKET` is a path, and `SYNC_PERSISTENCE=1` means `durability = "fsync"`. A
line at the start says which were used.

Times may be written as `"500ms"`, `"30s"`, `"5m"`, `"1h30m"` or `"7d"`, sizes as `"64MiB"` or `"10MB"`, or both as
plain numbers in the unit of the name. A listener may be written short: `tcp = "0.0.0.0:6789"` means `tcp.listen`.

Unknown settings and wrong values are refused in all of these places. Without authentication (`auth`) the server binds
only to loopback, unless `insecure` is set.

```toml
data = "/var/lib/stoker"
tcp.listen = "0.0.0.0:6789"
tcp.tls = { cert = "/etc/stoker/cert.pem", key = "/etc/stoker/key.pem" }
auth.tokens_file = "/etc/stoker/tokens"
auth.tenants.acme.waiting_jobs = 100_000
limits.payload_bytes_max = "1MiB"
```
"""

from stoker.server.config.addresses import ListenAddress
from stoker.server.config.keys import BadConfig
from stoker.server.config.loading import Loaded, check, load, refuse_open_door
from stoker.server.config.showing import Setting, lines_of_flashq, settings_of, show
from stoker.server.config.tls import tls_context
from stoker.server.config.tree import (
    DashboardSettings,
    GrpcListener,
    HttpListener,
    InboxSettings,
    LogSettings,
    MetricsSettings,
    ServerConfig,
    ServerLimits,
    StopSettings,
    TcpListener,
    Tls,
    UnixListener,
    WebhookSettings,
)

__all__ = [
    "BadConfig",
    "DashboardSettings",
    "GrpcListener",
    "HttpListener",
    "InboxSettings",
    "ListenAddress",
    "Loaded",
    "LogSettings",
    "MetricsSettings",
    "ServerConfig",
    "ServerLimits",
    "Setting",
    "StopSettings",
    "TcpListener",
    "Tls",
    "UnixListener",
    "WebhookSettings",
    "check",
    "lines_of_flashq",
    "load",
    "refuse_open_door",
    "settings_of",
    "show",
    "tls_context",
]
