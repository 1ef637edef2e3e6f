"""Decide commands about key-value entries: small values under keys, for a time or until they are deleted.

All entries of a tenant are in one shard, so a command about several of them sees and changes them at one moment. The
engine reads a value only to count with it.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from stoker.engine import checks
from stoker.engine.globs import WILD, Glob
from stoker.engine.kv_entries import Entries, Entry
from stoker.engine.shard_state import ShardState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import CODECS, Codec
from stoker.records import records as rec

NUMBER_MIN, NUMBER_MAX = -(2**63), 2**63 - 1
DIGITS = re.compile(rb"-?(0|[1-9][0-9]{0,18})")
"""A number as plain text. More digits than these are beyond 64 bits anyway."""

WORK_MAX = 1_000_000
KEY_WORK = 50
"""The cost of looking at a key, in characters compared. A page costs up to WORK_MAX, about ten milliseconds."""

NONE = r.KvValue(False)


def entries_of(shard: ShardState, tenant: str) -> Entries:
    owner = shard.tenants.get(tenant)
    return owner.kv if owner is not None else Entries()


def limits_of(shard: ShardState, tenant: str) -> Limits:
    """The limits for a tenant. The server's own tenant is not bound by the limits for clients."""
    return DEFAULT_LIMITS if tenant == SYSTEM_TENANT else shard.limits


def check_keys(shard: ShardState, tenant: str, keys: Any) -> None:
    limits = limits_of(shard, tenant)
    checks.kv_batch(keys, "keys", limits)
    for key in keys:
        checks.kv_key(key, limits)


# --- reading ---------------------------------------------------------------------------------------


def shown(entry: Entry | None) -> r.KvValue:
    return NONE if entry is None else r.KvValue(True, entry.value, entry.codec, entry.expires_at)


def get_one(shard: ShardState, tenant: str, command: c.KvGet, now: int) -> r.KvValue:
    checks.kv_key(command.key, limits_of(shard, tenant))
    return shown(entries_of(shard, tenant).get(command.key))


def get_many(shard: ShardState, tenant: str, command: c.KvGetMany, now: int) -> r.KvValues:
    check_keys(shard, tenant, command.keys)
    found = entries_of(shard, tenant)
    return r.KvValues([shown(found.get(key)) for key in command.keys])


def exists(shard: ShardState, tenant: str, command: c.KvExists, now: int) -> r.KvFound:
    check_keys(shard, tenant, command.keys)
    found = entries_of(shard, tenant)
    return r.KvFound([key in found for key in command.keys])


def ttl(shard: ShardState, tenant: str, command: c.KvTtl, now: int) -> r.KvExpiry:
    checks.kv_key(command.key, limits_of(shard, tenant))
    entry = entries_of(shard, tenant).get(command.key)
    return r.KvExpiry(False) if entry is None else r.KvExpiry(True, entry.expires_at)


def keys(shard: ShardState, tenant: str, command: c.KvKeys, now: int) -> r.KvKeyPage:
    """Searches until the page is full and one more key was found, or until WORK_MAX is reached."""
    limits = limits_of(shard, tenant)
    checks.text(command.pattern, "pattern", limits.kv_key_chars_max)
    wild = len(WILD.findall(command.pattern))
    if wild > limits.kv_wildcards_max:
        raise errors.LimitExceeded(f"{wild} wildcards are over the limit of {limits.kv_wildcards_max}: use fewer")
    if command.after is not None:
        checks.text(command.after, "after", limits.kv_key_chars_max)
    checks.count(command.limit, "limit", limits.kv_keys_max)
    found, glob, after = entries_of(shard, tenant), Glob(command.pattern), command.after
    if glob.is_exact:
        there = glob.prefix in found and (after is None or glob.prefix > after)
        return r.KvKeyPage([glob.prefix] if there else [])
    return page(found.keys_from(max(glob.prefix, after or "")), glob, after, command.limit)


def page(candidates: Iterable[str], glob: Glob, after: str | None, limit: int) -> r.KvKeyPage:
    matching: list[str] = []
    work = 0
    for key in candidates:
        if key == after:
            continue
        if not key.startswith(glob.prefix):
            break
        if glob.matches(key):
            if len(matching) == limit:
                return r.KvKeyPage(matching, matching[-1])
            matching.append(key)
        work += KEY_WORK + len(key) * glob.weight
        if work >= WORK_MAX:
            return r.KvKeyPage(matching, key)
    return r.KvKeyPage(matching)


