"""What operators ask for: limits, pauses, cancelling, moving, removing, dead letters."""

from typing import Any

import msgspec

from stoker.brokers.redis.calls import Plan, PlanContext, Rejected, ScriptCall, decode
from stoker.brokers.redis.views import encode_options, job_view, options_of
from stoker.engine import checks, settling
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.limits import INT_MAX
from stoker.model.options import CODECS, DeadLetterPolicy
from stoker.model.reasons import Reason
from stoker.model.states import STATES, State

MOST = 1_000
"""Jobs that one script goes over."""
SCAN = 1_000_000
"""Entries of a list that it looks at."""

# --- a queue's policy ------------------------------------------------------------------------------


def configure(context: PlanContext, queue: str, **changes: Any) -> Plan[r.Done]:
    checks.name(queue)
    try:
        yield ScriptCall("queue", {"queue": queue, **changes})
    except Rejected as rejected:
        if rejected.code != "limit_exceeded":
            raise
        most = context.limits.queues_per_tenant_max
        raise errors.LimitExceeded(f"{most} queues are there already: obliterate some, or use fewer names") from None
    return r.Done(level=context.level)


def pause(context: PlanContext, command: c.Pause) -> Plan[r.Done]:
    return (yield from configure(context, command.queue, paused=True))


def resume(context: PlanContext, command: c.Resume) -> Plan[r.Done]:
    return (yield from configure(context, command.queue, paused=False))


def set_rate_limit(context: PlanContext, command: c.SetRateLimit) -> Plan[r.Done]:
    limit = command.limit
    if limit is None:
        return (yield from configure(context, command.queue, refill=True))
    checks.rate_limit(limit)
    rate = {"count": limit.count, "per_ms": limit.per_ms, "burst": limit.burst or limit.count, "given": limit.burst}
    return (yield from configure(context, command.queue, refill=True, rate=rate, burst=limit.burst))


def set_concurrency(context: PlanContext, command: c.SetConcurrency) -> Plan[r.Done]:
    checks.number(command.limit, "concurrency limit", 0, INT_MAX)
    return (yield from configure(context, command.queue, concurrency=command.limit))


def set_queue_policy(context: PlanContext, command: c.SetQueuePolicy) -> Plan[r.Done]:
    changes: dict[str, Any] = {}
    if command.group_on_retry is not None:
        checks.group_policy(command.group_on_retry)
        changes["group"] = command.group_on_retry
    if command.dead_letters is not None:
        checks.dead_letter_policy(command.dead_letters)
        changes["dead"] = {name: getattr(command.dead_letters, name) for name in DeadLetterPolicy.__struct_fields__}
    if command.durability is not None:
        changes["durability"] = command.durability
    return (yield from configure(context, command.queue, **changes))


# --- one job ---------------------------------------------------------------------------------------


def controlled(job_id: Any, verb: str, call: ScriptCall) -> Plan[Any]:
    if type(job_id) is not int or not 0 < job_id < 2**53:
        raise checks.not_found("job", job_id)
    try:
        return (yield call)
    except Rejected as rejected:
        if rejected.message == b"held":
            told = f"job {checks.short(job_id)}: {settling.REFUSED[rejected.code]}"
            raise errors.BY_CODE[rejected.code](told) from None
        if rejected.code == "not_found":
            raise checks.not_found("job", job_id) from None
        if rejected.code != "wrong_state":
            raise
        state = STATES[int(rejected.message)]
        if verb == "be promoted" and state in (State.WAITING, State.BLOCKED, State.ACTIVE):
            told = f"job {job_id} is {state}: only a delayed job can be promoted"
        elif state is State.BLOCKED:
            told = f"job {job_id} is blocked: it cannot be delayed before its dependencies have finished"
        else:
            told = f"job {job_id} is {state}: it can no longer {verb}"
        raise errors.WrongState(told) from None


def cancel(context: PlanContext, command: c.Cancel) -> Plan[r.JobView]:
    call = ScriptCall("control", {"what": "cancel", "id": command.id})
    done = yield from controlled(command.id, "be cancelled", call)
    shown, gone = done.values
    job = job_view(shown)
    if not gone:
        return job
    return msgspec.structs.replace(
        job, state=STATES[gone], reason=Reason.CANCELLED, finished_at=done.now, due=0, blocked_by=()
    )


def promote(context: PlanContext, command: c.Promote) -> Plan[r.Done]:
    yield from controlled(command.id, "be promoted", ScriptCall("control", {"what": "promote", "id": command.id}))
    return r.Done(level=context.level)


def options_with(job_id: int, verb: str, **changes: Any) -> Plan[bytes]:
    done = yield from controlled(job_id, verb, ScriptCall("control", {"what": "options", "id": job_id}))
    return encode_options(msgspec.structs.replace(options_of(done.values[0]), **changes))


def change_priority(context: PlanContext, command: c.ChangePriority) -> Plan[r.Done]:
    checks.number(command.priority, "priority", -INT_MAX, INT_MAX)
    verb = "be reprioritised"
    raw = yield from options_with(command.id, verb, priority=command.priority)
    params = {"what": "priority", "id": command.id, "priority": command.priority}
    yield from controlled(command.id, verb, ScriptCall("control", params, (raw,)))
    return r.Done(level=context.level)


