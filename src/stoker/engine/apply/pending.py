"""Apply records about jobs that have not started, or that end without having started."""

import msgspec

from stoker.engine.apply.moves import (
    arm_due,
    drop_edge,
    end_job,
    end_run,
    leave_active,
    leave_active_run,
    leave_batch_waiting,
    leave_blocked,
    leave_delayed,
    leave_waiting,
    make_pending,
    make_waiting,
    own_job,
    split,
    total_of,
)
from stoker.engine.jobs import ACTIVE, BLOCKED, DELAYED, GONE, LIVE_BYTES, WAITING, SingleJob, UniformBatch
from stoker.engine.shard_state import ShardState
from stoker.engine.state import Appliers
from stoker.model.options import CODECS
from stoker.records import records as rec
from stoker.records.stored import total_size


def ended(shard: ShardState, record: rec.JobsEnded) -> None:
    """Cancel or expire jobs, in whatever state they are."""
    queue = shard.queue(record.tenant, record.queue)
    for run in record.runs:
        jobs = abs(run.count)
        queue.total(total_of(record.state), jobs)
        queue.count(LIVE_BYTES, -total_size(run.sizes, jobs))
        job = shard.index.get(run.first)
        if job is None:
            found = shard.index.find_batch(run.first)
            assert found is not None
            batch, position = found
            if jobs > 1:
                _end_run(shard, batch, position, position + jobs, record)
                continue
            job = split(shard, batch, position)
        old, job.state = job.state, GONE
        queue.count(old, -1)
        if old == ACTIVE:
            leave_active(shard, job, record.at)
        elif old == WAITING:
            leave_waiting(job)
        elif old == DELAYED:
            leave_delayed(job)
        elif old == BLOCKED:
            leave_blocked(shard, job)
        end_job(shard, job, record.state, record.at, record.reason)


def _end_run(shard: ShardState, batch: UniformBatch, start: int, stop: int, record: rec.JobsEnded) -> None:
    piece = batch.slices.find(start)
    if piece is not None:
        batch.queue.count(ACTIVE, start - stop)
        leave_active_run(shard, piece, start, stop, record.at)
    else:
        batch.queue.count(batch.pending, start - stop)
        leave_batch_waiting(batch, start, stop)
    end_run(shard, batch, start, stop, record.state, record.at, piece=piece, reason=record.reason)


def unblocked(shard: ShardState, record: rec.Unblocked) -> None:
    job = own_job(shard, record.job)
    detail = job.details()
    assert detail.blockers is not None
    del detail.blockers[record.dependency]
    drop_edge(shard, record.dependency, job.id)
    if not record.ready:
        return
    detail.blockers = None
    detail.due = 0
    make_pending(shard, job, BLOCKED, record.due, record.at)


def became_due(shard: ShardState, record: rec.BecameDue) -> None:
    queue = shard.queue(record.tenant, record.queue)
    for first, count in record.runs:
        job = shard.index.get(first)
        if job is None and abs(count) == 1 and record.promoted:
            job = own_job(shard, first)
        if job is None:
            found = shard.index.find_batch(first)
            assert found is not None
            _batch_became_due(shard, found[0], record)
            continue
        detail = job.details()
        detail.ready_at = record.at if record.promoted else detail.due
        queue.move(DELAYED, WAITING)
        leave_delayed(job)
        make_waiting(shard, job)
    arm_due(shard, queue)


def _batch_became_due(shard: ShardState, batch: UniformBatch, record: rec.BecameDue) -> None:
    """Make all jobs of a delayed batch waiting. Further runs of this batch in the record find nothing left to do."""
    if not batch.due:
        return
    batch.ready_at = record.at if record.promoted else batch.due
    batch.due = 0
    queue = batch.queue
    queue.move(DELAYED, WAITING, batch.waiting.left)
    queue.ready.add(batch)
    if queue.waiters:
        shard.dirty.append(queue)


def delayed(shard: ShardState, record: rec.Delayed) -> None:
    job = own_job(shard, record.job)
    old = job.state
    job.state = GONE
    if old == WAITING:
        leave_waiting(job)
    else:
        leave_delayed(job)
    make_pending(shard, job, old, record.due, record.at)


def reprioritised(shard: ShardState, record: rec.Reprioritised) -> None:
    job = own_job(shard, record.job)
    waiting = job.state == WAITING and job.options.priority != record.priority
    if waiting:
        job.state = GONE
        leave_waiting(job)
    job.options = shard.intern(msgspec.structs.replace(job.options, priority=record.priority))
    if waiting:
        make_waiting(shard, job)


def payload_updated(shard: ShardState, record: rec.PayloadUpdated) -> None:
    job: SingleJob = own_job(shard, record.job)
    if job.state <= ACTIVE:
        job.queue.count(LIVE_BYTES, len(record.payload) - len(job.payload))
    if type(job.payload) is bytes:
        shard.index.bytes -= len(job.payload)
    if type(record.payload) is bytes:
        shard.index.bytes += len(record.payload)
    job.payload = record.payload
    if record.codec is not None and CODECS[record.codec] != job.options.codec:
        job.options = shard.intern(msgspec.structs.replace(job.options, codec=CODECS[record.codec]))


APPLY: Appliers = {
    rec.JobsEnded: ended,
    rec.Unblocked: unblocked,
    rec.BecameDue: became_due,
    rec.Delayed: delayed,
    rec.Reprioritised: reprioritised,
    rec.PayloadUpdated: payload_updated,
}
