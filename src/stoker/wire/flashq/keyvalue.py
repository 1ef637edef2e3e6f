"""The key-value store beside the queues: KVGET, KVMSET and the others, where a name alone does not say it."""

from typing import Any

from msgspec import Raw

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest
from stoker.wire.flashq import mapping
from stoker.wire.flashq.answers import Answer, Plan, done
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.payloads import NULL, shown

STAYS = -1
NOT_THERE = -2
"""What KVTTL says of an entry without an end, and of none."""

ENTRY = mapping.fields_of(c.KvEntry, {"ttl": "ttl_ms"})
Entry: Any = mapping.request_type("KvEntry", ENTRY, None)
"""One value of many."""
entry_of = mapping.builder(c.KvEntry, ENTRY, {})


def set_many(request: Any, context: RequestContext) -> Plan:
    if not request.entries:
        return done(count=0)
    reply: r.Done = yield c.KvSetMany([entry_of(entry, context) for entry in request.entries])
    return done(count=reply.count, level=reply.level)


def got(request: Any, reply: r.KvValue, context: RequestContext) -> Answer:
    return done(key=request.key, exists=reply.exists, value=_value(reply, context))


def _value(reply: r.KvValue, context: RequestContext) -> Raw:
    return shown(reply.value, reply.codec, context.codec) if reply.exists else NULL[context.codec]


def get_many(request: Any, context: RequestContext) -> Plan:
    if not request.keys:
        return done(values=[])
    reply: r.KvValues = yield c.KvGetMany(request.keys)
    return done(values=[_value(one, context) for one in reply.values])


def _keys(request: Any) -> list[str]:
    keys = [*([request.key] if request.key is not None else []), *request.keys]
    if not keys:
        raise InvalidRequest("invalid request: missing required field `key`")
    return keys


def delete(request: Any, context: RequestContext) -> c.Command[Any]:
    return c.KvDelete(_keys(request))


def deleted(request: Any, reply: r.Done, context: RequestContext) -> Answer:
    return done(exists=reply.count > 0, deleted=reply.count > 0, count=reply.count, level=reply.level)


def exists(request: Any, context: RequestContext) -> c.Command[Any]:
    return c.KvExists(_keys(request))


def found(request: Any, reply: r.KvFound, context: RequestContext) -> Answer:
    there = list(reply.exists)
    return done(exists=all(there), found=there, count=sum(there))


def left(request: Any, reply: r.KvExpiry, context: RequestContext) -> Answer:
    if not reply.exists:
        return done(ttl=NOT_THERE)
    return done(ttl=max(0, reply.expires_at - context.now) if reply.expires_at else STAYS)