def move_to_delayed(context: PlanContext, command: c.MoveToDelayed) -> Plan[r.Done]:
    checks.duration(command.delay_ms, "delay_ms")
    params = {"what": "delay", "id": command.id, "delay": command.delay_ms}
    if command.token is not None:
        params["token"] = command.token
    yield from controlled(command.id, "be moved to delayed", ScriptCall("control", params))
    return r.Done(level=context.level)


def update_payload(context: PlanContext, command: c.UpdatePayload) -> Plan[r.Done]:
    checks.payload(command.payload, context.limits)
    args: tuple[bytes, ...] = (command.payload,)
    params: dict[str, Any] = {"what": "payload", "id": command.id}
    verb = "be updated"
    if command.codec is not None:
        checks.codec(command.codec)
        params["codec"] = CODECS.index(command.codec)
        call = ScriptCall("control", {"what": "options", "id": command.id, "dead": True})
        done = yield from controlled(command.id, verb, call)
        options = options_of(done.values[0])
        if options.codec != command.codec:
            args = (*args, encode_options(msgspec.structs.replace(options, codec=command.codec)))
    yield from controlled(command.id, verb, ScriptCall("control", params, args))
    return r.Done(level=context.level)


def discard(context: PlanContext, command: c.Discard) -> Plan[r.Done]:
    yield from controlled(command.id, "be discarded", ScriptCall("control", {"what": "discard", "id": command.id}))
    return r.Done(level=context.level)


# --- many jobs -------------------------------------------------------------------------------------


def drain(context: PlanContext, command: c.Drain) -> Plan[r.Done]:
    checks.name(command.queue)
    total = 0
    until: dict[str, int] = {}
    while True:
        params = {"what": "drain", "queue": command.queue, "delayed": command.delayed, "most": MOST, "scan": SCAN}
        has_more, *found = (yield ScriptCall("sweep", params | until)).values
        if found:
            count, last = decode(found[0])
            total += count
            until = {"until_": int(last)}
        if not has_more:
            return r.Done(total, context.level)


def clean(context: PlanContext, command: c.Clean) -> Plan[r.Ids]:
    checks.name(command.queue)
    checks.duration(command.age_ms, "age_ms")
    checks.count(command.limit, "limit", context.limits.batch_jobs_max)
    try:
        state = STATES.index(State(command.state))
    except ValueError as error:
        raise errors.InvalidRequest(
            f"unknown state {checks.short(command.state)}: expected one of {', '.join(STATES)}"
        ) from error
    if STATES[state] is State.ACTIVE:
        raise errors.InvalidRequest("active jobs cannot be cleaned: cancel them, or let their leases end")
    params = {"what": "clean", "queue": command.queue, "state": state, "age": command.age_ms, "limit": command.limit}
    _, *found = (yield ScriptCall("sweep", params | {"most": MOST, "scan": SCAN})).values
    return r.Ids(decode(found[0]) if found else [])


def obliterate(context: PlanContext, command: c.Obliterate) -> Plan[r.Done]:
    checks.name(command.queue)
    before: dict[str, int] = {}
    while True:
        params = {"what": "obliterate", "queue": command.queue, "force": command.force, "most": MOST, "scan": SCAN}
        try:
            done = yield ScriptCall("sweep", params | before)
        except Rejected as rejected:
            if rejected.code != "queue_active":
                raise
            active = rejected.message.decode()
            raise errors.QueueActive(
                f"queue {command.queue} has {active} active jobs: let them end, or use force"
            ) from None
        has_more, *found = done.values
        if found:
            before = {"done": decode(found[0])[0]}
        if not has_more:
            return r.Done(before.get("done", 0), context.level)


# --- dead letters ----------------------------------------------------------------------------------


def retry_dead(context: PlanContext, command: c.RetryDead) -> Plan[r.Retried]:
    checks.name(command.queue)
    if command.limit is not None:
        checks.number(command.limit, "limit", 1, INT_MAX)
    params: dict[str, Any] = {"what": "retry", "queue": command.queue, "most": MOST}
    if command.ids is not None:
        checks.ids(command.ids, context.limits)
        params["ids"] = list(command.ids)
    if command.reason is not None:
        params["reason"] = command.reason
    revived: list[int] = []
    refused: dict[int, str] = {}
    left, skip = command.limit, 0
    while True:
        more = {"skip": skip} | ({"limit": left} if left is not None else {})
        has_more, *found = (yield ScriptCall("sweep", params | more)).values
        if not found:
            return r.Retried([], dict.fromkeys(command.ids or (), "not_found"))
        ids, bad, looked = decode(found[0])
        revived += ids
        for job_id, code in bad:
            refused.setdefault(job_id, code)
        skip += looked - len(ids)
        left = left - looked if left is not None else None
        if not has_more:
            return r.Retried(revived, refused)


def purge_dead(context: PlanContext, command: c.PurgeDead) -> Plan[r.Done]:
    checks.name(command.queue)
    params: dict[str, Any] = {"what": "purge", "queue": command.queue, "most": MOST}
    if command.ids is not None:
        checks.ids(command.ids, context.limits)
        params["ids"] = list(command.ids)
    if command.reason is not None:
        params["reason"] = command.reason
    total = 0
    while True:
        has_more, *found = (yield ScriptCall("sweep", params)).values
        total += decode(found[0])[0] if found else 0
        if not has_more:
            return r.Done(total, context.level)
