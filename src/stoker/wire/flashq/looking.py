"""GETJOB, GETSTATE, STATS and everything else that changes nothing."""

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.bulk import BulkView
from stoker.model.errors import InvalidRequest, LimitExceeded, NotFound
from stoker.model.filters import FIELDS
from stoker.model.limits import QUEUES_PAGE_MAX
from stoker.model.states import State
from stoker.wire.flashq.answers import Answer, JobFailedAnswer, Plan, TimedOut, done
from stoker.wire.flashq.consuming import to_wait
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.jobs import job_map, state_name, state_of
from stoker.wire.flashq.payloads import NULL, shown

OFFSET_MAX = 100_000
"""The most jobs that `offset` may skip, because each skipped job is read. To go on, use `after` with the last id."""
DEAD_LETTERS = 100
"""How many are shown when 0 are asked for."""


def get_job(request: Any, context: RequestContext) -> Plan:
    return (yield from _one(c.GetJob(request.id), context))


def find_job(request: Any, context: RequestContext) -> Plan:
    return (yield from _one(c.FindJob(request.job_id, request.queue), context))


def _one(command: c.Command[r.JobView], context: RequestContext) -> Plan:
    """A job that is not there is an answer, too: clients of flashQ expect no error."""
    try:
        job: r.JobView = yield command
    except NotFound:
        return done(job=None, state="unknown", code="not_found")
    shown_job = job_map(job, context)
    if job.options.workflow is not None or job.options.depends_on:
        children, _ = yield from _children(job.id, context)
        if children:
            shown_job |= {"children_ids": [one.id for one in children], "children_completed": _completed(children)}
    return done(job=shown_job, state=state_name(job.state, context))


def get_state(request: Any, context: RequestContext) -> Plan:
    try:
        job: r.JobView = yield c.GetJob(request.id)
    except NotFound:
        return done(id=request.id, state="unknown", code="not_found")
    return done(id=job.id, state=state_name(job.state, context), reason=job.reason or None)


def result(request: Any, job: r.JobView, context: RequestContext) -> Answer:
    result = NULL[context.codec] if job.result is None else shown(job.result, job.result_codec, context.codec)
    return done(id=job.id, result=result, state=state_name(job.state, context))


def get_jobs_batch(request: Any, context: RequestContext) -> Plan:
    if len(request.ids) > context.limits.browse_jobs_max:
        raise LimitExceeded(
            f"{len(request.ids)} ids are over the limit of {context.limits.browse_jobs_max}: split the call"
        )
    jobs: list[Answer] = []
    missing: list[int] = []
    room = context.limits.reply_bytes_max
    for job_id in request.ids:
        try:
            job: r.JobView = yield c.GetJob(job_id)
        except NotFound:
            missing.append(job_id)
            continue
        if room <= 0:
            raise LimitExceeded(f"these jobs are larger than an answer: ask for {len(jobs)} at once")
        room -= _size(job)
        jobs.append(job_map(job, context))
    return done(jobs=jobs, missing=missing)


def get_jobs(request: Any, context: RequestContext) -> Plan:
    most = context.limits.browse_jobs_max
    limit, skip = min(request.limit, most), request.offset
    if limit < 0 or skip < 0:
        raise InvalidRequest("invalid limit or offset: expected at least 0")
    if skip > OFFSET_MAX:
        raise LimitExceeded(f"offset {skip} is over the limit of {OFFSET_MAX}: go on with `after` the last id instead")
    state = state_of(request.state) if request.state else None
    found: list[r.JobView] = []
    after = request.after
    room = context.limits.reply_bytes_max
    wanted = {name: getattr(request, name) for name in FIELDS} | {"state": state}
    looked = steps = 0
    while len(found) < limit and room > 0 and steps < STEPS_MAX:
        page: r.Page = yield c.Browse(**wanted, after=after, limit=min(most, skip + limit - len(found)))
        looked, steps = looked + page.looked, steps + 1
        found += page.jobs[skip:]
        room -= sum(map(_size, page.jobs[skip:]))
        skip = max(0, skip - len(page.jobs))
        after = page.next_after
        if after is None:
            break
    stats: r.Stats = yield c.GetStats(request.queue)
    jobs = [_listed(job_map(job, context), context) for job in found]
    return done(jobs=jobs, total=_total(stats.counts, state), next_after=after, looked=looked)


