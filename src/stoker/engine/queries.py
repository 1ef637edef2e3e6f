"""Decide commands that only read: jobs, logs, pages, reasons for waiting, counters."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stoker.engine import checks
from stoker.engine.jobs import ACTIVE, BLOCKED, DELAYED, FAILED, WAITING, Part, SingleJob, UniformBatch
from stoker.engine.old_keys import holder_of
from stoker.engine.parking import Parked
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState, Scope
from stoker.engine.workflow_state import lets_start, owner_of
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.histograms import added, histogram, joined
from stoker.model.history import Timings
from stoker.model.limits import KIND_CHARS_MAX, QUEUES_PAGE_MAX
from stoker.model.states import STATES, State
from stoker.records.stored import Stored


def get_job(shard: ShardState, tenant: str, command: c.GetJob, now: int) -> r.JobView:
    return view(shard, shard.readable(tenant, command.id), now)


def find_job(shard: ShardState, tenant: str, command: c.FindJob, now: int) -> r.JobView:
    checks.key(command.custom_id, "custom_id", shard.limits)
    if command.queue is not None:
        checks.name(command.queue)
    found = shard.tenants.get(tenant)
    queues = found.queues if found is not None else {}
    names = sorted(queues) if command.queue is None else [command.queue]
    for name in names:
        holder = holder_of(shard, queues[name], command.custom_id, now) if name in queues else 0
        job = shard.index.get(holder) if holder else None
        if job is not None:
            return view(shard, job, now)
    raise errors.NotFound(f"job not found: no readable job has the custom id {command.custom_id!r}")


def get_logs(shard: ShardState, tenant: str, command: c.GetLogs, now: int) -> r.Logs:
    part = shard.readable(tenant, command.id)
    logs = part.detail.logs if type(part) is SingleJob and part.detail is not None else None
    return r.Logs(list(logs or ()))


def get_partials(shard: ShardState, tenant: str, command: c.GetPartials, now: int) -> r.Partials:
    part = shard.readable(tenant, command.id)
    partials = part.detail.partials if type(part) is SingleJob and part.detail is not None else None
    return r.Partials([whole(shard, chunk) for chunk in partials or ()])


def whole(shard: ShardState, chunk: r.Chunk) -> r.Chunk:
    """A partial result, read from the journal if it is only there. This must happen here: the reply does not name the
    job.
    """
    stored: Any = chunk.data
    if type(stored) is not Stored or shard.stored_payloads is None:
        return chunk
    return msgspec.structs.replace(chunk, data=shard.stored_payloads(stored.sequence)[stored.place])


def wait_job(shard: ShardState, tenant: str, command: c.WaitJob, now: int) -> "r.Ended | Parked":
    checks.count(command.wait_ms, "wait_ms", shard.limits.wait_ms_max, 0)
    job = view(shard, shard.readable(tenant, command.id), now)
    if job.finished_at or not command.wait_ms:
        return wait_reply(job)
    parked = Parked(tenant, command, now + command.wait_ms)
    shard.job_waiters.setdefault(command.id, {})[parked] = None
    shard.park_until(parked)
    return parked


def wait_reply(job: r.JobView) -> r.Ended:
    return r.Ended(job.id, job.state, bool(job.finished_at), job.result, job.reason, job.error, job.result_codec)


# --- views -----------------------------------------------------------------------------------------


def view(shard: ShardState, part: Part, now: int) -> r.JobView:
    found = _view_job(part) if type(part) is SingleJob else _view_member(part.batch, part.start)
    if found.state is State.BLOCKED and part.options.workflow is not None:
        return msgspec.structs.replace(found, blocked_by=found.blocked_by + steps_before(part))
    return found


def steps_before(part: Part) -> tuple[int, ...]:
    """The first jobs of the steps that keep a workflow's job from starting, as far as this shard knows them."""
    found = owner_of(part.queue.tenant, part.options, part.lowest)
    if found is None:
        return ()
    flow, step = found
    before = [(flow.steps[number], policy) for number, policy in step.made.after]
    return tuple(
        [one.first for one, policy in before if one.first and not lets_start(one.standing, policy)][:NAMED_MAX]
    )


NAMED_MAX = 100
"""How many blocking jobs an answer names."""


def _view_job(job: SingleJob) -> r.JobView:
    detail = job.detail
    state = STATES[job.state]
    payload: Any = job.payload  # a stored payload is read when the reply leaves: runtime/payload_loading.py
    if detail is None:
        return r.JobView(
            id=job.id,
            queue=job.queue.name,
            state=state,
            payload=payload,
            options=job.options,
            pushed_at=job.pushed_at,
        )
    active = job.state == ACTIVE
    dead = None
    if job.state == FAILED:
        dead = r.DeadLetter(detail.reason, detail.ended_at, detail.expires_at, detail.retry_count, detail.next_retry_at)
    return r.JobView(
        id=job.id,
        queue=job.queue.name,
        state=state,
        payload=payload,
        options=job.options,
        pushed_at=job.pushed_at,
        attempts=detail.attempts,
        crashes=detail.crashes,
        due=detail.due if job.state == DELAYED else 0,
        blocked_by=tuple(detail.blockers or ()),
        started_at=detail.started_at,
        lease_until=detail.lease_until if active else 0,
        heartbeat_at=(detail.heard_at or detail.started_at) if active else 0,
        worker=detail.worker,
        claim=detail.claim,
        cancel_requested=detail.cancel,
        finished_at=detail.ended_at,
        result=detail.result,  # type: ignore[arg-type]  # a stored result is read when the reply leaves
        reason=detail.reason,
        error=detail.error,
        stack=detail.stack,
        progress=r.Progress(detail.percent, detail.message),
        history=tuple(detail.history or ()),
        dead=dead,
        result_codec=detail.result_codec,
        error_class=detail.error_class,
    )


