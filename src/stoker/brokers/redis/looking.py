"""Jobs, pages, queues and counters."""

import struct
from typing import Any

from stoker.brokers.redis.calls import ListWait, Plan, PlanContext, Rejected, ScriptCall, decode
from stoker.brokers.redis.views import ended, job_view, logs_of, partials_of
from stoker.engine import checks
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.options import DeadLetterPolicy, RateLimit
from stoker.model.states import STATES

BUCKETS = 400
"""Of 128 jobs: one page looks at so many."""
AHEAD_MAX = 10_000
"""`jobs_ahead` counts to this number in each list."""


def shown(context: PlanContext, job_id: Any, what: str = "job", **more: Any) -> Plan[Any]:
    if type(job_id) is not int or not 0 < job_id < 2**53:
        raise checks.not_found("job", job_id)
    try:
        return (yield ScriptCall("look", {"what": what, "id": job_id, **more}))
    except Rejected:
        raise checks.not_found("job", job_id) from None


def get_job(context: PlanContext, command: c.GetJob) -> Plan[r.JobView]:
    done = yield from shown(context, command.id)
    return job_view(done.values[0])


def get_logs(context: PlanContext, command: c.GetLogs) -> Plan[r.Logs]:
    done = yield from shown(context, command.id)
    return logs_of(done.values[0])


def get_partials(context: PlanContext, command: c.GetPartials) -> Plan[r.Partials]:
    done = yield from shown(context, command.id)
    return partials_of(done.values[0])


def find_job(context: PlanContext, command: c.FindJob) -> Plan[r.JobView]:
    checks.key(command.custom_id, "custom_id", context.limits)
    params: dict[str, Any] = {"what": "find", "custom_id": command.custom_id}
    if command.queue is not None:
        checks.name(command.queue)
        params["queue"] = command.queue
    try:
        done = yield ScriptCall("look", params)
    except Rejected:
        raise errors.NotFound(f"job not found: no readable job has the custom id {command.custom_id!r}") from None
    return job_view(done.values[0])


def wait_job(context: PlanContext, command: c.WaitJob) -> Plan[r.Ended]:
    checks.count(command.wait_ms, "wait_ms", context.limits.wait_ms_max, 0)
    done = yield from shown(context, command.id, "wait", waits=bool(command.wait_ms))
    job = job_view(done.values[0])
    ends_at = done.now + command.wait_ms
    if job.finished_at or not command.wait_ms:
        return ended(job)
    told = None
    try:
        while True:
            looks = [at for at in (ends_at, done.next_at) if at >= 0]
            told = yield ListWait([f"done:{command.id}"], min(looks), ends_at)
            if told is not None:
                return told_end(told)
            try:
                done = yield ScriptCall("look", {"what": "job", "id": command.id})
            except Rejected:  # it has ended and is forgotten
                told = yield ListWait([f"done:{command.id}"], 0, ends_at)
                if told is None:
                    raise checks.not_found("job", command.id) from None
                return told_end(told)
            job = job_view(done.values[0])
            if job.finished_at or done.now >= ends_at:
                return ended(job)
    finally:
        if told is None:
            yield ScriptCall("look", {"what": "unwait", "id": command.id})


def told_end(told: bytes) -> r.Ended:
    """What a script has left for a caller that waits for a job: a head with its length, then the result."""
    (length,) = struct.unpack_from(">I", told)
    job_id, state, reason, error, codec, has_result = decode(told[4 : 4 + length])
    result = told[4 + length :] if has_result else None
    return r.Ended(job_id, STATES[state], True, result, reason, error, codec if has_result else "bytes")


# --- pages -----------------------------------------------------------------------------------------


def given(command: Any, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(command, name)) is not None}


