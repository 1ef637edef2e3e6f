"""Decide the operators' commands: limits, pausing, cancelling, moving, removing."""

import msgspec

from stoker.engine import checks
from stoker.engine.apply.moves import is_due_entry, own_job
from stoker.engine.dependencies import settle
from stoker.engine.ending import cancel_jobs, fail_for_good, in_id_order, lowest, outcome_state, run_of
from stoker.engine.jobs import (
    ACTIVE,
    BLOCKED,
    BLOCKED_DUE,
    CANCELLED,
    COMPLETED,
    DELAYED,
    EXPIRED,
    FAILED,
    LIVE_BYTES,
    WAITING,
    EndedRun,
    Members,
    Part,
    SingleJob,
    UniformBatch,
)
from stoker.engine.queries import view
from stoker.engine.retained_jobs import ended_at, size_of
from stoker.engine.settling import hand_back, held_or_raise, wants_cancel
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.limits import INT_MAX
from stoker.model.options import CODECS
from stoker.model.reasons import Reason
from stoker.model.states import STATES, State
from stoker.records import records as rec

# --- a queue's policy ------------------------------------------------------------------------------


def pause(shard: ShardState, tenant: str, command: c.Pause, now: int) -> r.Done:
    return _configure(shard, tenant, command.queue, now, paused=True)


def resume(shard: ShardState, tenant: str, command: c.Resume, now: int) -> r.Done:
    return _configure(shard, tenant, command.queue, now, paused=False)


def set_rate_limit(shard: ShardState, tenant: str, command: c.SetRateLimit, now: int) -> r.Done:
    if command.limit is not None:
        checks.rate_limit(command.limit)
    return _configure(shard, tenant, command.queue, now, rate_limit=command.limit, refill=True)


def set_concurrency(shard: ShardState, tenant: str, command: c.SetConcurrency, now: int) -> r.Done:
    checks.number(command.limit, "concurrency limit", 0, INT_MAX)
    return _configure(shard, tenant, command.queue, now, concurrency=command.limit)


def set_queue_policy(shard: ShardState, tenant: str, command: c.SetQueuePolicy, now: int) -> r.Done:
    changes: dict[str, object] = {}
    if command.group_on_retry is not None:
        checks.group_policy(command.group_on_retry)
        changes["group_on_retry"] = command.group_on_retry
    if command.dead_letters is not None:
        checks.dead_letter_policy(command.dead_letters)
        changes["dead_letters"] = command.dead_letters
    if command.durability is not None:
        changes["durability"] = command.durability
    done = _configure(shard, tenant, command.queue, now, **changes)
    queue = shard.queue(tenant, command.queue)
    surplus = len(queue.dead) - queue.dead_policy.entries_max
    if surplus > 0:
        oldest = [job_id for job_id, _ in zip(queue.dead, range(surplus), strict=False)]
        shard.emit(rec.DeadRemoved(now, tenant, queue.name, oldest, "evicted"))
    return done


def _configure(shard: ShardState, tenant: str, name: str, now: int, **changes: object) -> r.Done:
    checks.name(name)
    queue = shard.queue_for_writing(tenant, name)
    record = rec.QueueConfigured(
        now,
        tenant,
        name,
        queue.paused,
        queue.bucket.limit if queue.bucket else None,
        queue.concurrency,
        queue.group_on_retry,
        queue.dead_policy,
        durability=queue.durability,
    )
    shard.emit(msgspec.structs.replace(record, **changes))
    return r.Done()


# --- one job ---------------------------------------------------------------------------------------


def cancel(shard: ShardState, tenant: str, command: c.Cancel, now: int) -> r.JobView:
    part = shard.live(tenant, command.id, "be cancelled")
    queue = part.queue
    if shard.state_of(part) == ACTIVE:
        if not wants_cancel(part):
            shard.emit(rec.CancelRequested(now, tenant, queue.name, command.id))
        return view(shard, own_job(shard, command.id), now)
    before = view(shard, part, now)
    cancel_jobs(shard, queue, [part], CANCELLED, Reason.CANCELLED, now)
    after = shard.index.get(command.id)
    if after is not None:
        return view(shard, after, now)
    return msgspec.structs.replace(
        before,
        state=STATES[outcome_state(queue, CANCELLED)],
        reason=Reason.CANCELLED,
        finished_at=now,
        due=0,
        blocked_by=(),
    )


