"""Key-value entries: a value under a key of a tenant, until it is deleted or expires."""

import fnmatch
import json
from collections.abc import Sequence

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, LimitExceeded, WrongState
from tests.model import reference_checks as check
from tests.model.reference_world import Entry, World

BITS_64 = 2**63


def check_key(world: World, key: str) -> None:
    if not key:
        raise InvalidRequest("a key is not empty")
    check.chars(key, world.limits.kv_key_chars_max)


def check_keys(world: World, keys: Sequence[str]) -> None:
    check.number(len(keys), 1, world.limits.kv_batch_max)
    for key in keys:
        check_key(world, key)


def keys_of(world: World, tenant: str) -> list[str]:
    return sorted(key for owner, key in world.kv if owner == tenant)


def until(world: World, ttl_ms: int) -> int:
    return world.now + ttl_ms if ttl_ms else 0


# --- writing -------------------------------------------------------------------------------------


def set_one(world: World, tenant: str, command: c.KvSet) -> r.Done:
    return write(world, tenant, [c.KvEntry(command.key, command.value, command.ttl_ms, command.codec)])


def set_many(world: World, tenant: str, command: c.KvSetMany) -> r.Done:
    check.number(len(command.entries), 1, world.limits.kv_batch_max)
    return write(world, tenant, command.entries)


def write(world: World, tenant: str, entries: Sequence[c.KvEntry]) -> r.Done:
    for entry in entries:
        check_key(world, entry.key)
        check.size(entry.value, world.limits.kv_value_bytes_max)
        check.duration(entry.ttl_ms)
        check.codec(entry.codec)
    names = {entry.key for entry in entries}
    check_fits(world, tenant, names)
    for entry in entries:
        world.kv[tenant, entry.key] = Entry(entry.value, entry.codec, until(world, entry.ttl_ms))
    return r.Done(len(names))


def check_fits(world: World, tenant: str, names: set[str]) -> None:
    before = set(keys_of(world, tenant))
    if names - before and len(before | names) > world.limits.kv_entries_per_tenant_max:
        raise LimitExceeded("too many entries")


def delete(world: World, tenant: str, command: c.KvDelete) -> r.Done:
    check_keys(world, command.keys)
    return r.Done(sum(world.kv.pop((tenant, key), None) is not None for key in command.keys))


def expire(world: World, tenant: str, command: c.KvExpire) -> r.KvExpiry:
    check_key(world, command.key)
    check.duration(command.ttl_ms)
    entry = world.kv.get((tenant, command.key))
    if entry is None:
        return r.KvExpiry(False)
    world.kv[tenant, command.key] = Entry(entry.value, entry.codec, until(world, command.ttl_ms))
    return r.KvExpiry(True, until(world, command.ttl_ms))


def increment(world: World, tenant: str, command: c.KvIncrement) -> r.KvNumber:
    check_key(world, command.key)
    if not -BITS_64 <= command.by < BITS_64:
        raise InvalidRequest("by: 64 bits")
    entry = world.kv.get((tenant, command.key))
    if entry is None:
        check_fits(world, tenant, {command.key})
        entry = Entry(b"0", "json", 0)
    value = counted(entry) + command.by
    if not -BITS_64 <= value < BITS_64:
        raise LimitExceeded("64 bits")
    written = msgspec.msgpack.encode(value) if entry.codec == "msgpack" else str(value).encode()
    world.kv[tenant, command.key] = Entry(written, entry.codec, entry.until)
    return r.KvNumber(value)


def counted(entry: Entry) -> int:
    try:
        value = msgspec.msgpack.decode(entry.value) if entry.codec == "msgpack" else json.loads(entry.value.decode())
    except (ValueError, msgspec.MsgspecError) as error:
        raise WrongState("no number") from error
    if type(value) is not int or (entry.codec == "bytes" and entry.value != entry.value.strip()):
        raise WrongState("no whole number")
    return value


# --- reading -------------------------------------------------------------------------------------


def shown(world: World, tenant: str, key: str) -> r.KvValue:
    entry = world.kv.get((tenant, key))
    return r.KvValue(False) if entry is None else r.KvValue(True, entry.value, entry.codec, entry.until)


def get_one(world: World, tenant: str, command: c.KvGet) -> r.KvValue:
    check_key(world, command.key)
    return shown(world, tenant, command.key)


def get_many(world: World, tenant: str, command: c.KvGetMany) -> r.KvValues:
    check_keys(world, command.keys)
    return r.KvValues([shown(world, tenant, key) for key in command.keys])


def exists(world: World, tenant: str, command: c.KvExists) -> r.KvFound:
    check_keys(world, command.keys)
    return r.KvFound([(tenant, key) in world.kv for key in command.keys])


def ttl(world: World, tenant: str, command: c.KvTtl) -> r.KvExpiry:
    check_key(world, command.key)
    entry = world.kv.get((tenant, command.key))
    return r.KvExpiry(False) if entry is None else r.KvExpiry(True, entry.until)


def keys(world: World, tenant: str, command: c.KvKeys) -> r.KvKeyPage:
    check.chars(command.pattern, world.limits.kv_key_chars_max)
    check.chars(command.after, world.limits.kv_key_chars_max)
    if command.pattern.count("*") + command.pattern.count("?") > world.limits.kv_wildcards_max:
        raise LimitExceeded("too many wildcards")
    check.number(command.limit, 1, world.limits.kv_keys_max)
    found = [
        key
        for key in keys_of(world, tenant)
        if fnmatch.fnmatchcase(key, command.pattern.replace("[", "[[]"))
        and (command.after is None or key > command.after)
    ]
    more = len(found) > command.limit
    return r.KvKeyPage(found[: command.limit], found[command.limit - 1] if more else None)
