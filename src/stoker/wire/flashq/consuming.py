"""PULL, ACK, FAIL and what else a worker says."""

import math
from typing import Any

from msgspec import Raw

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest
from stoker.model.options import Codec as Stored
from stoker.wire.flashq.answers import Answer, Plan, done, failed_items, refused
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.jobs import delivered, listed, state_name
from stoker.wire.flashq.payloads import stored_as
from stoker.wire.flashq.requests import NOT_SAID, NULLS

NO_RESULT = (*NULLS, bytes(NOT_SAID))


def to_wait(wait_ms: int, context: RequestContext) -> int:
    """A wait that is longer than the server allows is cut: the client asks again."""
    return min(wait_ms, context.limits.wait_ms_max)


def pull(request: Any, context: RequestContext, count: int = 1) -> c.Command[Any]:
    """Written out, and so are the others that workers send all the time: a third of a generic way's time."""
    queues = [request.queue] if isinstance(request.queue, str) else request.queue
    return c.Pull(queues, count, to_wait(request.timeout, context), request.worker, request.lease_ms, request.claim)


def pull_batch(request: Any, context: RequestContext) -> c.Command[Any]:
    return pull(request, context, request.count)


def pulled(request: Any, reply: r.Delivery, context: RequestContext) -> Answer:
    if not reply.runs:
        return empty(done(job=None), reply)
    return {"ok": True, "success": True, "job": Raw(delivered(reply, context, request.lease_ms)[0])}


def pulled_batch(request: Any, reply: r.Delivery, context: RequestContext) -> Answer:
    if not reply.runs:
        return empty(done(jobs=[]), reply)
    jobs = listed(delivered(reply, context, request.lease_ms), context)
    return {"ok": True, "success": True, "jobs": jobs, "token": reply.token}


def empty(answer: Answer, reply: r.Delivery) -> Answer:
    """No job; and when there may be one, if that is known."""
    if reply.next_at is not None:
        answer["next_at"] = reply.next_at
    return answer


def ack(request: Any, context: RequestContext) -> c.Command[Any]:
    result = _result(request.result, context, request.codec)
    if result is None:
        return c.Ack([request.id], request.token)
    return c.Ack([request.id], request.token, [result], request.codec or context.codec)


def settled(request: Any, reply: r.Settled, context: RequestContext) -> Answer:
    """Of a command about one job."""
    if reply.refused:
        raise refused(request.id, reply.refused[request.id])
    return {"ok": True, "success": True, "level": reply.level}


def ack_batch(request: Any, context: RequestContext) -> Plan:
    if not request.ids:
        return done(count=0, ids=[0])
    results: list[bytes | None] | None = None
    if request.results is not None:
        results = [_result(value, context, request.codec) for value in request.results]
    reply: r.Settled = yield c.Ack(request.ids, request.tokens, results, request.codec or context.codec)
    return counted(reply)


def _result(value: Raw, context: RequestContext, codec: Stored | None) -> bytes | None:
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


def fail(request: Any, context: RequestContext) -> c.Command[Any]:
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


def failed(request: Any, reply: r.Failed, context: RequestContext) -> Answer:
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


def named(request: Any) -> list[int]:
    """The one job that a request names, or all of them."""
    ids = [*([request.id] if request.id is not None else []), *request.ids]
    if not ids:
        raise InvalidRequest("invalid request: missing required field `id`")
    return ids


def tokens(request: Any) -> Any:
    return request.tokens if request.tokens is not None else request.token


def release(request: Any, context: RequestContext) -> c.Command[Any]:
    return c.Release(named(request), tokens(request), request.delay)


def heartbeat(request: Any, context: RequestContext) -> c.Command[Any]:
    return c.Extend(named(request), tokens(request), request.lease_ms)


def counted_or_refused(request: Any, reply: r.Settled, context: RequestContext) -> Answer:
    check_single(request, reply)
    return counted(reply)


def extended(request: Any, reply: r.Extended, context: RequestContext) -> Answer:
    check_single(request, reply)
    return done(
        count=reply.count,
        lease_until=reply.lease_until,
        cancelled=list(reply.cancelled),
        failed=failed_items(reply.refused),
    )


def check_single(request: Any, reply: r.Settled | r.Extended) -> None:
    """What was refused of a request about one job is an error."""
    if reply.refused and request.id is not None and not request.ids:
        raise refused(request.id, reply.refused[request.id])


def percent(value: float, context: RequestContext) -> int:
    if not math.isfinite(value):
        raise InvalidRequest("invalid progress: expected a number from 0 to 100")
    return int(value)