def browse(context: PlanContext, command: c.Browse) -> Plan[r.Page]:
    checks.count(command.limit, "limit", context.limits.browse_jobs_max)
    if command.queue is not None:
        checks.name(command.queue)
    if command.state is not None and command.state not in STATES:
        raise errors.InvalidRequest(f"unknown state {checks.short(command.state)}: expected one of {', '.join(STATES)}")
    params = given(
        command, *("queue", "tag", "group_id", "pushed_from", "pushed_before", "after", "limit", "name", "workflow")
    )
    params |= {"what": "browse", "ascending": command.ascending, "bytes": context.limits.reply_bytes_max}
    if command.state is not None:
        params["state"] = STATES.index(command.state)
    done = yield ScriptCall("look", params | {"steps": BUCKETS})
    has_more, last, found = done.values[0]
    return r.Page([job_view(one) for one in found], int(last) if has_more else None)


def list_dead(context: PlanContext, command: c.ListDead) -> Plan[r.Page]:
    checks.name(command.queue)
    checks.count(command.limit, "limit", context.limits.browse_jobs_max)
    params = given(command, "queue", "reason", "entered_from", "entered_before", "tag", "after", "limit")
    params |= {"what": "dead", "bytes": context.limits.reply_bytes_max, "steps": 1_000_000}
    done = yield ScriptCall("look", params)
    has_more, found = done.values[0]
    jobs = [job_view(one) for one in found]
    return r.Page(jobs, jobs[-1].id if has_more else None)


def get_dead_stats(context: PlanContext, command: c.GetDeadStats) -> Plan[r.DeadStats]:
    checks.name(command.queue)
    done = yield ScriptCall("look", {"what": "dead_stats", "queue": command.queue})
    total, reasons, oldest = decode(done.values[0])
    return r.DeadStats(total, dict(sorted((reason, count) for reason, count in reasons)), oldest)


# --- why -------------------------------------------------------------------------------------------


def why(context: PlanContext, command: c.Why) -> Plan[r.Waiting]:
    done = yield from shown(context, command.id, "why", steps=AHEAD_MAX)
    state, *rest = decode(done.values[0])
    if not rest:
        return r.Waiting(state=STATES[state])
    paused, limited, no_slot, busy, blocked, due, ahead = rest
    return r.Waiting(
        state=STATES[state],
        paused=paused,
        rate_limited_until=limited,
        no_free_slot=no_slot,
        group_busy_with=busy,
        blocked_by=tuple(blocked),
        delayed_until=due,
        jobs_ahead=ahead,
    )


# --- queues and counters -----------------------------------------------------------------------------


def list_queues(context: PlanContext, command: c.ListQueues) -> Plan[r.Queues]:
    done = yield ScriptCall("look", {"what": "queues"})
    return r.Queues(sorted(name.decode() for name in done.values[0]))


def policy_of(context: PlanContext, queue: str) -> Plan[list[Any]]:
    done = yield ScriptCall("look", {"what": "queue", "queue": queue})
    return decode(done.values[0])  # type: ignore[no-any-return]


def get_queue(context: PlanContext, command: c.GetQueue) -> Plan[r.QueueView]:
    checks.name(command.queue)
    try:
        paused, rate, concurrency, group, dead, _ = yield from policy_of(context, command.queue)
    except Rejected:
        raise errors.NotFound(f"queue {command.queue} not found: push to it or configure it first") from None
    return r.QueueView(
        name=command.queue,
        paused=paused,
        rate_limit=RateLimit(rate["count"], rate["per_ms"], rate["given"]) if rate else None,
        concurrency=concurrency,
        group_on_retry=group,
        dead_letters=DeadLetterPolicy(**dead),
    )


def get_priorities(context: PlanContext, command: c.GetPriorities) -> Plan[r.Priorities]:
    checks.name(command.queue)
    done = yield ScriptCall("look", {"what": "priorities", "queue": command.queue, "steps": 1_000_000})
    found = sorted(decode(done.values[0]), reverse=True)
    return r.Priorities(dict(found))


def get_stats(context: PlanContext, command: c.GetStats) -> Plan[r.Stats]:
    params: dict[str, Any] = {"what": "stats"}
    if command.queue is not None:
        checks.name(command.queue)
        params["queue"] = command.queue
    done = yield ScriptCall("look", params)
    values, recent = decode(done.values[0])
    return r.Stats(r.Counts(*values[:8]), r.Totals(*values[9:]), recent, values[8])