def _view_member(batch: UniformBatch, position: int) -> r.JobView:
    payload = batch.payloads[position]
    assert payload is not None
    job_id, name, options, pushed_at = batch.id_at(position), batch.queue.name, batch.options, batch.pushed_at
    common = {"id": job_id, "queue": name, "payload": payload, "options": options, "pushed_at": pushed_at}
    if position in batch.waiting:
        return r.JobView(**common, state=STATES[batch.pending], due=max(0, batch.due))  # type: ignore[arg-type]
    piece = batch.slices.find(position)
    if piece is not None:
        return r.JobView(
            **common,  # type: ignore[arg-type]
            state=State.ACTIVE,
            attempts=1,
            started_at=piece.started_at,
            lease_until=piece.lease_until,
            heartbeat_at=piece.heard_at or piece.started_at,
            worker=piece.worker,
            claim=piece.claim,
        )
    run = batch.ended.find(position)
    assert run is not None
    result: Any = run.results[position - run.origin] if run.results is not None else None
    return r.JobView(
        **common,  # type: ignore[arg-type]
        state=STATES[run.state],
        attempts=1 if run.started_at else 0,
        started_at=run.started_at,
        worker=run.worker,
        finished_at=run.ended_at,
        reason=run.reason,
        result=result,
        result_codec="bytes" if result is None else run.codec,
    )


def bytes_of(job: r.JobView) -> int:
    """The bytes that a job adds to a reply."""
    return len(job.payload) + (len(job.result) if job.result is not None else 0)


# --- why -------------------------------------------------------------------------------------------


def why(shard: ShardState, tenant: str, command: c.Why, now: int) -> r.Waiting:
    part = shard.readable(tenant, command.id)
    state = shard.state_of(part)
    queue = part.queue
    if state not in (WAITING, DELAYED, BLOCKED):
        return r.Waiting(state=STATES[state])
    limited = None
    if queue.bucket is not None and not queue.bucket.available(now):
        limited = queue.bucket.next_at(now)
    due = None
    if state == DELAYED:
        due = part.details().due if type(part) is SingleJob else part.batch.due
    return r.Waiting(
        state=STATES[state],
        paused=queue.paused,
        rate_limited_until=limited,
        no_free_slot=bool(queue.concurrency) and queue.scope.counts[ACTIVE] >= queue.concurrency,
        group_busy_with=_group_busy_with(part) if type(part) is SingleJob else None,
        blocked_by=view(shard, part, now).blocked_by if state == BLOCKED else (),
        delayed_until=due,
        jobs_ahead=_jobs_ahead(queue, part) if state == WAITING else 0,
    )


def _group_busy_with(job: SingleJob) -> int | None:
    group = job.queue.groups.get(job.options.group_id) if job.options.group_id is not None else None
    if group is None:
        return None
    if group.holder is not None:
        return group.holder.id if group.holder is not job else None
    if job.state == WAITING and group.lane and group.lane[0] is not job:
        return group.lane[0].id
    return None


def _jobs_ahead(queue: QueueState, part: Part) -> int:
    """Waiting jobs that come before this one in the queue's order, or in its own group."""
    order = part.order if type(part) is SingleJob else part.batch.order_at(part.start)
    mine = place(part.options.priority, part.options.lifo, order)
    group_id, own_id = part.options.group_id, part.lowest
    ahead = 0
    for entry in queue.ready.entries():
        if type(entry) is UniformBatch:
            ahead += _batch_ahead(entry, mine)
        elif entry.options.group_id is None:
            ahead += place(entry.options.priority, entry.options.lifo, entry.order) < mine
    for name, group in queue.groups.items():
        for other in group.lane:
            first = place(other.options.priority, other.options.lifo, other.order) < mine
            ahead += first or (name == group_id and other.id < own_id)
    return ahead


def _batch_ahead(batch: UniformBatch, mine: tuple[int, int, int]) -> int:
    level = place(batch.options.priority, batch.options.lifo, 0)[:2]
    if level != mine[:2]:
        return batch.waiting.left if level < mine[:2] else 0
    stop = mine[2] - batch.order_at(0)
    return sum(min(end, stop) - start for start, end in batch.waiting.runs() if start < stop)


def place(priority: int, lifo: bool, order: int) -> tuple[int, int, int]:
    return -priority, 0 if lifo else 1, order


# --- queues and counters ---------------------------------------------------------------------------