def promote(shard: ShardState, tenant: str, command: c.Promote, now: int) -> r.Done:
    part = shard.live(tenant, command.id, "be promoted")
    queue = part.queue
    if shard.state_of(part) != DELAYED:
        raise errors.WrongState(
            f"job {command.id} is {STATES[shard.state_of(part)]}: only a delayed job can be promoted"
        )
    shard.emit(rec.BecameDue(now, tenant, queue.name, [(command.id, 1)], promoted=True))
    return r.Done()


def change_priority(shard: ShardState, tenant: str, command: c.ChangePriority, now: int) -> r.Done:
    checks.number(command.priority, "priority", -INT_MAX, INT_MAX)
    queue = shard.live(tenant, command.id, "be reprioritised").queue
    shard.emit(rec.Reprioritised(now, tenant, queue.name, command.id, command.priority))
    return r.Done()


def move_to_delayed(shard: ShardState, tenant: str, command: c.MoveToDelayed, now: int) -> r.Done:
    checks.duration(command.delay_ms, "delay_ms")
    part = shard.live(tenant, command.id, "be moved to delayed")
    queue = part.queue
    state = shard.state_of(part)
    if state == ACTIVE or command.token is not None:
        held_or_raise(shard, tenant, command.id, command.token)
        hand_back(shard, [part], {}, command.delay_ms, now)
    elif state == BLOCKED:
        raise errors.WrongState(
            f"job {command.id} is blocked: it cannot be delayed before its dependencies have finished"
        )
    else:
        due = now + command.delay_ms if command.delay_ms else 0
        shard.emit(rec.Delayed(now, tenant, queue.name, command.id, due))
    return r.Done()


def update_payload(shard: ShardState, tenant: str, command: c.UpdatePayload, now: int) -> r.Done:
    checks.payload(command.payload, shard.limits)
    if command.codec is not None:
        checks.codec(command.codec)
    queue = shard.live_or_dead(tenant, command.id, "be updated").queue
    codec = None if command.codec is None else CODECS.index(command.codec)
    shard.emit(rec.PayloadUpdated(now, tenant, queue.name, command.id, command.payload, codec))
    return r.Done()


def discard(shard: ShardState, tenant: str, command: c.Discard, now: int) -> r.Done:
    shard.live(tenant, command.id, "be discarded")
    fail_for_good(shard, command.id, Reason.EXPLICIT_FAIL, now, error="discarded")
    return r.Done()


def delete_job(shard: ShardState, tenant: str, command: c.DeleteJob, now: int) -> r.Done:
    part = shard.readable(tenant, command.id)
    state = shard.state_of(part)
    if state < COMPLETED:
        raise errors.WrongState(f"job {command.id} is {STATES[state]} and cannot be deleted: cancel it first")
    queue = part.queue.name
    if state == FAILED:
        shard.emit(rec.DeadRemoved(now, tenant, queue, [command.id], "purged"))
    else:
        shard.emit(rec.Removed(now, tenant, queue, [(command.id, 1)]))
    return r.Done()


# --- many jobs -------------------------------------------------------------------------------------


def parts_in(shard: ShardState, queue: QueueState, states: tuple[int, ...]) -> list[Part]:
    """The live jobs of a queue in these states, in id order. Only blocked and active jobs need a search of the whole
    index.
    """
    parts: list[Part] = []
    if WAITING in states:
        for entry in queue.ready.entries():
            if type(entry) is UniformBatch:
                parts += [Members(entry, start, stop) for start, stop in entry.waiting.runs()]
            elif entry.options.group_id is None:
                parts.append(entry)
        parts += [job for group in queue.groups.values() for job in group.lane]
    if DELAYED in states:
        for holder in {id(entry[2]): entry[2] for entry in queue.delayed if is_due_entry(entry)}.values():
            if type(holder) is UniformBatch:
                parts += [Members(holder, start, stop) for start, stop in holder.waiting.runs()]
            else:
                parts.append(holder)
    rest = [state for state in (BLOCKED, ACTIVE) if state in states and queue.counts[state]]
    if BLOCKED in rest:
        for batch in shard.index.batches():
            if batch.queue is queue and batch.due == BLOCKED_DUE:
                parts += [Members(batch, start, stop) for start, stop in batch.waiting.runs()]
    if rest:
        parts += [job for job in shard.index.jobs() if job.queue is queue and job.state in rest]
    if ACTIVE in rest:
        for batch in shard.index.batches():
            if batch.queue is queue:
                parts += [Members(batch, start, stop) for piece in batch.slices for start, stop in piece.span.runs()]
    parts.sort(key=lowest)
    return parts


