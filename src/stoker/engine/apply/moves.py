"""The moves that every change of state is made of. Only `engine/apply/` call them.

There is one way into each place and one way out of `active` (`leave_active`). So no path can forget to free a slot, a
group, a key or a claim, or to answer a waiting client.
"""

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from stoker.engine import deadlines as kinds
from stoker.engine.jobs import (
    ACTIVE,
    BLOCKED,
    CANCELLED,
    COMPLETED,
    DELAYED,
    GONE,
    WAITING,
    EndedRun,
    Results,
    SingleJob,
    Slice,
    UniformBatch,
    bytes_of_results,
)
from stoker.engine.shard_state import ShardState
from stoker.engine.state import T_CANCELLED, T_EXPIRED, JobGroup, NamedClaim, QueueState
from stoker.engine.workflow_state import keep_job, keep_run, note_ended
from stoker.model import replies as r
from stoker.model.ids import SHARD_BITS, STEP
from stoker.model.options import DEFAULT_OPTIONS, Codec, Options
from stoker.model.states import STATES

if TYPE_CHECKING:
    from stoker.engine.retained_jobs import EndedEntry


# --- waiting and delayed ---------------------------------------------------------------------------


def make_waiting(shard: ShardState, job: SingleJob, *, fresh: bool = False) -> None:
    """Put a job into its place in the ready order. `fresh` jobs are the youngest of their queue."""
    queue = job.queue
    job.state = WAITING
    group_id = job.options.group_id
    if group_id is not None:
        join_lane(queue, job)
    elif fresh:
        queue.ready.add_new(job)
    else:
        queue.ready.add(job)
    if queue.waiters:
        shard.dirty.append(queue)


def leave_waiting(job: SingleJob) -> None:
    """Take a job out of the ready order. Its state must have changed already."""
    queue = job.queue
    if job.options.group_id is None:
        queue.ready.left()
        return
    group = queue.groups[job.options.group_id]
    group.lane.remove(job)
    offer(queue, group)
    drop_idle_group(queue, job.options.group_id, group)


def make_delayed(shard: ShardState, entry: SingleJob | UniformBatch, due: int) -> None:
    queue = entry.queue
    if type(entry) is SingleJob:
        entry.state = DELAYED
        entry.details().due = due
    else:
        assert type(entry) is UniformBatch
        entry.due = due
    heappush(queue.delayed, (due, shard.number_next(), entry))
    arm_due(shard, queue)


def make_pending(shard: ShardState, job: SingleJob, old: int, due: int, at: int) -> None:
    """Move a job from another state to waiting or, with a due time, to delayed."""
    if due:
        job.queue.move(old, DELAYED)
        make_delayed(shard, job, due)
    else:
        job.details().ready_at = at
        job.queue.move(old, WAITING)
        make_waiting(shard, job)


def arm_due(shard: ShardState, queue: QueueState) -> None:
    """Arm a deadline for the next delayed entry of the queue."""
    delayed = queue.delayed
    while delayed and not is_due_entry(delayed[0]):
        heappop(delayed)
        queue.delayed_stale = max(0, queue.delayed_stale - 1)
    if delayed and (not queue.delayed_armed or delayed[0][0] < queue.delayed_armed):
        queue.delayed_armed = delayed[0][0]
        shard.deadlines.arm(delayed[0][0], kinds.DUE, queue)


def leave_delayed(job: SingleJob) -> None:
    """A delayed job leaves the delayed heap."""
    if job.detail is not None:
        job.detail.due = 0
    delayed_entry_left(job.queue)


def leave_batch_waiting(batch: UniformBatch, start: int, stop: int) -> None:
    """Waiting or delayed positions leave their place in a batch. After the last one the batch leaves its line."""
    batch.waiting.remove(start, stop)
    if batch.waiting.left:
        return
    state = batch.pending
    if state == DELAYED:
        delayed_entry_left(batch.queue)
    elif state == WAITING:
        batch.queue.ready.left()


