"""Jobs, pages, queues and counters."""

import struct
from collections import Counter
from typing import Any

from stoker.brokers.redis.calls import ListWait, Plan, PlanContext, Rejected, ScriptCall, decode
from stoker.brokers.redis.views import ended, job_view, logs_of, partials_of
from stoker.engine import checks
from stoker.engine.queries import check_page_of_queues, page_of_names
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.options import DeadLetterPolicy, RateLimit
from stoker.model.states import STATES

BUCKETS = 60
"""Of 32 jobs: one page looks at so many, which takes Redis about 2 ms."""
COUNTED = 1_000
"""One script counts at most so many jobs by priority, or dead letters by reason."""
SHOWN = 100
"""One script shows at most so many jobs of a page, and looks at so many dead letters."""
SUMMARIES = 100
"""One script sums up at most so many queues."""
AHEAD_MAX = 1_000
"""`jobs_ahead` counts to this number."""


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


NOT_SEARCHED = (
    *("parent_id", "worker", "priority", "attempts_from", "ended_from", "ended_before"),
    *("reason", "fingerprint", "text"),
)
"""What the scripts do not search by."""


def browse(context: PlanContext, command: c.Browse) -> Plan[r.Page]:
    for name in NOT_SEARCHED:
        if getattr(command, name) is not None:
            raise errors.Unsupported.by("redis", f"a search by {name}")
    checks.count(command.limit, "limit", context.limits.browse_jobs_max)
    if command.queue is not None:
        checks.name(command.queue)
    if command.state is not None and command.state not in STATES:
        raise errors.InvalidRequest(f"unknown state {checks.short(command.state)}: expected one of {', '.join(STATES)}")
    params = given(command, *("queue", "tag", "group_id", "pushed_from", "pushed_before", "after", "name", "workflow"))
    params |= {"what": "browse", "ascending": command.ascending}
    if command.state is not None:
        params["state"] = STATES.index(command.state)
    jobs: list[r.JobView] = []
    bytes_left = context.limits.reply_bytes_max
    while True:
        asked = min(SHOWN, command.limit - len(jobs))
        done = yield ScriptCall("look", params | {"steps": BUCKETS, "limit": asked, "bytes": bytes_left})
        has_more, last, found = done.values[0]
        page = [job_view(one) for one in found]
        jobs += page
        bytes_left -= sum(len(job.payload) + len(job.result or b"") for job in page)
        if not has_more or len(page) < asked or len(jobs) == command.limit or bytes_left <= 0:
            return r.Page(jobs, int(last) if has_more else None)
        params["after"] = int(last)


def list_dead(context: PlanContext, command: c.ListDead) -> Plan[r.Page]:
    checks.name(command.queue)
    checks.count(command.limit, "limit", context.limits.browse_jobs_max)
    params = given(command, "queue", "reason", "entered_from", "entered_before", "tag", "after")
    jobs: list[r.JobView] = []
    bytes_left = context.limits.reply_bytes_max
    params |= {"what": "dead", "steps": SHOWN}
    while True:
        asked = 0 if jobs and bytes_left <= 0 else command.limit - len(jobs)
        done = yield ScriptCall("look", params | {"limit": asked, "bytes": bytes_left})
        has_more, following, found = done.values[0]
        page = [job_view(one) for one in found]
        jobs += page
        bytes_left -= sum(len(job.payload) for job in page)
        if has_more or not following:
            return r.Page(jobs, jobs[-1].id if has_more else None)
        params["score"] = following.decode()


def get_dead_stats(context: PlanContext, command: c.GetDeadStats) -> Plan[r.DeadStats]:
    checks.name(command.queue)
    reasons: Counter[str] = Counter()
    params: dict[str, Any] = {"what": "dead_stats", "queue": command.queue, "steps": COUNTED}
    oldest = None
    while True:
        done = yield ScriptCall("look", params)
        packed, following = done.values
        found, first = decode(packed)
        reasons.update(dict(found))
        oldest = first if oldest is None else oldest
        if not following:
            return r.DeadStats(reasons.total(), dict(sorted(reasons.items())), oldest)
        params["score"] = following.decode()


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
        policy = yield from policy_of(context, command.queue)
    except Rejected:
        raise errors.NotFound(f"queue {command.queue} not found: push to it or configure it first") from None
    return queue_view(command.queue, policy)


def get_queues(context: PlanContext, command: c.GetQueues) -> Plan[r.QueuePage]:
    """The names first, and then those of the page in one script. A queue that is gone meanwhile is left out."""
    check_page_of_queues(command)
    known = yield from list_queues(context, c.ListQueues())
    names, next_after = page_of_names(command, known.names)
    found: list[r.QueueSummary] = []
    for start in range(0, len(names), SUMMARIES):
        done = yield ScriptCall("look", {"what": "summaries", "queues": names[start : start + SUMMARIES]})
        found += [
            r.QueueSummary(queue_view(name, policy), stats_from(stats))
            for name, policy, stats in decode(done.values[0])
        ]
    return r.QueuePage(found, next_after, len(known.names))


def queue_view(name: str, policy: list[Any]) -> r.QueueView:
    """From what the script says of a queue."""
    paused, rate, concurrency, group, dead, _ = policy
    return r.QueueView(
        name=name,
        paused=paused,
        rate_limit=RateLimit(rate["count"], rate["per_ms"], rate["given"]) if rate else None,
        concurrency=concurrency,
        group_on_retry=group,
        dead_letters=DeadLetterPolicy(**dead),
    )


def get_priorities(context: PlanContext, command: c.GetPriorities) -> Plan[r.Priorities]:
    checks.name(command.queue)
    found: Counter[int] = Counter()
    done = yield ScriptCall("look", {"what": "places", "queue": command.queue})
    for place in done.values[0]:
        params = {"what": "priorities", "queue": command.queue, "place": place.decode(), "steps": COUNTED}
        start, looked = 0, COUNTED
        while looked == COUNTED:
            done = yield ScriptCall("look", params | {"from": start})
            packed, looked = done.values
            found.update(dict(decode(packed)))
            start += COUNTED
    return r.Priorities(dict(sorted(found.items(), reverse=True)))


def get_stats(context: PlanContext, command: c.GetStats) -> Plan[r.Stats]:
    params: dict[str, Any] = {"what": "stats"}
    if command.queue is not None:
        checks.name(command.queue)
        params["queue"] = command.queue
    done = yield ScriptCall("look", params)
    return stats_from(decode(done.values[0]))


def stats_from(packed: list[Any]) -> r.Stats:
    values, recent = packed
    return r.Stats(r.Counts(*values[:8]), r.Totals(*values[9:]), recent, values[8])
