"""Key-value entries."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from stoker.brokers.redis.calls import Plan, PlanContext, Rejected, ScriptCall
from stoker.engine import checks, kv
from stoker.engine.globs import WILD, Glob
from stoker.engine.kv_entries import Entry
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.options import CODECS

_HEAD = struct.Struct(">Bd")
PAGE = 2_000


def check_keys(context: PlanContext, keys: Any) -> None:
    kv.check_keys(context.checker, context.tenant, keys)


def get_values(context: PlanContext, keys: Sequence[str]) -> Plan[list[r.KvValue]]:
    done = yield ScriptCall("kv", {"what": "get", "keys": list(keys)})
    return [
        r.KvValue(True, one[3], CODECS[one[1]], int(one[2])) if one[0] else r.KvValue(False) for one in done.values[0]
    ]


def get_one(context: PlanContext, command: c.KvGet) -> Plan[r.KvValue]:
    checks.kv_key(command.key, context.limits)
    return (yield from get_values(context, [command.key]))[0]


def get_many(context: PlanContext, command: c.KvGetMany) -> Plan[r.KvValues]:
    check_keys(context, command.keys)
    return r.KvValues((yield from get_values(context, command.keys)))


def exists(context: PlanContext, command: c.KvExists) -> Plan[r.KvFound]:
    check_keys(context, command.keys)
    return r.KvFound([one.exists for one in (yield from get_values(context, command.keys))])


def ttl(context: PlanContext, command: c.KvTtl) -> Plan[r.KvExpiry]:
    checks.kv_key(command.key, context.limits)
    (found,) = yield from get_values(context, [command.key])
    return r.KvExpiry(found.exists, found.expires_at)


def too_many(context: PlanContext) -> errors.LimitExceeded:
    most = context.limits.kv_entries_per_tenant_max
    return errors.LimitExceeded(f"{most} entries are the most that a tenant may have: delete some, or let them expire")


def set_one(context: PlanContext, command: c.KvSet) -> Plan[r.Done]:
    return (yield from write(context, [command]))


def set_many(context: PlanContext, command: c.KvSetMany) -> Plan[r.Done]:
    checks.kv_batch(command.entries, "entries", context.limits)
    for entry in command.entries:
        if type(entry) is not c.KvEntry:
            raise errors.InvalidRequest(f"invalid entry {checks.short(entry)}: expected KvEntry(key, value)")
    return (yield from write(context, command.entries))


def write(context: PlanContext, entries: Iterable[c.KvEntry | c.KvSet]) -> Plan[r.Done]:
    limits = context.limits
    made: dict[str, c.KvEntry | c.KvSet] = {}
    for entry in entries:
        checks.kv_key(entry.key, limits)
        checks.payload(entry.value, limits, "value", limits.kv_value_bytes_max)
        checks.duration(entry.ttl_ms, "ttl_ms")
        checks.codec(entry.codec)
        made[entry.key] = entry
    params = {
        "what": "set",
        "keys": list(made),
        "ttls": [entry.ttl_ms for entry in made.values()],
        "codecs": [CODECS.index(entry.codec) for entry in made.values()],
        "most": limits.kv_entries_per_tenant_max,
    }
    try:
        yield ScriptCall("kv", params, tuple(entry.value for entry in made.values()))
    except Rejected as rejected:
        if rejected.code == "limit_exceeded":
            raise too_many(context) from None
        raise
    return r.Done(len(made), context.level)


def delete(context: PlanContext, command: c.KvDelete) -> Plan[r.Done]:
    check_keys(context, command.keys)
    done = yield ScriptCall("kv", {"what": "delete", "keys": list(dict.fromkeys(command.keys))})
    return r.Done(done.values[0], context.level)


def expire(context: PlanContext, command: c.KvExpire) -> Plan[r.KvExpiry]:
    checks.kv_key(command.key, context.limits)
    checks.duration(command.ttl_ms, "ttl_ms")
    done = yield ScriptCall("kv", {"what": "expire", "key": command.key, "ttl": command.ttl_ms})
    there, expires_at = done.values
    return r.KvExpiry(bool(there), int(expires_at), context.level if there else "memory")


def keys(context: PlanContext, command: c.KvKeys) -> Plan[r.KvKeyPage]:
    limits = context.limits
    checks.text(command.pattern, "pattern", limits.kv_key_chars_max)
    wild = len(WILD.findall(command.pattern))
    if wild > limits.kv_wildcards_max:
        raise errors.LimitExceeded(f"{wild} wildcards are over the limit of {limits.kv_wildcards_max}: use fewer")
    if command.after is not None:
        checks.text(command.after, "after", limits.kv_key_chars_max)
    checks.count(command.limit, "limit", limits.kv_keys_max)
    glob, after = Glob(command.pattern), command.after
    if glob.is_exact:
        if not glob.prefix:
            return r.KvKeyPage([])
        (found,) = yield from get_values(context, [glob.prefix])
        there = found.exists and (after is None or glob.prefix > after)
        return r.KvKeyPage([glob.prefix] if there else [])
    candidates: list[str] = []
    start = max(glob.prefix, after or "")
    while True:
        done = yield ScriptCall("kv", {"what": "keys", "from": start, "limit": PAGE})
        page = [key.decode() for key in done.values[0]]
        candidates += [key for key in page if not candidates or key > candidates[-1]]
        found_page = kv.page(iter(candidates), glob, after, command.limit)
        is_last = len(page) < PAGE or not page[-1].startswith(glob.prefix)
        if found_page.next_after is not None or is_last:
            return found_page
        start = page[-1]


def increment(context: PlanContext, command: c.KvIncrement) -> Plan[r.KvNumber]:
    """Read the entry, count in Python, and write if it is still the same: sums beyond 2**53 are exact."""
    checks.kv_key(command.key, context.limits)
    checks.number(command.by, "by", kv.NUMBER_MIN, kv.NUMBER_MAX)
    done = yield ScriptCall("kv", {"what": "raw", "key": command.key})
    raw: bytes = done.values[0]
    while True:
        entry = Entry(b"0", "json")
        if raw:
            codec, expires_at = _HEAD.unpack_from(raw)
            entry = Entry(raw[_HEAD.size :], CODECS[codec], int(expires_at))
        number = kv.number_in(command.key, entry) + command.by
        if not kv.NUMBER_MIN <= number <= kv.NUMBER_MAX:
            raise errors.LimitExceeded(f"the entry {command.key!r} would become {number}, which is beyond 64 bits")
        params = {
            "what": "swap",
            "key": command.key,
            "codec": CODECS.index(entry.codec),
            "expires": entry.expires_at,
            "most": context.limits.kv_entries_per_tenant_max,
        }
        try:
            done = yield ScriptCall("kv", params, (raw, kv.as_bytes(number, entry.codec)))
        except Rejected as rejected:
            if rejected.code == "limit_exceeded":
                raise too_many(context) from None
            raise
        swapped, raw = done.values
        if swapped:
            return r.KvNumber(number, context.level)
