"""Apply records about deliveries: started, completed, failed, released, extended, and reports of workers."""

from collections import Counter, deque

from stoker.engine import deadlines as kinds
from stoker.engine.apply.moves import (
    arm_ttl,
    end_job,
    end_run,
    fires_at,
    leave_active,
    leave_active_run,
    leave_batch_waiting,
    leave_blocked,
    leave_delayed,
    leave_waiting,
    make_pending,
    own_job,
    own_jobs,
    settle_end,
    split,
)
from stoker.engine.batch_positions import PositionSpan
from stoker.engine.jobs import (
    ACTIVE,
    BLOCKED,
    COMPLETED,
    DELAYED,
    FAILED,
    GONE,
    LINE_BYTES,
    LIVE_BYTES,
    WAITING,
    Detail,
    Members,
    Results,
    SingleJob,
    Slice,
    UniformBatch,
    bytes_told,
    chunk_bytes,
)
from stoker.engine.shard_state import ShardState
from stoker.engine.state import T_FAILED, T_RETRIED, T_STALLED, T_STARTED, T_TIMED_OUT, Appliers, NamedClaim, QueueState
from stoker.engine.workflow_state import keep_job
from stoker.model.histograms import note
from stoker.model.options import CODECS
from stoker.model.reasons import Reason
from stoker.model.replies import Attempt, Chunk, LogLine
from stoker.records import records as rec
from stoker.records.stored import total_size

# --- started ---------------------------------------------------------------------------------------


def started(shard: ShardState, record: rec.Started) -> None:
    queue = shard.queue(record.tenant, record.queue)
    for run in record.runs:
        start_run(shard, queue, record, run)


def start_run(shard: ShardState, queue: QueueState, record: rec.Started, run: rec.JobRun) -> None:
    """Deliver one run. A pull that is being decided also calls this run by run: each choice needs the state after the
    last.
    """
    jobs = abs(run.count)
    job = shard.index.get(run.first)
    if job is not None:
        _start_job(shard, job, record)
    else:
        found = shard.index.find_batch(run.first)
        assert found is not None
        batch, position = found
        start_members(shard, queue, record, run, Members(batch, position, position + jobs))
        return
    note_started(shard, queue, record, run)


def start_job(shard: ShardState, queue: QueueState, record: rec.Started, run: rec.JobRun, job: SingleJob) -> None:
    """`start_run` for a caller that has already found the job."""
    _start_job(shard, job, record)
    note_started(shard, queue, record, run)


def start_members(shard: ShardState, queue: QueueState, record: rec.Started, run: rec.JobRun, members: Members) -> None:
    """`start_run` for a caller that has already found the members of a batch."""
    if members.stop - members.start == 1:
        _start_job(shard, split(shard, members.batch, members.start), record)
    else:
        _start_slice(shard, members.batch, members.start, members.stop, record)
    note_started(shard, queue, record, run)


def note_started(shard: ShardState, queue: QueueState, record: rec.Started, run: rec.JobRun) -> None:
    jobs = run.count if run.count > 0 else -run.count
    shard.token = record.token
    counts = queue.counts
    counts[WAITING] -= jobs
    counts[ACTIVE] += jobs
    queue.totals[T_STARTED] += jobs
    if not run.attempt:
        note(queue.wait, record.at - run.pushed_at, jobs)
    if not queue.touched:
        queue.touch()
    if queue.bucket is not None:
        queue.bucket.take(jobs, record.at)
    if record.claim is not None:
        claim = queue.tenant.claims.get(record.claim)
        if claim is None:
            claim = queue.tenant.claims[record.claim] = NamedClaim(record.token, [], 0)
            if shard.claim_waiters:
                shard.claims_made.append((record.tenant, record.claim))
        claim.runs.append((run.first, run.count))
        claim.held += jobs


def _start_job(shard: ShardState, job: SingleJob, record: rec.Started) -> None:
    options = job.options
    at, lease_ms = record.at, options.lease_ms if record.lease_ms is None else record.lease_ms
    fires = at + lease_ms if not options.timeout_ms else fires_at(options, at, at + lease_ms)
    detail = job.details()
    detail.attempts += 1
    detail.token = record.token
    detail.worker = record.worker
    detail.claim = record.claim
    detail.started_at = at
    detail.lease_ms = lease_ms
    detail.lease_until = at + lease_ms
    detail.fires_at = fires
    detail.heard_at = 0
    job.state = ACTIVE
    job.queue.ready.left()
    if options.group_id is not None:
        group = job.queue.groups[options.group_id]
        group.lane.popleft()
        group.holder, group.offered = job, None
    shard.deadlines.arm(fires, kinds.LEASE, job)