def delayed_entry_left(queue: QueueState) -> None:
    """An entry of the delayed heap has become stale. The heap is swept when more than a fifth are stale."""
    queue.delayed_stale += 1
    if queue.delayed_stale > 32 and queue.delayed_stale * 5 > len(queue.delayed):
        queue.delayed = [entry for entry in queue.delayed if is_due_entry(entry)]
        heapify(queue.delayed)
        queue.delayed_stale = 0


def is_due_entry(entry: tuple[int, int, SingleJob | UniformBatch]) -> bool:
    """Whether an entry of a delayed heap is not stale."""
    due, _, holder = entry
    if type(holder) is UniformBatch:
        return holder.due == due and holder.waiting.left > 0
    assert type(holder) is SingleJob
    return holder.state == DELAYED and holder.detail is not None and holder.detail.due == due


def leave_blocked(shard: ShardState, job: SingleJob) -> None:
    """Drop all edges of a blocked job."""
    detail = job.details()
    for other in detail.blockers or ():
        drop_edge(shard, other, job.id)
    detail.blockers = None


def drop_edge(shard: ShardState, other: int, job_id: int) -> None:
    """Drop the edge from `job_id` to `other`."""
    waiting = shard.dependents.get(other)
    if waiting is not None:
        waiting.pop(job_id, None)
        if not waiting:
            del shard.dependents[other]


# --- groups ----------------------------------------------------------------------------------------


def join_lane(queue: QueueState, job: SingleJob) -> None:
    """Insert a job among the waiting jobs of its group, in push order."""
    assert job.options.group_id is not None
    group = queue.groups.get(job.options.group_id)
    if group is None:
        group = queue.groups[job.options.group_id] = JobGroup()
    if group.holder is job:
        group.holder = None
    lane = group.lane
    if not lane or job.id > lane[-1].id:
        lane.append(job)
    elif job.id < lane[0].id:
        lane.appendleft(job)
    else:
        lane.insert(bisect_left(lane, job.id, key=lambda other: other.id), job)
    queue.ready.out_of_line.add(job)
    offer(queue, group)


def offer(queue: QueueState, group: JobGroup) -> None:
    """Put the head of an idle group into the ready order, and no other job of the group."""
    head = group.lane[0] if group.lane and group.holder is None else None
    if group.offered is head:
        return
    if group.offered is not None:
        queue.ready.left()
    group.offered = head
    if head is not None:
        queue.ready.add(head)


def free_group(shard: ShardState, job: SingleJob) -> None:
    """The job no longer holds its group."""
    queue, group_id = job.queue, job.options.group_id
    group = queue.groups.get(group_id) if group_id is not None else None
    if group is None or group_id is None or group.holder is not job:
        return
    group.holder = None
    offer(queue, group)
    drop_idle_group(queue, group_id, group)
    if queue.waiters:
        shard.dirty.append(queue)


def drop_idle_group(queue: QueueState, group_id: str, group: JobGroup) -> None:
    if not group.lane and group.holder is None:
        del queue.groups[group_id]


# --- batches ---------------------------------------------------------------------------------------


def split(shard: ShardState, batch: UniformBatch, position: int) -> SingleJob:
    """Turn a waiting, delayed, blocked or active member of a batch into a single job, in the same state."""
    payload = batch.payloads[position]
    assert payload is not None
    piece = batch.slices.find(position)
    job = SingleJob(batch.id_at(position), batch.queue, batch.options, payload, batch.pushed_at, ACTIVE)
    shard.index.add(job)
    if batch.ready_at:
        job.details().ready_at = batch.ready_at
    if piece is not None:
        detail = job.details()
        detail.attempts = 1
        detail.token = piece.token
        detail.worker = piece.worker
        detail.claim = piece.claim
        detail.started_at = piece.started_at
        detail.lease_ms = piece.lease_ms
        detail.lease_until = piece.lease_until
        detail.fires_at = piece.fires_at
        detail.heard_at = piece.heard_at
        shard.deadlines.arm(piece.fires_at, kinds.LEASE, job)
        shrink_slice(shard, piece, position, position + 1)
    else:
        leave_batch_waiting(batch, position, position + 1)
        state = batch.pending
        if state == DELAYED:
            make_delayed(shard, job, batch.due)
        elif state == BLOCKED:
            job.state = BLOCKED
        else:
            job.state = WAITING
            batch.queue.ready.add(job)
        arm_ttl(shard, job)
    leave_batch(shard, batch, position, position + 1)
    return job


