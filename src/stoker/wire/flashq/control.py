"""CANCEL, CLEAN, SETPOLICY and what else an operator does, where a name alone does not say it."""

from typing import Any

from msgspec.structs import asdict

from stoker.model import commands as c
from stoker.model import options as model
from stoker.model import replies as r
from stoker.model.errors import NotFound
from stoker.wire.flashq.answers import Answer, Plan, done, failed_items, refused
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.jobs import state_name


class RateLimit(model.RateLimit, frozen=True, forbid_unknown_fields=True):
    """So many deliveries in a time; a count of 0 lifts the limit."""


class DeadLetterPolicy(model.DeadLetterPolicy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue does with jobs that will not be tried again."""


def cancelled(request: Any, reply: r.JobView, context: RequestContext) -> Answer:
    """A running job is only asked to stop; its worker learns it at the next heartbeat."""
    return done(id=reply.id, state=state_name(reply.state, context), cancel_requested=reply.cancel_requested)


def set_rate_limit(request: Any, context: RequestContext) -> c.Command[Any]:
    limit = model.RateLimit(request.limit, request.per_ms, request.burst) if request.limit else None
    return c.SetRateLimit(request.queue, limit)


def set_policy(request: Any, context: RequestContext) -> Plan:
    letters = model.DeadLetterPolicy(**asdict(request.dead_letters)) if request.dead_letters is not None else None
    reply: r.Done = yield c.SetQueuePolicy(request.queue, request.group_on_retry, letters, request.durability)
    if request.rate_limit is not None:
        limit = model.RateLimit(**asdict(request.rate_limit)) if request.rate_limit.count else None
        reply = yield c.SetRateLimit(request.queue, limit)
    if request.concurrency is not None:
        reply = yield c.SetConcurrency(request.queue, request.concurrency)
    return done(level=reply.level)


def to_clean(limit: int, context: RequestContext) -> int:
    return limit or context.limits.batch_jobs_max


def cleaned(request: Any, reply: r.Ids, context: RequestContext) -> Answer:
    return done(count=len(reply.ids), ids=[len(reply.ids)], removed=list(reply.ids))


def retry_dead(request: Any, context: RequestContext) -> c.Command[Any]:
    ids = [request.id] if request.id is not None else request.ids
    return c.RetryDead(request.queue, ids, request.reason, request.limit)


def retried(request: Any, reply: r.Retried, context: RequestContext) -> Answer:
    if request.id is not None and reply.refused:
        raise refused_letter(request.id, reply.refused[request.id])
    count = len(reply.ids)
    return done(count=count, ids=[count], retried=list(reply.ids), failed=failed_items(reply.refused))


def refused_letter(job_id: int, code: str) -> Exception:
    if code == "not_found":
        return NotFound(f"Job not found: {job_id} is not a dead letter of this queue")
    return refused(job_id, code)