# --- writing ---------------------------------------------------------------------------------------


def set_one(shard: ShardState, tenant: str, command: c.KvSet, now: int) -> r.Done:
    return write(shard, tenant, [command], now)


def set_many(shard: ShardState, tenant: str, command: c.KvSetMany, now: int) -> r.Done:
    checks.kv_batch(command.entries, "entries", limits_of(shard, tenant))
    for entry in command.entries:
        if type(entry) is not c.KvEntry:
            raise errors.InvalidRequest(f"invalid entry {checks.short(entry)}: expected KvEntry(key, value)")
    return write(shard, tenant, command.entries, now)


def write(shard: ShardState, tenant: str, entries: Iterable[c.KvEntry | c.KvSet], now: int) -> r.Done:
    """Write all entries. Each replaces the old one, including its time to live."""
    made: dict[str, tuple[str, bytes, int, int]] = {}
    for entry in entries:
        checks.kv_key(entry.key, limits_of(shard, tenant))
        checks.payload(entry.value, limits_of(shard, tenant), "value", limits_of(shard, tenant).kv_value_bytes_max)
        checks.duration(entry.ttl_ms, "ttl_ms")
        checks.codec(entry.codec)
        expires_at = now + entry.ttl_ms if entry.ttl_ms else 0
        made[entry.key] = (entry.key, entry.value, CODECS.index(entry.codec), expires_at)
    check_room(shard, tenant, made)
    shard.emit(rec.KvWritten(now, tenant, list(made.values())))
    return r.Done(len(made))


def check_room(shard: ShardState, tenant: str, keys: Iterable[str]) -> None:
    found, most = entries_of(shard, tenant), limits_of(shard, tenant).kv_entries_per_tenant_max
    new = sum(key not in found for key in keys)
    if new and len(found) + new > most:
        raise errors.LimitExceeded(f"a tenant may have at most {most} entries: delete some, or let them expire")


def delete(shard: ShardState, tenant: str, command: c.KvDelete, now: int) -> r.Done:
    check_keys(shard, tenant, command.keys)
    found = entries_of(shard, tenant)
    there = [key for key in dict.fromkeys(command.keys) if key in found]
    if there:
        shard.emit(rec.KvRemoved(now, tenant, there))
    return r.Done(len(there))


def expire(shard: ShardState, tenant: str, command: c.KvExpire, now: int) -> r.KvExpiry:
    checks.kv_key(command.key, limits_of(shard, tenant))
    checks.duration(command.ttl_ms, "ttl_ms")
    if command.key not in entries_of(shard, tenant):
        return r.KvExpiry(False)
    expires_at = now + command.ttl_ms if command.ttl_ms else 0
    shard.emit(rec.KvTimed(now, tenant, command.key, expires_at))
    return r.KvExpiry(True, expires_at)


def increment(shard: ShardState, tenant: str, command: c.KvIncrement, now: int) -> r.KvNumber:
    checks.kv_key(command.key, limits_of(shard, tenant))
    checks.number(command.by, "by", NUMBER_MIN, NUMBER_MAX)
    entry = entries_of(shard, tenant).get(command.key)
    if entry is None:
        check_room(shard, tenant, [command.key])
        entry = Entry(b"0", "json")
    number = number_in(command.key, entry) + command.by
    if not NUMBER_MIN <= number <= NUMBER_MAX:
        raise errors.LimitExceeded(f"the entry {command.key!r} would become {number}, which is beyond 64 bits")
    value = as_bytes(number, entry.codec)
    shard.emit(rec.KvWritten(now, tenant, [(command.key, value, CODECS.index(entry.codec), entry.expires_at)]))
    return r.KvNumber(number)


def number_in(key: str, entry: Entry) -> int:
    found: Any = None
    try:
        if entry.codec == "msgpack":
            found = msgspec.msgpack.decode(entry.value)
        elif entry.codec == "json":
            found = msgspec.json.decode(entry.value)
        elif DIGITS.fullmatch(entry.value):
            found = int(entry.value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    if type(found) is not int:
        raise errors.WrongState(
            f"the entry {key!r} is not a whole number in {entry.codec}: only whole numbers can be incremented"
        )
    return found


def as_bytes(number: int, codec: Codec) -> bytes:
    return msgspec.msgpack.encode(number) if codec == "msgpack" else b"%d" % number
