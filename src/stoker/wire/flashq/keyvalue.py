"""The key-value store beside the queues: KVSET, KVGET and the others."""

from typing import Any

from msgspec import Raw

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Answer, Plan, done
from stoker.wire.flashq.context import Context
from stoker.wire.flashq.payloads import NULL, shown, stored_as

STAYS = -1
NOT_THERE = -2
"""What KVTTL says of an entry without an end, and of none."""


def set_(request: q.KvSet, context: Context) -> c.Command[Any]:
    value = stored_as(request.value, context.codec, request.codec)
    return c.KvSet(request.key, value, request.ttl, request.codec or context.codec)


def set_many(request: q.KvSetMany, context: Context) -> Plan:
    if not request.entries:
        return done(count=0)
    codec = context.codec
    entries = [
        c.KvEntry(entry.key, stored_as(entry.value, codec, entry.codec), entry.ttl, entry.codec or codec)
        for entry in request.entries
    ]
    reply: r.Done = yield c.KvSetMany(entries)
    return done(count=reply.count, level=reply.level)


def get(request: q.ByKey, context: Context) -> c.Command[Any]:
    return c.KvGet(request.key)


def got(request: q.ByKey, reply: r.KvValue, context: Context) -> Answer:
    return done(key=request.key, exists=reply.exists, value=_value(reply, context))


def _value(reply: r.KvValue, context: Context) -> Raw:
    return shown(reply.value, reply.codec, context.codec) if reply.exists else NULL[context.codec]


def get_many(request: q.ByKeys, context: Context) -> Plan:
    if not request.keys:
        return done(values=[])
    reply: r.KvValues = yield c.KvGetMany(request.keys)
    return done(values=[_value(one, context) for one in reply.values])


def _keys(request: q.KeyOrKeys) -> list[str]:
    keys = [*([request.key] if request.key is not None else []), *request.keys]
    if not keys:
        raise InvalidRequest("invalid request: missing required field `key`")
    return keys


def delete(request: q.KeyOrKeys, context: Context) -> Plan:
    reply: r.Done = yield c.KvDelete(_keys(request))
    return done(exists=reply.count > 0, deleted=reply.count > 0, count=reply.count, level=reply.level)


def exists(request: q.KeyOrKeys, context: Context) -> Plan:
    reply: r.KvFound = yield c.KvExists(_keys(request))
    found = list(reply.exists)
    return done(exists=all(found), found=found, count=sum(found))


def expire(request: q.KvExpire, context: Context) -> c.Command[Any]:
    return c.KvExpire(request.key, request.ttl)


def expires(request: q.KvExpire, reply: r.KvExpiry, context: Context) -> Answer:
    return done(exists=reply.exists, level=reply.level)


def ttl(request: q.ByKey, context: Context) -> c.Command[Any]:
    return c.KvTtl(request.key)


def left(request: q.ByKey, reply: r.KvExpiry, context: Context) -> Answer:
    if not reply.exists:
        return done(ttl=NOT_THERE)
    return done(ttl=max(0, reply.expires_at - context.now) if reply.expires_at else STAYS)


def keys(request: q.KvKeys, context: Context) -> Plan:
    reply: r.KvKeyPage = yield c.KvKeys(request.pattern, request.after, request.limit)
    return done(keys=list(reply.keys), next_after=reply.next_after)


def increment(request: q.KvIncrement, context: Context) -> c.Command[Any]:
    return c.KvIncrement(request.key, request.by)


def incremented(request: q.KvIncrement, reply: r.KvNumber, context: Context) -> Answer:
    return done(value=reply.value, level=reply.level)
