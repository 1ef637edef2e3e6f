"""What all requests have in common: the fields of each, and second names of fields."""

import msgspec
from msgspec import Raw

NULLS = (b"null", b"\xc0")
NOT_SAID: Raw = Raw(b"")
"""A value that was left out, where `null` would be one."""
Tokens = int | list[int] | None

ALSO: dict[str, str] = {
    "delay_ms": "delay",
    "ttl_ms": "ttl",
    "timeout_ms": "timeout",
    "lease_ms": "stall_timeout",
    "backoff_ms": "backoff",
    "custom_id": "job_id",
    "job_id": "id",
    "debounce_ms": "debounce_ttl",
    "unique_ttl": "unique_ttl_ms",
    "custom_id_ttl": "custom_id_ttl_ms",
    "idempotency_key": "request_key",
    "percent": "progress",
    "payload": "data",
    "age_ms": "grace",
    "lease": "lease_ms",
    "worker_id": "worker",
    "type": "kind",
    "timezone": "zone",
    "tz": "zone",
    "cron": "schedule",
    "every": "repeat_every",
    "every_ms": "repeat_every",
    "runs_max": "limit",
    "max_limit": "limit",
    "delay": "base_ms",
    "max_delay": "cap_ms",
    "duration": "per_ms",
}
"""Second names of fields, for requests that have no field of the first one."""


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What every request may carry besides its own fields."""

    cmd: str = ""
    reqId: str | int | float | None = None
    """Comes back with the answer, as it was sent."""
    tenant: str | None = None