def own_job(shard: ShardState, job_id: int) -> SingleJob:
    """The job as a single job, split off its batch if it was part of one."""
    job = shard.index.get(job_id)
    if job is None:
        found = shard.index.find_batch(job_id)
        assert found is not None, f"job {job_id} must be there"
        job = split(shard, *found)
    return job


def own_jobs(shard: ShardState, first: int, count: int) -> Iterable[SingleJob]:
    step = STEP if count > 0 else -STEP
    return [own_job(shard, job_id) for job_id in range(first, first + step * abs(count), step)]


def shrink_slice(shard: ShardState, piece: Slice, start: int, stop: int) -> None:
    """Remove positions from a delivery."""
    piece.span.remove(start, stop)
    if not piece.span.left:
        piece.batch.slices.remove(piece)


def leave_batch(shard: ShardState, batch: UniformBatch, start: int, stop: int) -> None:
    """These positions are no longer readable in their batch."""
    batch.left -= stop - start
    shard.index.bytes -= batch.bytes_of(start, stop)
    if not batch.left:
        batch.payloads = []
        shard.index.batch_gone()
    elif type(batch.payloads) is list:
        batch.payloads[start:stop] = [None] * (stop - start)


def arm_ttl(shard: ShardState, entry: SingleJob | UniformBatch, not_before: int = 0) -> None:
    if entry.options.ttl_ms:
        shard.deadlines.arm(max(not_before, entry.pushed_at + entry.options.ttl_ms), kinds.TTL, entry)


# --- deliveries ------------------------------------------------------------------------------------


def fires_at(options: Options, started_at: int, lease_until: int) -> int:
    """When a delivery fails automatically."""
    if options.timeout_ms:
        return min(lease_until, started_at + options.timeout_ms)
    return lease_until


def leave_active(shard: ShardState, job: SingleJob, at: int, *, hold: bool = False) -> None:
    """End a delivery. The caller moves the job on. With `hold` its group waits for it."""
    detail = job.detail
    assert detail is not None
    if detail.claim is not None:
        release_claim(shard, job.queue, detail.claim, 1, at)
        detail.claim = None
    detail.token = 0
    detail.fires_at = 0
    if not hold and job.options.group_id is not None:
        free_group(shard, job)
    if job.queue.waiters:
        shard.dirty.append(job.queue)


def leave_active_run(shard: ShardState, piece: Slice, start: int, stop: int, at: int) -> None:
    """The same for neighbouring jobs of one slice."""
    queue = piece.batch.queue
    if piece.claim is not None:
        release_claim(shard, queue, piece.claim, stop - start, at)
    shrink_slice(shard, piece, start, stop)
    if queue.waiters:
        shard.dirty.append(queue)


def release_claim(shard: ShardState, queue: QueueState, name: str, jobs: int, at: int) -> None:
    claim: NamedClaim = queue.tenant.claims[name]
    claim.held -= jobs
    if not claim.held:
        claim.expires_at = at + shard.settings.claim_ttl_ms
        shard.deadlines.arm(claim.expires_at, kinds.CLAIM, (queue.tenant, name))


# --- ends ------------------------------------------------------------------------------------------


