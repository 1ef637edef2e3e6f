"""Short paths for the most common commands: push, pull and ack of one job with simple options.

Each does what deciding and applying do in general (`pushing.py`, `pulling.py`, `settling.py`, `engine/apply/`), without
the steps that cannot matter for such a job, and in one function. That makes a full cycle three times as fast
(`benchmarks/`, *one job at a time*). Each returns None if the case is not that simple. The records are the same, and a
replay takes the general path, so every test that compares a replay with the live state compares the two paths. When you
change a rule there, change it here, too.
"""

from heapq import heappush
from typing import Any

from stoker.engine.deadlines import LEASE, SWEEP_MASK
from stoker.engine.dependencies import settle
from stoker.engine.ending import labels_of
from stoker.engine.jobs import ACTIVE, COMPLETED, LIVE_BYTES, WAITING, Detail, SingleJob
from stoker.engine.shard_state import ShardState
from stoker.engine.state import T_COMPLETED, T_PUSHED, T_RUN_MS, T_STARTED, T_WAIT_MS, QueueState
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.histograms import note
from stoker.model.ids import SHARD_BITS
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.states import State
from stoker.records import records as rec


def push(shard: ShardState, queue: QueueState, payload: bytes, options: Options, now: int) -> r.Pushed:
    """Push one job to an existing queue."""
    sequence = shard.sequence + 1
    job_id = sequence << SHARD_BITS | shard.number
    size = len(payload)
    shard.records.append(rec.JobsPushed(now, queue.tenant.name, queue.name, job_id, (payload,), options, 0, size))
    shard.sequence = sequence
    job = SingleJob(job_id, queue, options, payload, now, WAITING)
    shard.index.add(job)
    counts = queue.counts
    counts[WAITING] += 1
    counts[LIVE_BYTES] += size
    queue.totals[T_PUSHED] += 1
    if not queue.touched:
        queue.touch()
    queue.ready.add_new(job)
    if queue.waiters:
        shard.dirty.append(queue)
    return r.Pushed(job_id, True, None, shard.level)


def pull(shard: ShardState, queue: QueueState, command: c.Pull, now: int) -> r.Delivery | None:
    """Pull one job, if the first job of a queue without limits has simple options and was never delivered."""
    level = queue.ready.first_level()
    if level is None:
        return None
    job = level.line[0]
    if type(job) is not SingleJob or job.state != WAITING or job.detail is not None:
        return None
    options = job.options
    if id(options) not in shard.simple or options.priority != -level.key[0]:
        return None
    job_id, pushed_at, worker = job.id, job.pushed_at, command.worker
    payload: Any = job.payload  # a stored payload is read when the reply leaves: runtime/payload_loading.py
    lease_ms = options.lease_ms if command.lease_ms is None else command.lease_ms
    until = now + lease_ms
    token = shard.token + 1
    labels = None if options is DEFAULT_OPTIONS else labels_of(options)
    run = rec.JobRun(job_id, 1, pushed_at, 0, 0, "", len(payload), labels, pushed_at)
    shard.records.append(rec.Started(now, queue.tenant.name, queue.name, token, worker, command.lease_ms, None, (run,)))
    shard.token = token
    job.detail = Detail(1, 0, 0, token, worker, None, now, lease_ms, until, until)
    job.state = ACTIVE
    level.line.popleft()
    queue.ready.size -= 1
    deadlines = shard.deadlines
    deadlines.number = number = deadlines.number + 1
    heappush(deadlines.heap, (until, LEASE, number, job))
    if until < deadlines.earliest:
        deadlines.earliest = until
    if not number & SWEEP_MASK and len(deadlines.heap) > deadlines.most:
        deadlines.earliest = 0
    counts = queue.counts
    counts[WAITING] -= 1
    counts[ACTIVE] += 1
    queue.totals[T_STARTED] += 1
    if now == pushed_at:
        queue.wait[0] += 1
    else:
        note(queue.wait, now - pushed_at)
    if not queue.touched:
        queue.touch()
    return r.Delivery(token, (r.Run(queue.name, (job_id,), [payload], options, 1, pushed_at, until),))


def ack(shard: ShardState, tenant: str, job_id: int, tokens: c.Tokens, now: int) -> r.Settled | None:
    """Ack one active job with simple options and the default retention, without a claim and without a result."""
    job = shard.index.get(job_id)
    if job is None or job.state != ACTIVE or id(job.options) not in shard.simple:
        return None
    detail, queue, policy, options = job.detail, job.queue, shard.default_retention, job.options
    assert detail is not None
    if tokens is not None and (type(tokens) is not int or tokens != detail.token):
        return None
    if detail.claim is not None or queue.tenant.name != tenant or policy not in queue.retained.armed:
        return None
    pushed_at, started_at = job.pushed_at, detail.started_at
    labels = None if options is DEFAULT_OPTIONS else labels_of(options)
    size, ready_at = len(job.payload), detail.ready_at or pushed_at
    run = rec.JobRun(job_id, 1, pushed_at, detail.attempts, started_at, detail.worker, size, labels, ready_at)
    shard.records.append(rec.Completed(now, tenant, queue.name, (run,)))
    counts, totals = queue.counts, queue.totals
    counts[ACTIVE] -= 1
    counts[COMPLETED] += 1
    counts[LIVE_BYTES] -= size
    totals[T_COMPLETED] += 1
    totals[T_WAIT_MS] += started_at - pushed_at
    totals[T_RUN_MS] += now - started_at
    if now == started_at:
        queue.run[0] += 1
    else:
        note(queue.run, now - started_at)
    if queue.second != now // 1000:
        queue.roll(now // 1000)
    queue.second_jobs += 1
    if not queue.touched:
        queue.touch()
    queue.worker_seen_at = now
    detail.token = detail.fires_at = 0
    detail.ended_at = now
    if detail.error or detail.error_class or detail.stack:
        shard.index.bytes -= len(detail.error) + len(detail.stack)
        detail.error = detail.error_class = detail.stack = ""
    job.state = COMPLETED
    if queue.waiters:
        shard.dirty.append(queue)
    queue.retained.add_job(job, detail, policy)
    if shard.job_waiters and job_id in shard.job_waiters:
        shard.ended_waits.append(r.Ended(job_id, State.COMPLETED, True))
    if shard.dependents and job_id in shard.dependents:
        shard.settling.append((job_id, COMPLETED))
        settle(shard, now)
    return ONE_SETTLED[shard.level]


ONE_SETTLED: dict[str, r.Settled] = {level: r.Settled(1, level=level) for level in r.LEVELS}
