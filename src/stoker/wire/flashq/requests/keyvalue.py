"""Requests about keys and values."""

import msgspec
from msgspec import Raw

from stoker.model.options import Codec
from stoker.wire.flashq.requests.shape import Request


class ByKey(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one entry of the key-value store."""

    key: str


class ByKeys(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About some entries of the key-value store."""

    keys: list[str]


class KeyOrKeys(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one entry of the key-value store, or some."""

    key: str | None = None
    keys: list[str] = msgspec.field(default_factory=list)


class KvSet(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Keep a value under a key, for `ttl` milliseconds; 0 = for good."""

    key: str
    value: Raw
    ttl: int = 0
    codec: Codec | None = None
    """How it is to be stored: as it came, where nothing is said. `bytes` takes `{"$bytes": base64}`."""


class KvEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One value of many."""

    key: str
    value: Raw
    ttl: int = 0
    codec: Codec | None = None


class KvSetMany(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Keep many values at once, all or none."""

    entries: list[KvEntry]


class KvExpire(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Let an entry leave `ttl` milliseconds from now."""

    key: str
    ttl: int


class KvKeys(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The keys that match a pattern with `*` and `?`."""

    pattern: str = "*"
    limit: int = 1_000
    after: str | None = None


class KvIncrement(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Add to a number."""

    key: str
    by: int = 1
