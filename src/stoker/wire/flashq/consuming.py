"""PULL, ACK, FAIL and what else a worker says."""

import math
from typing import Any

from msgspec import Raw

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest
from stoker.model.options import Codec as Stored
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Answer, Plan, done, failed_items, refused
from stoker.wire.flashq.context import Context
from stoker.wire.flashq.jobs import delivered, listed, state_name
from stoker.wire.flashq.payloads import stored_as
from stoker.wire.flashq.requests import NOT_SAID, NULLS

NO_RESULT = (*NULLS, bytes(NOT_SAID))


def pull(request: q.Pull, context: Context) -> c.Command[Any]:
    count = request.count if isinstance(request, q.PullBatch) else 1
    queues = [request.queue] if isinstance(request.queue, str) else request.queue
    wait_ms = min(request.timeout, context.limits.wait_ms_max)
    return c.Pull(queues, count, wait_ms, request.worker, request.lease_ms, request.claim)


def pulled(request: q.Pull, reply: r.Delivery, context: Context) -> Answer:
    if not reply.runs:
        return empty(done(job=None), reply)
    return {"ok": True, "success": True, "job": Raw(delivered(reply, context, request.lease_ms)[0])}


def pulled_batch(request: q.PullBatch, reply: r.Delivery, context: Context) -> Answer:
    if not reply.runs:
        return empty(done(jobs=[]), reply)
    jobs = listed(delivered(reply, context, request.lease_ms), context)
    return {"ok": True, "success": True, "jobs": jobs, "token": reply.token}


def empty(answer: Answer, reply: r.Delivery) -> Answer:
    """No job; and when there may be one, if that is known."""
    if reply.next_at is not None:
        answer["next_at"] = reply.next_at
    return answer


def ack(request: q.Ack, context: Context) -> c.Command[Any]:
    result = _result(request.result, context, request.codec)
    if result is None:
        return c.Ack([request.id], request.token)
    return c.Ack([request.id], request.token, [result], request.codec or context.codec)


def settled(request: Any, reply: r.Settled, context: Context) -> Answer:
    """Of a command about one job."""
    if reply.refused:
        raise refused(request.id, reply.refused[request.id])
    return {"ok": True, "success": True, "level": reply.level}


def ack_batch(request: q.AckBatch, context: Context) -> Plan:
    if not request.ids:
        return done(count=0, ids=[0])
    results: list[bytes | None] | None = None
    if request.results is not None:
        results = [_result(value, context, request.codec) for value in request.results]
    reply: r.Settled = yield c.Ack(request.ids, request.tokens, results, request.codec or context.codec)
    return counted(reply)


def _result(value: Raw, context: Context, codec: Stored | None) -> bytes | None:
    """`null` is how some clients leave a result out, and in a list there is no other way."""
    result = bytes(value)
    if result in NO_RESULT:
        return None
    return result if codec is None else stored_as(value, context.codec, codec)


def counted(reply: r.Settled) -> Answer:
    """How many were settled: as a number, and as the first of `ids`, where flashQ has it."""
    answer = done(count=reply.count, ids=[reply.count], level=reply.level)
    if reply.refused:
        answer["failed"] = failed_items(reply.refused)
    return answer


def fail(request: q.Fail, context: Context) -> c.Command[Any]:
    return c.Fail(
        [request.id],
        request.token,
        request.error,
        request.error_class,
        request.stack if isinstance(request.stack, str) else "\n".join(request.stack),
        request.retry and not request.unrecoverable,
        request.delay,
        request.reason,
    )


def failed(request: q.Fail, reply: r.Failed, context: Context) -> Answer:
    if reply.refused:
        raise refused(request.id, reply.refused[request.id])
    job = reply.jobs[0]
    return {
        "ok": True,
        "success": True,
        "state": state_name(job.state, context),
        "will_retry": job.state in ("waiting", "delayed"),
        "run_at": job.due,
        "level": reply.level,
    }


def named(request: q.Release | q.Heartbeat) -> list[int]:
    """The one job that a request names, or all of them."""
    ids = [*([request.id] if request.id is not None else []), *request.ids]
    if not ids:
        raise InvalidRequest("invalid request: missing required field `id`")
    return ids


def tokens(request: q.Release | q.Heartbeat) -> Any:
    return request.tokens if request.tokens is not None else request.token


def release(request: q.Release, context: Context) -> Plan:
    ids = named(request)
    reply: r.Settled = yield c.Release(ids, tokens(request), request.delay)
    if reply.refused and request.id is not None and not request.ids:
        raise refused(request.id, reply.refused[request.id])
    return counted(reply)


def heartbeat(request: q.Heartbeat, context: Context) -> Plan:
    ids = named(request)
    reply: r.Extended = yield c.Extend(ids, tokens(request), request.lease_ms)
    if reply.refused and request.id is not None and not request.ids:
        raise refused(request.id, reply.refused[request.id])
    return done(
        count=reply.count,
        lease_until=reply.lease_until,
        cancelled=list(reply.cancelled),
        failed=failed_items(reply.refused),
    )


def progress(request: q.Progress, context: Context) -> c.Command[Any]:
    if not math.isfinite(request.progress):
        raise InvalidRequest("invalid progress: expected a number from 0 to 100")
    return c.SetProgress(request.id, int(request.progress), request.message, request.token)


def log(request: q.Log, context: Context) -> c.Command[Any]:
    return c.AppendLog(request.id, request.message, request.level, request.token)


def partial(request: q.Partial, context: Context) -> c.Command[Any]:
    data = stored_as(request.data, context.codec, request.codec)
    return c.AppendPartial(request.id, data, request.index, request.token, request.codec or context.codec)


def accepted(request: Any, reply: r.Done, context: Context) -> Answer:
    """It was done, and there is nothing more to say."""
    return {"ok": True, "success": True, "level": reply.level}


def touched(request: Any, reply: r.Done, context: Context) -> Answer:
    """It was done to so many jobs."""
    return {"ok": True, "success": True, "count": reply.count, "level": reply.level}