STEPS_MAX = 25
"""Steps of a search in one answer. It says where to go on if there is more to look at."""


def count_jobs(request: Any, context: RequestContext) -> Plan:
    wanted = {name: getattr(request, name) for name in FIELDS}
    state = state_of(request.state) if request.state else None
    counted: r.Counted = yield c.CountJobs(**wanted | {"state": state}, after=request.after)
    return done(count=counted.count, looked=counted.looked, next_after=counted.next_after)


def _size(job: r.JobView) -> int:
    return len(job.payload) + len(job.result or b"")


def _listed(job: Answer, context: RequestContext) -> Answer:
    """Some readers look for the job's fields in the entry, others for an entry with `job` and `state`."""
    return job if context.hello else {**job, "job": job}


def _total(counts: r.Counts, state: State | None) -> int:
    if state is not None:
        total: int = getattr(counts, state.value)
        return total
    return sum(msgspec.structs.astuple(counts))


def waited(request: Any, ended: r.Ended, context: RequestContext) -> Answer:
    if not ended.finished:
        wait_ms = to_wait(request.timeout, context)
        raise TimedOut(f"timeout: job {request.id} has not ended within {wait_ms} ms; it is {ended.state.value}")
    if ended.state is not State.COMPLETED:
        why = ended.error or ended.reason or "for an unknown reason"
        raise JobFailedAnswer(f"job {request.id} {ended.state.value}: {why}")
    result = NULL[context.codec] if ended.result is None else shown(ended.result, ended.result_codec, context.codec)
    return done(id=ended.id, state="completed", result=result)


def progress(request: Any, job: r.JobView, context: RequestContext) -> Answer:
    percent, message = job.progress.percent, job.progress.message or None
    return done(
        id=job.id,
        progress={"id": job.id, "progress": percent, "message": message},
        percent=percent,
        message=message,
    )


def logs(request: Any, logs: r.Logs, context: RequestContext) -> Answer:
    lines = [{"timestamp": line.at, "message": line.message, "level": line.level} for line in logs.lines]
    return done(id=request.id, logs=lines)


def partials(request: Any, partials: r.Partials, context: RequestContext) -> Answer:
    chunks = [
        {"index": chunk.index, "data": shown(chunk.data, chunk.codec, context.codec)} for chunk in partials.chunks
    ]
    return done(id=request.id, partials=chunks)


def get_children(request: Any, context: RequestContext) -> Plan:
    """What a job waits for, or has waited for: the jobs of the steps before it, or those that it depends on."""
    found, total = yield from _children(request.parent_id, context)
    children: list[Answer] = []
    for one in found[: context.limits.browse_jobs_max]:
        if one.state is not None:
            try:
                children.append(job_map((yield c.GetJob(one.id)), context))
            except NotFound:
                continue
    ids = [one.id for one in found]
    return done(children=children, children_ids=ids, ids=ids, completed=_completed(found), total=total)


def _children(parent: int, context: RequestContext) -> Generator[Any, Any, tuple[list[r.Input], int]]:
    """The jobs that a job waits for or has waited for, and how many there are in all."""
    most = context.limits.browse_jobs_max
    page: r.Inputs = yield c.GetInputs(parent, 0, most)
    found = list(page.inputs)
    while page.next_after is not None and len(found) < CHILDREN_MAX:
        page = yield c.GetInputs(parent, page.next_after, most)
        found += page.inputs
    return found, page.total


def _completed(children: list[r.Input]) -> int:
    """How many have completed. A job that is no longer kept has."""
    return sum(one.state in (None, State.COMPLETED) for one in children)


CHILDREN_MAX = 100_000
"""As many as one workflow has; their ids are small."""


def why(request: Any, reply: r.Waiting, context: RequestContext) -> Answer:
    return done(id=request.id, **{**msgspec.to_builtins(reply), "state": state_name(reply.state, context)})


def story(request: Any, reply: r.Story, context: RequestContext) -> Answer:
    return done(id=request.id, events=reply.events, notes=reply.notes, complete=reply.complete)


def bulk(request: Any, view: BulkView, context: RequestContext) -> Answer:
    return done(bulk=view)


# --- queues ----------------------------------------------------------------------------------------------------------