def drain(shard: ShardState, tenant: str, command: c.Drain, now: int) -> r.Done:
    checks.name(command.queue)
    queue = shard.known_queue(tenant, command.queue)
    if queue is None:
        return r.Done(0)
    parts = parts_in(shard, queue, (WAITING, DELAYED) if command.delayed else (WAITING,))
    cancel_jobs(shard, queue, parts, CANCELLED, Reason.DRAINED, now)
    return r.Done(sum(part.jobs for part in parts))


def clean(shard: ShardState, tenant: str, command: c.Clean, now: int) -> r.Ids:
    checks.name(command.queue)
    checks.duration(command.age_ms, "age_ms")
    checks.count(command.limit, "limit", shard.limits.batch_jobs_max)
    try:
        state = STATES.index(State(command.state))
    except ValueError as error:
        raise errors.InvalidRequest(
            f"unknown state {checks.short(command.state)}: expected one of {', '.join(STATES)}"
        ) from error
    if state == ACTIVE:
        raise errors.InvalidRequest("active jobs cannot be cleaned: cancel them, or let their leases end")
    queue = shard.known_queue(tenant, command.queue)
    if queue is None:
        return r.Ids([])
    before = now - command.age_ms
    if state == FAILED:
        return _clean_dead(shard, queue, before, command.limit, now)
    if state in (COMPLETED, CANCELLED, EXPIRED):
        return _clean_retained(shard, queue, state, before, command.limit, now)
    parts = cut(parts_in(shard, queue, (state,)), command.limit, before)
    ids = [job_id for part in parts for job_id in sorted(part.ids)]
    cancel_jobs(shard, queue, parts, CANCELLED, Reason.CLEANED, now)
    return r.Ids(ids)


def cut(parts: list[Part], limit: int, pushed_until: int) -> list[Part]:
    """The first `limit` jobs that were pushed by `pushed_until`."""
    found: list[Part] = []
    for part in parts:
        if part.pushed_at > pushed_until:
            continue
        if type(part) is Members and part.jobs > limit:
            batch, start, stop = part.batch, part.start, part.stop
            ascending = batch.step > 0
            part = Members(batch, start, start + limit) if ascending else Members(batch, stop - limit, stop)
        found.append(part)
        limit -= part.jobs
        if not limit:
            break
    return found


def _clean_dead(shard: ShardState, queue: QueueState, before: int, limit: int, now: int) -> r.Ids:
    ids = [job.id for job in queue.dead.values() if job.details().ended_at <= before][:limit]
    if ids:
        shard.emit(rec.DeadRemoved(now, queue.tenant.name, queue.name, ids, "purged"))
    return r.Ids(ids)


def _clean_retained(shard: ShardState, queue: QueueState, state: int, before: int, limit: int, now: int) -> r.Ids:
    runs: list[tuple[int, int]] = []
    ids: list[int] = []
    for ended in queue.retained.entries():
        if ended.state != state or ended_at(ended) > before:
            continue
        jobs = min(size_of(ended), limit - len(ids))
        if type(ended) is EndedRun:
            batch: UniformBatch = ended.batch
            ids += batch.ids(ended.start, ended.start + jobs)
            runs.append((batch.id_at(ended.start), jobs if batch.step > 0 else -jobs))
        else:
            assert type(ended) is SingleJob
            ids.append(ended.id)
            runs.append((ended.id, 1))
        if len(ids) == limit:
            break
    if runs:
        shard.emit(rec.Removed(now, queue.tenant.name, queue.name, runs))
    return r.Ids(ids)


def obliterate(shard: ShardState, tenant: str, command: c.Obliterate, now: int) -> r.Done:
    checks.name(command.queue)
    queue = shard.known_queue(tenant, command.queue)
    if queue is None:
        return r.Done(0)
    counts = queue.scope.counts
    if counts[ACTIVE] and not command.force:
        raise errors.QueueActive(f"queue {command.queue} has {counts[ACTIVE]} active jobs: let them end, or use force")
    before = sum(counts) - counts[LIVE_BYTES]
    parts = parts_in(shard, queue, (WAITING, DELAYED, BLOCKED, ACTIVE))
    if parts:
        runs = [run_of(piece) for part in parts for piece in in_id_order(part)]
        shard.emit(rec.JobsEnded(now, tenant, queue.name, CANCELLED, Reason.OBLITERATED, runs))
    shard.emit(rec.QueueObliterated(now, tenant, queue.name))
    if shard.old_keys is not None:
        shard.old_keys.forget_queue(tenant, queue.name)
    settle(shard, now)
    return r.Done(before)