def retention_of(shard: ShardState, options: Options) -> tuple[int, int] | None:
    """The (age, count) for which an ended job stays readable; None = not at all."""
    if options is DEFAULT_OPTIONS:
        return shard.default_retention
    retention = shard.settings.retention
    age = options.keep_completed_age_ms
    count = options.keep_completed_count
    age = retention.completed_age_ms if age is None else age
    count = retention.completed_count if count is None else count
    return (age, count) if age and count else None


def end_job(shard: ShardState, job: SingleJob, state: int, at: int, reason: str = "") -> None:
    """End a job that has left its place as completed, cancelled or expired: it is retained or forgotten."""
    detail = job.details()
    detail.ended_at = at
    detail.reason = reason
    settle_end(shard, job, state, at)
    policy = retention_of(shard, job.options)
    if policy is None or (state == COMPLETED and job.options.remove_on_complete):
        if job.options.workflow is not None:
            keep_job(shard, job, state)
        shard.index.remove(job.id)
        job.state = GONE
        return
    job.state = state
    queue = job.queue
    queue.counts[state] += 1
    retained = queue.retained
    detail.serial = retained.serial + 1
    retained.add(job, 1, policy)
    if policy not in retained.armed:
        arm_age(shard, queue, policy, at)


def settle_end(shard: ShardState, job: SingleJob, state: int, at: int) -> None:
    """What every end of a job does, dead letters included: free its keys and group, settle its edges, answer waiting
    clients.
    """
    options, queue = job.options, job.queue
    if options.group_id is not None:
        free_group(shard, job)
    if options.unique_key is not None:
        key = queue.unique_keys.get(options.unique_key)
        if key is not None and key.job == job.id:
            del queue.unique_keys[options.unique_key]
    if options.custom_id is not None:
        let_custom_id_expire(shard, queue, options, job.id, at)
    if state != COMPLETED:
        sequence = job.id >> SHARD_BITS
        queue.tenant.ended_badly.add(sequence, sequence + 1)
    if options.workflow is not None:
        note_ended(shard, queue.tenant, options, job.id, 1, state, at)
    if shard.dependents and job.id in shard.dependents:
        shard.settling.append((job.id, state))
    if shard.job_waiters and job.id in shard.job_waiters:
        detail = job.details()
        result: Any = detail.result  # a stored result is read when the reply leaves
        codec = detail.result_codec
        shard.ended_waits.append(r.Ended(job.id, STATES[state], True, result, detail.reason, detail.error, codec))


def let_custom_id_expire(shard: ShardState, queue: QueueState, options: Options, job_id: int, at: int) -> None:
    assert options.custom_id is not None
    key = queue.custom_ids.get(options.custom_id)
    if key is None or key.job != job_id:
        return
    if not options.custom_id_ttl_ms:
        del queue.custom_ids[options.custom_id]
        return
    key.expires_at = at + options.custom_id_ttl_ms
    shard.deadlines.arm(key.expires_at, kinds.KEY, (queue, "custom_ids", options.custom_id))


def end_run(
    shard: ShardState,
    batch: UniformBatch,
    start: int,
    stop: int,
    state: int,
    at: int,
    *,
    piece: Slice | None = None,
    reason: str = "",
    results: Results | None = None,
    codec: Codec = "bytes",
) -> None:
    """End neighbouring jobs of a batch together that have left their places. The caller counts them."""
    queue, options = batch.queue, batch.options
    if state != COMPLETED:
        low = min(batch.id_at(start), batch.id_at(stop - 1)) >> SHARD_BITS
        queue.tenant.ended_badly.add(low, low + stop - start)
    if options.workflow is not None:
        first = min(batch.id_at(start), batch.id_at(stop - 1))
        note_ended(shard, queue.tenant, options, first, stop - start, state, at)
    if shard.dependents or shard.job_waiters:
        find_awaited(shard, batch.ids(start, stop), state, reason, results, codec)
    policy = retention_of(shard, options)
    serial = queue.retained.serial + 1
    run = EndedRun(batch, start, start, stop, state, at, serial, reason=reason, results=results, codec=codec)
    if policy is None or (state == COMPLETED and options.remove_on_complete):
        if options.workflow is not None:
            keep_run(shard, run, stop - start)
        leave_batch(shard, batch, start, stop)
        return
    if piece is not None:
        run.started_at, run.worker = piece.started_at, piece.worker
    batch.ended.add(run)
    if results is not None:
        shard.index.bytes += bytes_of_results(results)
    queue.count(state, stop - start)
    queue.retained.add(run, stop - start, policy)
    arm_age(shard, queue, policy, at)


