"""PUSH, PUSHB and FLOW."""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, Refused
from stoker.model.options import DEFAULT_OPTIONS, Dependency, Options
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Answer, Duplicate, Plan, done, ids_of, worded
from stoker.wire.flashq.context import Context
from stoker.wire.flashq.decoding import Codec
from stoker.wire.flashq.options import PLAIN, REFUSED, options_of, options_of_all
from stoker.wire.flashq.payloads import stored_as

AnyBatch = q.PushBatch | q.PlainPushBatch | q.MixedPushBatch


def push(request: q.Push | q.PlainPush, context: Context) -> c.Command[Any]:
    codec = context.codec
    if type(request) is q.PlainPush:
        return c.Push(request.queue, bytes(request.data), PLAIN[codec])
    assert isinstance(request, q.Push)
    payload, options = stored_as(request.data, codec, request.codec), options_of(request, codec)
    if request.request_key is None:
        return c.Push(request.queue, payload, options, request.durability)
    return c.PushBatch(
        request.queue,
        [payload],
        options,
        atomic=True,
        request_key=request.request_key,
        durability=request.durability,
    )


def pushed(request: q.Push | q.PlainPush, reply: r.Pushed | r.PushedBatch, context: Context) -> Answer:
    if isinstance(reply, r.PushedBatch):
        reply = r.Pushed(reply.ids[0], not reply.duplicates, reply.duplicates.get(0), reply.level)
    if reply.created:
        return {"ok": True, "success": True, "id": reply.id, "level": reply.level}
    by = reply.duplicate_by
    if not context.hello and isinstance(request, q.Push) and request.on_conflict is None:
        if by == "unique_key":
            raise Duplicate(f"Duplicate job with key: {request.unique_key} (held by job {reply.id})")
        if by == "debounce_id":
            raise Duplicate(
                f"Debounced: job with id {request.debounce_id!r} was pushed recently (duplicate of job {reply.id})"
            )
    return done(id=reply.id, level=reply.level, created=False, duplicate_by=by)


def push_batch(request: AnyBatch, context: Context) -> Plan:
    """Items that ask for the same are pushed as one thing; if they are refused for it, each of them is told."""
    if not request.jobs:
        return done(ids=[], failed=[], errors=[])
    wrong: dict[int, str] = dict(request.wrong) if isinstance(request, q.MixedPushBatch) else {}
    command = batch_command(request, context, wrong)
    try:
        reply: r.PushedBatch = yield command
    except Refused:
        if command.each is not None or command.atomic:
            raise
        each = [command.options] * len(command.payloads)
        reply = yield msgspec.structs.replace(command, options=DEFAULT_OPTIONS, each=each)
    answer: Answer = {"ok": True, "success": not reply.refused, "ids": ids_of(reply.ids, context), "level": reply.level}
    if reply.refused or not context.hello:
        answer["failed"] = answer["errors"] = [
            {"index": number, "code": refusal.code, "error": worded(refusal.code, wrong.get(number, refusal.message))}
            for number, refusal in reply.refused.items()
        ]
    if reply.duplicates:
        answer["duplicates"] = [{"index": number, "by": by} for number, by in reply.duplicates.items()]
    return answer


def batch_command(request: AnyBatch, context: Context, wrong: dict[int, str]) -> c.PushBatch:
    """One command for all items. Those that are `wrong` keep their place, as something that no queue takes."""
    codec = context.codec
    each: list[Options] | None = None
    if type(request) is q.PlainPushBatch:
        payloads, options = [bytes(item.data) for item in request.jobs], PLAIN[codec]
    else:
        items: list[q.JobItem] = request.jobs  # type: ignore[assignment]
        options, each = options_of_all(items, codec)
        payloads = [_payload(number, item, codec, wrong) for number, item in enumerate(items)]
        if wrong:
            if request.atomic:
                raise InvalidRequest(f"invalid item {min(wrong)}: {wrong[min(wrong)]}")
            each = each or [options] * len(items)
            for number in wrong:
                each[number] = REFUSED
    return c.PushBatch(request.queue, payloads, options, each, request.atomic, request.request_key, request.durability)


def _payload(number: int, item: q.JobItem, codec: Codec, wrong: dict[int, str]) -> bytes:
    try:
        return stored_as(item.data, codec, item.codec)
    except InvalidRequest as error:
        wrong[number] = error.message
        return b""


def flow(request: q.Flow, context: Context) -> Plan:
    """The children and then the parent, in one batch: there in whole or not at all."""
    queues = {child.queue or request.queue for child in request.children} | {request.queue}
    if len(queues) > 1:
        raise InvalidRequest(
            "invalid flow: parent and children must be in one queue; for several queues push the children first, "
            "and then the parent with `depends_on`"
        )
    codec = context.codec
    jobs: list[q.FlowChild | q.Flow] = [*request.children, request]
    each = [options_of(job, codec) for job in jobs]
    edges = tuple(Dependency(item=number) for number in range(len(request.children)))
    each[-1] = msgspec.structs.replace(each[-1], depends_on=each[-1].depends_on + edges)
    payloads = [stored_as(job.data, codec, job.codec) for job in jobs]
    reply: r.PushedBatch = yield c.PushBatch(
        request.queue,
        payloads,
        each=each,
        atomic=True,
        request_key=request.request_key,
        durability=request.durability,
    )
    *children, parent = reply.ids
    return done(id=parent, parent_id=parent, children_ids=children, level=reply.level)