def job_counts(request: Any, stats: r.Stats, context: RequestContext) -> Answer:
    counts = _counts(stats.counts)
    return done(**counts, counts=counts, stats=stats)


def _counts(counts: r.Counts) -> dict[str, int]:
    return {
        "waiting": counts.waiting,
        "active": counts.active,
        "delayed": counts.delayed,
        "completed": counts.completed,
        "failed": counts.failed,
        "waiting-children": counts.blocked,
        "cancelled": counts.cancelled,
        "expired": counts.expired,
    }


def count(request: Any, stats: r.Stats, context: RequestContext) -> Answer:
    return done(count=stats.counts.waiting + stats.counts.delayed)


def is_paused(request: Any, context: RequestContext) -> Plan:
    view = yield from _policy(request.queue)
    return done(paused=view is not None and view.paused)


def _policy(queue: str) -> Generator[c.Command[Any], Any, r.QueueView | None]:
    try:
        view: r.QueueView = yield c.GetQueue(queue)
    except NotFound:
        return None
    return view


def queue(request: Any, context: RequestContext) -> Plan:
    view: r.QueueView = yield c.GetQueue(request.queue)
    stats: r.Stats = yield c.GetStats(request.queue)
    return done(
        queue=_queue_map(view, stats), policy=view, counts=_counts(stats.counts), totals=stats.totals, stats=stats
    )


def _queue_map(view: r.QueueView, stats: r.Stats) -> Answer:
    counts = stats.counts
    return {
        "name": view.name,
        "pending": counts.waiting + counts.delayed + counts.blocked,
        "processing": counts.active,
        "dlq": counts.failed,
        "paused": view.paused,
        "rate_limit": view.rate_limit.count if view.rate_limit is not None else None,
        "concurrency_limit": view.concurrency or None,
        **_counts(counts),
    }


def _queue_maps(names: Sequence[str]) -> Generator[c.Command[Any], Any, list[Answer]]:
    """Of one page of queues; of those that follow only the names are told."""
    page: r.QueuePage = yield c.GetQueues(limit=QUEUES_PAGE_MAX)
    found = [_queue_map(one.policy, one.stats) for one in page.queues]
    last = page.next_after
    return found + [{"name": name} for name in names if last is not None and name > last]


def list_queues(request: Any, context: RequestContext) -> Plan:
    queues: r.Queues = yield c.ListQueues()
    return done(queues=(yield from _queue_maps(queues.names)), names=list(queues.names))


def stats(request: Any, context: RequestContext) -> Plan:
    totals: r.Stats = yield c.GetStats()
    queues: r.Queues = yield c.ListQueues()
    maps = yield from _queue_maps(queues.names)
    counts = totals.counts
    return done(
        queued=counts.waiting,
        processing=counts.active,
        delayed=counts.delayed,
        dlq=counts.failed,
        completed=totals.totals.completed,
        blocked=counts.blocked,
        queues={one["name"]: one for one in maps},
        stats=totals,
    )


def metrics(request: Any, context: RequestContext) -> Plan:
    stats: r.Stats = yield c.GetStats()
    queues: r.Queues = yield c.ListQueues()
    totals = stats.totals
    run_ms = totals.run_ms_sum / totals.completed if totals.completed else 0.0
    wait_ms = totals.wait_ms_sum / totals.completed if totals.completed else 0.0
    found: Answer = {
        "total_pushed": totals.pushed,
        "total_completed": totals.completed,
        "total_failed": totals.failed,
        "total_timed_out": totals.timed_out,
        "jobs_per_second": stats.completed_last_minute / 60,
        "throughput": stats.completed_last_minute / 60,
        "avg_latency_ms": run_ms,
        "avg_wait_ms": wait_ms,
        "queues": (yield from _queue_maps(queues.names)),
    }
    return done(**found, metrics=found)


def to_page(limit: int, context: RequestContext) -> int:
    return min(limit, context.limits.browse_jobs_max)


def to_dead_page(count: int, context: RequestContext) -> int:
    return to_page(count or DEAD_LETTERS, context)


def dead_letters(request: Any, page: r.Page, context: RequestContext) -> Answer:
    return done(jobs=[job_map(job, context) for job in page.jobs], next_after=page.next_after)
