"""CANCEL, PAUSE, CLEAN, DLQ and what else an operator does."""

from typing import Any

from msgspec.structs import asdict

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import NotFound
from stoker.model.options import DeadLetterPolicy, RateLimit
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Answer, Plan, done, failed_items, refused
from stoker.wire.flashq.context import Context
from stoker.wire.flashq.jobs import state_name, state_of
from stoker.wire.flashq.payloads import stored_as


def cancel(request: q.ById, context: Context) -> c.Command[Any]:
    return c.Cancel(request.id)


def cancelled(request: q.ById, reply: r.JobView, context: Context) -> Answer:
    """A running job is only asked to stop; its worker learns it at the next heartbeat."""
    return done(id=reply.id, state=state_name(reply.state, context), cancel_requested=reply.cancel_requested)


def promote(request: q.ById, context: Context) -> c.Command[Any]:
    return c.Promote(request.id)


def discard(request: q.ById, context: Context) -> c.Command[Any]:
    return c.Discard(request.id)


def update(request: q.Update, context: Context) -> c.Command[Any]:
    payload = stored_as(request.data, context.codec, request.codec)
    return c.UpdatePayload(request.id, payload, request.codec or context.codec)


def change_priority(request: q.ChangePriority, context: Context) -> c.Command[Any]:
    return c.ChangePriority(request.id, request.priority)


def move_to_delayed(request: q.MoveToDelayed, context: Context) -> c.Command[Any]:
    return c.MoveToDelayed(request.id, request.delay, request.token)


def pause(request: q.ByQueue, context: Context) -> c.Command[Any]:
    return c.Pause(request.queue)


def resume(request: q.ByQueue, context: Context) -> c.Command[Any]:
    return c.Resume(request.queue)


def set_rate_limit(request: q.SetRateLimit, context: Context) -> c.Command[Any]:
    limit = RateLimit(request.limit, request.per_ms, request.burst) if request.limit else None
    return c.SetRateLimit(request.queue, limit)


def clear_rate_limit(request: q.ByQueue, context: Context) -> c.Command[Any]:
    return c.SetRateLimit(request.queue, None)


def set_concurrency(request: q.Limit, context: Context) -> c.Command[Any]:
    return c.SetConcurrency(request.queue, request.limit)


def clear_concurrency(request: q.ByQueue, context: Context) -> c.Command[Any]:
    return c.SetConcurrency(request.queue, 0)


def set_policy(request: q.SetPolicy, context: Context) -> Plan:
    letters = DeadLetterPolicy(**asdict(request.dead_letters)) if request.dead_letters is not None else None
    reply: r.Done = yield c.SetQueuePolicy(request.queue, request.group_on_retry, letters, request.durability)
    if request.rate_limit is not None:
        limit = RateLimit(**asdict(request.rate_limit)) if request.rate_limit.count else None
        reply = yield c.SetRateLimit(request.queue, limit)
    if request.concurrency is not None:
        reply = yield c.SetConcurrency(request.queue, request.concurrency)
    return done(level=reply.level)


def drain(request: q.Drain, context: Context) -> c.Command[Any]:
    return c.Drain(request.queue, request.delayed)


def obliterate(request: q.Obliterate, context: Context) -> c.Command[Any]:
    return c.Obliterate(request.queue, request.force)


def clean(request: q.Clean, context: Context) -> Plan:
    limit = request.limit or context.limits.batch_jobs_max
    reply: r.Ids = yield c.Clean(request.queue, state_of(request.state), request.grace, limit)
    return done(count=len(reply.ids), ids=[len(reply.ids)], removed=list(reply.ids))


def retry_dead(request: q.RetryDead, context: Context) -> Plan:
    ids = [request.id] if request.id is not None else request.ids
    reply: r.Retried = yield c.RetryDead(request.queue, ids, request.reason, request.limit)
    if request.id is not None and reply.refused:
        raise refused_letter(request.id, reply.refused[request.id])
    count = len(reply.ids)
    return done(count=count, ids=[count], retried=list(reply.ids), failed=failed_items(reply.refused))


def refused_letter(job_id: int, code: str) -> Exception:
    if code == "not_found":
        return NotFound(f"Job not found: {job_id} is no dead letter of this queue")
    return refused(job_id, code)


def purge_dead(request: q.PurgeDead, context: Context) -> c.Command[Any]:
    return c.PurgeDead(request.queue, request.ids, request.reason)