def find_awaited(shard: ShardState, ids: range, state: int, reason: str, results: Results | None, codec: Codec) -> None:
    """Find the ended jobs that other jobs depend on or clients wait for."""
    for job_id in common(shard.dependents, ids):
        shard.settling.append((job_id, state))
    for job_id in common(shard.job_waiters, ids):
        result: Any = results[ids.index(job_id)] if results is not None else None
        written: Codec = "bytes" if result is None else codec
        shard.ended_waits.append(r.Ended(job_id, STATES[state], True, result, reason, result_codec=written))


def common(table: dict[int, Any], ids: range) -> list[int]:
    """The ids that are in a table, in their order. The shorter of the two is searched."""
    if len(table) < len(ids):
        return sorted((job_id for job_id in table if job_id in ids), key=ids.index)
    return [job_id for job_id in ids if job_id in table]


def arm_age(shard: ShardState, queue: QueueState, policy: tuple[int, int], ended_at: int) -> None:
    """Arm a deadline for when the oldest job of a lane of retained jobs has reached its age."""
    retained = queue.retained
    if policy in retained.lanes and policy not in retained.armed:
        retained.armed[policy] = ended_at + policy[0]
        shard.deadlines.arm(ended_at + policy[0], kinds.AGE, (queue, policy))


def forget(shard: ShardState, ended: "EndedEntry", jobs: int) -> None:
    """The first `jobs` of an ended job or run are no longer readable."""
    if type(ended) is EndedRun:
        batch = ended.batch
        if batch.options.workflow is not None:
            keep_run(shard, ended, jobs)
        batch.queue.count(ended.state, -jobs)
        start = ended.start
        ended.start += jobs
        if ended.results is not None:
            gone = slice(start - ended.origin, ended.start - ended.origin)
            shard.index.bytes -= bytes_of_results(ended.results[gone])
            ended.results[gone] = [None] * jobs
        if ended.start >= ended.stop:
            batch.ended.remove(ended)
        leave_batch(shard, batch, start, start + jobs)
        return
    assert type(ended) is SingleJob
    if ended.options.workflow is not None:
        keep_job(shard, ended, ended.state)
    ended.queue.counts[ended.state] -= 1
    if not ended.queue.touched:
        ended.queue.touch()
    shard.index.remove(ended.id)
    ended.state = GONE


def cut_ended(queue: QueueState, run: EndedRun, position: int) -> EndedRun:
    """Make the rest of a run, from this position on, a run of its own. The lane keeps their order."""
    first = position - run.origin
    results = None if run.results is None else run.results[first:]
    rest = EndedRun(
        run.batch,
        position,
        position,
        run.stop,
        run.state,
        run.ended_at,
        run.serial + first,
        run.started_at,
        run.worker,
        run.reason,
        results,
        run.codec,
    )
    if run.results is not None:
        del run.results[first:]
    run.stop = position
    run.batch.ended.add(rest)
    for lane in queue.retained.lanes.values():
        if run in lane:
            lane.insert(lane.index(run) + 1, rest)
    return rest


def total_of(state: int) -> int:
    return T_CANCELLED if state == CANCELLED else T_EXPIRED


PENDING = (WAITING, DELAYED, BLOCKED)