def _start_slice(shard: ShardState, batch: UniformBatch, start: int, stop: int, record: rec.Started) -> None:
    leave_batch_waiting(batch, start, stop)
    lease_ms = batch.options.lease_ms if record.lease_ms is None else record.lease_ms
    lease_until = record.at + lease_ms
    piece = Slice(
        batch,
        start,
        PositionSpan(start, stop, stop - start),
        record.token,
        record.worker,
        record.claim,
        record.at,
        lease_ms,
        lease_until,
        fires_at(batch.options, record.at, lease_until),
    )
    batch.slices.add(piece)
    shard.deadlines.arm(piece.fires_at, kinds.LEASE, piece)


# --- completed -------------------------------------------------------------------------------------


def completed(shard: ShardState, record: rec.Completed) -> None:
    queue = shard.queue(record.tenant, record.queue)
    at, results, offset, codec = record.at, record.results, 0, CODECS[record.codec]
    for run in record.runs:
        jobs = abs(run.count)
        job = shard.index.get(run.first)
        started_at = run.started_at
        wait_ms, run_ms = (started_at - run.pushed_at) * jobs, (at - started_at) * jobs
        queue.completed(jobs, total_size(run.sizes, jobs), wait_ms, run_ms, at // 1000)
        note(queue.run, at - started_at, jobs)
        part: Results | None = [*results[offset : offset + jobs]] if results is not None else None
        offset += jobs
        if job is None:
            found = shard.index.find_batch(run.first)
            assert found is not None
            batch, position = found
            if jobs > 1:
                piece = batch.slices.find(position)
                assert piece is not None
                leave_active_run(shard, piece, position, position + jobs, at)
                end_run(shard, batch, position, position + jobs, COMPLETED, at, piece=piece, results=part, codec=codec)
                continue
            job = split(shard, batch, position)
        leave_active(shard, job, at)
        detail = job.details()
        if detail.error or detail.error_class or detail.stack:
            shard.index.bytes -= len(detail.error) + len(detail.stack)
            detail.error = detail.error_class = detail.stack = ""
        if part is not None and part[0] is not None:
            detail.result, detail.result_codec = part[0], codec
            if type(detail.result) is bytes:
                shard.index.bytes += len(detail.result)
        end_job(shard, job, COMPLETED, at)


# --- failed deliveries -----------------------------------------------------------------------------


def retrying(shard: ShardState, record: rec.Retrying) -> None:
    job = own_job(shard, record.run.first)
    queue = job.queue
    _note_failure(shard, job, record, record.reason)
    queue.total(T_RETRIED)
    leave_active(shard, job, record.at, hold=queue.group_on_retry == "hold")
    make_pending(shard, job, ACTIVE, record.due, record.at)


def _note_failure(shard: ShardState, job: SingleJob, record: rec.Retrying | rec.JobDied, reason: str) -> None:
    """Add the failed delivery to the history of the job."""
    detail = job.details()
    note(job.queue.run, record.at - detail.started_at)
    if reason == Reason.STALLED:
        detail.crashes += 1
        job.queue.total(T_STALLED)
    elif reason == Reason.TIMEOUT:
        job.queue.total(T_TIMED_OUT)
    before = bytes_told(detail)
    detail.error, detail.error_class, detail.stack = record.error, record.error_class, record.stack
    history = detail.history = detail.history or []
    history.append(
        Attempt(detail.attempts, detail.started_at, record.at, reason, detail.worker, record.error, record.error_class)
    )
    if len(history) > shard.limits.attempt_history_max:
        del history[0]
    shard.index.bytes += bytes_told(detail) - before


def failed(shard: ShardState, record: rec.JobDied) -> None:
    """Make the job a dead letter, or forget it if its options say so."""
    job = own_job(shard, record.run.first)
    queue, detail = job.queue, job.details()
    if record.delivery:
        _note_failure(shard, job, record, record.delivery)
    old = job.state
    job.state = FAILED
    if old == ACTIVE:
        leave_active(shard, job, record.at)
    elif old == WAITING:
        leave_waiting(job)
    elif old == DELAYED:
        leave_delayed(job)
    elif old == BLOCKED:
        leave_blocked(shard, job)
    shard.index.bytes += len(record.error) + len(record.stack) - len(detail.error) - len(detail.stack)
    detail.error, detail.error_class, detail.stack = record.error, record.error_class, record.stack
    detail.reason = record.reason
    detail.ended_at = record.at
    queue.count(old, -1)
    queue.count(LIVE_BYTES, -len(job.payload))
    queue.total(T_FAILED)
    settle_end(shard, job, FAILED, record.at)
    if job.options.remove_on_fail:
        if job.options.workflow is not None:
            keep_job(shard, job, FAILED)
        shard.index.remove(job.id)
        job.state = GONE
        return
    queue.count(FAILED, 1)
    queue.dead[job.id] = job
    queue.dead_groups.add(job)
    policy = queue.dead_policy
    detail.expires_at = record.at + policy.age_ms_max
    shard.deadlines.arm(detail.expires_at, kinds.DEAD_AGE, job)
    detail.next_retry_at = 0
    if policy.auto_retry and detail.retry_count < policy.auto_retries_max:
        detail.next_retry_at = record.at + policy.auto_retry_interval_ms
        shard.deadlines.arm(detail.next_retry_at, kinds.DEAD_RETRY, job)


def released(shard: ShardState, record: rec.JobsReleased) -> None:
    for run in record.runs:
        for job in own_jobs(shard, run.first, run.count):
            detail = job.details()
            detail.attempts -= 1
            if record.note:
                shard.index.bytes += len(record.note) - len(detail.error) - len(detail.stack)
                detail.error, detail.error_class, detail.stack = record.note, "", ""
            hold = record.due > 0 and job.queue.group_on_retry == "hold"
            leave_active(shard, job, record.at, hold=hold)
            make_pending(shard, job, ACTIVE, record.due, record.at)
            if not detail.attempts:
                arm_ttl(shard, job, record.at)


# --- leases and reports of workers -------------------------------------------------------------------


def extended(shard: ShardState, record: rec.LeasesExtended) -> None:
    pieces = [_slice_of(shard, first) for first, _ in record.runs]
    jobs = Counter({id(piece): 0 for piece in pieces})
    for piece, (_, count) in zip(pieces, record.runs, strict=True):
        jobs[id(piece)] += abs(count)
    whole = {id(piece): piece for piece in pieces if piece is not None and jobs[id(piece)] == piece.span.left}
    for piece in whole.values():  # everything that is left of a slice is renewed: it stays one slice
        _extend(shard, piece, piece, piece.batch.options.timeout_ms, record)
    for piece, (first, count) in zip(pieces, record.runs, strict=True):
        if id(piece) in whole:
            continue
        for job in own_jobs(shard, first, count):
            assert job.detail is not None
            _extend(shard, job.detail, job, job.options.timeout_ms, record)


def _slice_of(shard: ShardState, job_id: int) -> Slice | None:
    found = shard.index.find_batch(job_id) if shard.index.get(job_id) is None else None
    return found[0].slices.find(found[1]) if found is not None else None


def _extend(
    shard: ShardState, lease: Detail | Slice, holder: SingleJob | Slice, timeout_ms: int, record: rec.LeasesExtended
) -> None:
    lease.heard_at = record.at
    lease.lease_until = record.at + (lease.lease_ms if record.lease_ms is None else record.lease_ms)
    fires = lease.lease_until
    if timeout_ms:
        fires = min(fires, lease.started_at + timeout_ms)
    if fires != lease.fires_at:
        lease.fires_at = fires
        shard.deadlines.arm(fires, kinds.LEASE, holder)


def cancel_requested(shard: ShardState, record: rec.CancelRequested) -> None:
    own_job(shard, record.job).details().cancel = True


def progressed(shard: ShardState, record: rec.Progressed) -> None:
    detail = own_job(shard, record.job).details()
    detail.percent, detail.message = record.percent, record.message


def logged(shard: ShardState, record: rec.Logged) -> None:
    job = own_job(shard, record.job)
    detail = job.details()
    if detail.logs is None:
        most, wanted = shard.limits.log_lines_max, job.options.log_lines_max
        detail.logs = deque(maxlen=most if wanted is None else min(most, wanted))
    if not detail.logs.maxlen:
        return
    if len(detail.logs) == detail.logs.maxlen:
        shard.index.bytes -= LINE_BYTES + len(detail.logs.popleft().message)
    detail.logs.append(LogLine(record.at, record.level, record.message))
    shard.index.bytes += LINE_BYTES + len(record.message)


def partial_added(shard: ShardState, record: rec.PartialAdded) -> None:
    detail = own_job(shard, record.job).details()
    if detail.partials is None:
        detail.partials = deque(maxlen=shard.limits.partials_max)
    if len(detail.partials) == detail.partials.maxlen:
        shard.index.bytes -= chunk_bytes(detail.partials.popleft())
    chunk = Chunk(record.index, record.data, CODECS[record.codec])
    detail.partials.append(chunk)
    shard.index.bytes += chunk_bytes(chunk)
    detail.next_chunk = max(detail.next_chunk, record.index + 1)


APPLY: Appliers = {
    rec.Started: started,
    rec.Completed: completed,
    rec.Retrying: retrying,
    rec.JobDied: failed,
    rec.JobsReleased: released,
    rec.LeasesExtended: extended,
    rec.CancelRequested: cancel_requested,
    rec.Progressed: progressed,
    rec.Logged: logged,
    rec.PartialAdded: partial_added,
}