def list_queues(shard: ShardState, tenant: str, command: c.ListQueues, now: int) -> r.Queues:
    found = shard.tenants.get(tenant)
    return r.Queues(sorted(name for name, queue in found.queues.items() if queue.known) if found else [])


def get_queue(shard: ShardState, tenant: str, command: c.GetQueue, now: int) -> r.QueueView:
    checks.name(command.queue)
    queue = shard.known_queue(tenant, command.queue)
    if queue is None:
        raise errors.NotFound(f"queue {command.queue} not found: push to it or configure it first")
    return policy_of(queue)


def policy_of(queue: QueueState) -> r.QueueView:
    return r.QueueView(
        name=queue.name,
        paused=queue.paused,
        rate_limit=queue.bucket.limit if queue.bucket else None,
        concurrency=queue.concurrency,
        group_on_retry=queue.group_on_retry,
        dead_letters=queue.dead_policy,
    )


def get_queues(shard: ShardState, tenant: str, command: c.GetQueues, now: int) -> r.QueuePage:
    check_page_of_queues(command)
    owner = shard.tenants.get(tenant)
    if owner is None:
        return r.QueuePage([])
    shard.add_up()
    known = {name: queue for name, queue in owner.queues.items() if queue.known}
    names, next_after = page_of_names(command, known)
    return r.QueuePage([summary_of(known[name], now) for name in names], next_after, len(known))


def summary_of(queue: QueueState, now: int) -> r.QueueSummary:
    return r.QueueSummary(policy_of(queue), stats_of(queue.scope, now), timings_of(queue))


def check_page_of_queues(command: c.GetQueues) -> None:
    checks.count(command.limit, "limit", QUEUES_PAGE_MAX)
    if command.after is not None:
        checks.name(command.after, "after")
    if command.text is not None:
        checks.text(command.text, "text", KIND_CHARS_MAX)


def page_of_names(command: c.GetQueues, names: Iterable[str]) -> tuple[list[str], str | None]:
    """The queues of a page, and the last of them if more follow."""
    text, after = (command.text or "").lower(), command.after or ""
    found = sorted(name for name in names if name > after and text in name.lower())
    page = found[: command.limit]
    return page, page[-1] if len(found) > len(page) else None


def joined_queues(command: c.GetQueues, pages: Sequence[r.QueuePage]) -> r.QueuePage:
    """Pages of several shards as one. A shard that has more brings a full page, so nothing is passed over."""
    by_name = {queue.name: queue for page in pages for queue in page.queues}
    names, next_after = page_of_names(command, by_name)
    if any(page.next_after is not None for page in pages):
        next_after = names[-1]
    return r.QueuePage([by_name[name] for name in names], next_after, sum(page.total for page in pages))


def get_priorities(shard: ShardState, tenant: str, command: c.GetPriorities, now: int) -> r.Priorities:
    checks.name(command.queue)
    queue = shard.known_queue(tenant, command.queue)
    counts: Counter[int] = Counter()
    if queue is not None:
        for priority, entry in queue.ready.in_levels():
            if type(entry) is UniformBatch:
                counts[priority] += entry.waiting.left
            elif entry.options.group_id is None:
                counts[priority] += 1
        for group in queue.groups.values():  # only the head of a group is in the ready order
            counts.update(job.options.priority for job in group.lane)
    return r.Priorities(dict(sorted(counts.items(), reverse=True)))


def get_stats(shard: ShardState, tenant: str, command: c.GetStats, now: int) -> r.Stats:
    scope: Scope | None = None
    if command.queue is not None:
        checks.name(command.queue)
        queue = shard.known_queue(tenant, command.queue)
        shard.add_up()
        scope = queue.scope if queue is not None else None
    elif tenant in shard.tenants:
        shard.add_up()
        scope = shard.tenants[tenant].scope
    return stats_of(scope, now)


def get_timings(shard: ShardState, tenant: str, command: c.GetTimings, now: int) -> Timings:
    if command.queue is not None:
        checks.name(command.queue)
        queue = shard.known_queue(tenant, command.queue)
        return timings_of(queue) if queue is not None else Timings()
    owner = shard.tenants.get(tenant)
    queues = list(owner.queues.values()) if owner is not None else []
    oldest = min(filter(None, (queue.ready.oldest_at() for queue in queues)), default=0)
    wait, run = joined([queue.wait for queue in queues]), joined([queue.run for queue in queues])
    return Timings(oldest, histogram(wait), histogram(run))


def timings_of(queue: QueueState) -> Timings:
    return Timings(queue.ready.oldest_at(), histogram(queue.wait), histogram(queue.run))


def joined_timings(found: Sequence[Timings]) -> Timings:
    """Those of several queues as one."""
    oldest = min((one.oldest_waiting_at for one in found if one.oldest_waiting_at), default=0)
    return Timings(oldest, added(one.wait for one in found), added(one.run for one in found))


def stats_of(scope: Scope | None, now: int) -> r.Stats:
    if scope is None:
        return r.Stats(r.Counts(), r.Totals())
    *counts, payload_bytes = scope.counts
    return r.Stats(r.Counts(*counts), r.Totals(*scope.totals), scope.last_minute(now // 1000), payload_bytes)
