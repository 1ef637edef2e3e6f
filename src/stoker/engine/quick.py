"""Shorter ways for the most common jobs: one at a time, without any options.

They do exactly what the general functions in `apply_*.py` and `moves.py` do for such a job, with everything that
cannot concern it left out and the calls folded into one. A full cycle of push, pull and ack costs half as much
(`benchmarks/`). The model tests run both ways against the same reference; whoever changes a rule changes it there
and looks here.
"""

from heapq import heappush
from typing import TYPE_CHECKING

from stoker.engine import deadlines as kinds
from stoker.engine.edges import settle
from stoker.engine.state import (
    ACTIVE,
    COMPLETED,
    T_COMPLETED,
    T_PUSHED,
    T_RUN_MS,
    T_STARTED,
    T_WAIT_MS,
    WAITING,
    Detail,
    Job,
    Queue,
)
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import SHARD_BITS
from stoker.model.options import DEFAULT_OPTIONS
from stoker.model.states import State
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard import Shard


def add_job(shard: "Shard", queue: Queue, record: rec.Pushed) -> None:
    """A pushed job waits."""
    job_id = record.first
    shard.sequence = job_id >> SHARD_BITS
    job = Job(job_id, queue, DEFAULT_OPTIONS, record.payloads[0], record.at, WAITING)
    shard.index.add(job)
    queue.counts[WAITING] += 1
    queue.totals[T_PUSHED] += 1
    if not queue.touched:
        queue.touch()
    queue.ready.add_default(job)
    if queue.waiters:
        shard.dirty.append(queue)


def pull_job(shard: "Shard", queue: Queue, command: c.Pull, now: int) -> r.Delivery | None:
    """Pull one job, if the front of an unlimited queue is a job without options that was never delivered."""
    if not queue.is_free:
        return None
    line = queue.ready.default_line()
    if not line:
        return None
    job = line[0]
    if type(job) is not Job or job.options is not DEFAULT_OPTIONS or job.state != WAITING or job.detail is not None:
        return None
    tenant, name, payload = queue.tenant.name, queue.name, job.payload
    shard.token = token = shard.token + 1
    run = rec.Run(job.id, 1, job.pushed_at, 0, 0, "", len(payload))
    record = rec.Started(now, tenant, name, token, command.worker, command.lease_ms, None, [run])
    shard.records.append(record)
    start_job(shard, job, record)
    line.popleft()
    queue.ready.size -= 1
    counts = queue.counts
    counts[WAITING] -= 1
    counts[ACTIVE] += 1
    queue.totals[T_STARTED] += 1
    if not queue.touched:
        queue.touch()
    delivered = r.Run(name, (job.id,), (payload,), DEFAULT_OPTIONS, 1, job.pushed_at, job.detail.lease_until)  # type: ignore[attr-defined]
    return r.Delivery(token, (delivered,))


def start_job(shard: "Shard", job: Job, record: rec.Started) -> None:
    """A job that was never delivered becomes active."""
    at = record.at
    lease_ms = DEFAULT_OPTIONS.lease_ms if record.lease_ms is None else record.lease_ms
    fires_at = at + lease_ms
    job.detail = Detail(1, 0, 0, record.token, record.worker, record.claim, at, lease_ms, fires_at, fires_at)
    job.state = ACTIVE
    deadlines = shard.deadlines
    deadlines.number = number = deadlines.number + 1
    heappush(deadlines.heap, (fires_at, kinds.LEASE, number, job))


def ack_job(shard: "Shard", tenant: str, command: c.Ack, now: int) -> r.Settled | None:
    """Acknowledge one job, if its end is the simplest there is."""
    job = shard.index.get(command.ids[0])
    if job is None or job.state != ACTIVE or not is_quick(shard, job):
        return None
    detail, queue, tokens = job.detail, job.queue, command.tokens
    assert detail is not None
    if tokens is not None and (type(tokens) is not int or tokens != detail.token):
        return None
    if queue.tenant.name != tenant:
        return None
    run = rec.Run(job.id, 1, job.pushed_at, detail.attempts, detail.started_at, detail.worker, len(job.payload))
    shard.records.append(rec.Completed(now, tenant, queue.name, [run]))
    complete_job(shard, queue, job, run, now, None)
    if shard.settling:
        settle(shard, now)
    return ONE_SETTLED


ONE_SETTLED = r.Settled(1)


def is_quick(shard: "Shard", job: Job) -> bool:
    """Whether the end of this delivery is the simplest there is: no options, no claim, retained as by default."""
    return (
        job.options is DEFAULT_OPTIONS
        and job.detail.claim is None  # type: ignore[union-attr]
        and shard.default_retention in job.queue.retained.armed
    )


def complete_job(shard: "Shard", queue: Queue, job: Job, run: rec.Run, at: int, result: bytes | None) -> None:
    """An active job without a claim ends well and is retained."""
    counts, totals = queue.counts, queue.totals
    counts[ACTIVE] -= 1
    counts[COMPLETED] += 1
    started_at = run.started_at
    totals[T_COMPLETED] += 1
    totals[T_WAIT_MS] += started_at - run.pushed_at
    totals[T_RUN_MS] += at - started_at
    if queue.second != at // 1000:
        queue.roll(at // 1000)
    queue.second_jobs += 1
    if not queue.touched:
        queue.touch()
    detail, retained = job.details(), queue.retained
    detail.token = detail.fires_at = 0
    detail.ended_at = at
    if detail.error or detail.stack:
        detail.error = detail.stack = ""
    if result is not None:
        detail.result = result
    job.state = COMPLETED
    if shard.dependents and job.id in shard.dependents:
        shard.settling.append((job.id, COMPLETED))
    if shard.job_waiters and job.id in shard.job_waiters:
        shard.ended_waits.append(r.Ended(job.id, State.COMPLETED, True, detail.result))
    shard.disarmed()
    if queue.waiters:
        shard.dirty.append(queue)
    retained.add_job(job, detail, shard.default_retention)  # type: ignore[arg-type]
