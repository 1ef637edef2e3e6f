"""Apply records about key-value entries."""

from stoker.engine import deadlines as kinds
from stoker.engine.kv_entries import Entry
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Appliers, Tenant
from stoker.model.options import CODECS
from stoker.records import records as rec

ENTRY_BYTES = 300
"""The memory of an entry without its value: the struct, the headers of key and value, its places in table and order."""


def put(shard: ShardState, tenant: Tenant, key: str, entry: Entry) -> None:
    """Store an entry. The caller arms its expiry."""
    before = tenant.kv.put(key, entry)
    shard.index.bytes += size_of(key, entry) - (size_of(key, before) if before is not None else 0)
    tenant.kv_bytes += written_bytes(key, entry) - (written_bytes(key, before) if before is not None else 0)


def written_bytes(key: str, entry: Entry) -> int:
    """The bytes that the tenant wrote. They count against its quota."""
    return len(key.encode()) + len(entry.value)


def size_of(key: str, entry: Entry) -> int:
    return ENTRY_BYTES + len(key) + len(entry.value)


def arm(shard: ShardState, tenant: Tenant, key: str, expires_at: int) -> None:
    if expires_at:
        shard.deadlines.arm(expires_at, kinds.KV, (tenant, key))


def written(shard: ShardState, record: rec.KvWritten) -> None:
    tenant = shard.tenant(record.tenant)
    for key, value, codec, expires_at in record.entries:
        put(shard, tenant, key, Entry(value, CODECS[codec], expires_at))
        arm(shard, tenant, key, expires_at)


def removed(shard: ShardState, record: rec.KvRemoved) -> None:
    tenant = shard.tenant(record.tenant)
    for key in record.keys:
        entry = tenant.kv.pop(key)
        assert entry is not None, f"the entry {key} must be there"
        shard.index.bytes -= size_of(key, entry)
        tenant.kv_bytes -= written_bytes(key, entry)


def timed(shard: ShardState, record: rec.KvTimed) -> None:
    tenant = shard.tenant(record.tenant)
    tenant.kv[record.key].expires_at = record.expires_at
    arm(shard, tenant, record.key, record.expires_at)


APPLY: Appliers = {
    rec.KvWritten: written,
    rec.KvRemoved: removed,
    rec.KvTimed: timed,
}
