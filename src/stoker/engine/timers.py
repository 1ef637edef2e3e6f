"""What happens when a deadline is reached: one handler a kind.

Each gets everything that was armed for one moment, drops what is stale, and decides in id order, so that the
outcome depends neither on batching nor on how often somebody looks.
"""

from collections.abc import Callable
from heapq import heappop
from typing import TYPE_CHECKING, Any

from stoker.engine import deadlines as kinds
from stoker.engine.dead import key_is_taken
from stoker.engine.ends import cancel_jobs, lowest
from stoker.engine.finishing import by_queue, fail_delivery
from stoker.engine.moves import PENDING, arm_age, arm_due, is_due_entry
from stoker.engine.retained import ended_at
from stoker.engine.state import ACTIVE, EXPIRED, FAILED, Batch, Job, Members, Part, Queue, Slice, Tenant
from stoker.model.states import Reason
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard import Shard


def on_due(shard: "Shard", at: int, queues: list[Queue]) -> None:
    for queue in dict.fromkeys(queues):
        if queue.delayed_armed != at or not is_current(queue):
            continue
        parts: list[Part] = []
        while queue.delayed and (queue.delayed[0][0] <= at or not is_due_entry(queue.delayed[0])):
            entry = heappop(queue.delayed)
            if not is_due_entry(entry):
                continue
            holder = entry[2]
            if type(holder) is Batch:
                parts += [Members(holder, start, stop) for start, stop in holder.waiting.runs()]
            elif holder not in parts:
                parts.append(holder)
        queue.delayed_armed = 0
        if not parts:
            arm_due(shard, queue)
            continue
        parts.sort(key=lowest)
        runs = [(part.lowest, part.jobs) for part in parts]
        shard.emit(rec.BecameDue(at, queue.tenant.name, queue.name, runs))


def on_ttl(shard: "Shard", at: int, holders: list[Job | Batch]) -> None:
    parts: list[Part] = []
    for holder in unique(holders):
        if type(holder) is Batch:
            parts += [Members(holder, start, stop) for start, stop in holder.waiting.runs()]
        elif type(holder) is Job and holder.state in PENDING:
            detail = holder.detail
            if detail is None or not (detail.attempts or detail.revived):
                parts.append(holder)
    parts.sort(key=lowest)
    for piece in (piece for part in parts for piece in up_to_dependents(shard, part)):
        if type(piece) is Members or piece.state in PENDING:  # a dependency may have ended it a moment ago
            cancel_jobs(shard, piece.queue, [piece], EXPIRED, Reason.TTL_EXPIRED, at)


def up_to_dependents(shard: "Shard", part: Part) -> list[Part]:
    """Pieces of it that end with a job for which others wait: their edges are settled before the next one ends."""
    if type(part) is Job or not shard.dependents:
        return [part]
    batch, start = part.batch, part.start
    ends = [part.start + part.ids.index(job_id) + 1 for job_id in part.ids if job_id in shard.dependents]
    pieces: list[Part] = []
    for stop in [*ends, part.stop]:
        if start < stop:
            pieces.append(Members(batch, start, stop))
            start = stop
    return pieces if batch.step > 0 else pieces[::-1]


def on_lease(shard: "Shard", at: int, holders: list[Job | Slice]) -> None:
    parts: list[Part] = []
    for holder in unique(holders):
        if type(holder) is Slice:
            if holder.span.left and holder.fires_at == at:
                parts += [Members(holder.batch, start, stop) for start, stop in holder.span.runs()]
        elif type(holder) is Job and holder.state == ACTIVE and holder.detail and holder.detail.fires_at == at:
            parts.append(holder)
        else:
            shard.deadlines.stale = max(0, shard.deadlines.stale - 1)
    parts.sort(key=lowest)
    for part in parts:
        lease = part.detail if type(part) is Job else part.slice
        assert lease is not None
        started_at, timeout_ms = lease.started_at, part.options.timeout_ms
        timed_out = timeout_ms and started_at + timeout_ms == at
        reason, error = (Reason.TIMEOUT, TIMED_OUT) if timed_out else (Reason.STALLED, STALLED)
        for job_id in sorted(part.ids):
            fail_delivery(shard, job_id, reason, at, error=error)


TIMED_OUT = "the delivery ran longer than its timeout_ms"
STALLED = "the lease ended: the worker neither settled the job nor renewed the lease"


def on_dead_retry(shard: "Shard", at: int, jobs: list[Job]) -> None:
    for job in sorted(unique(jobs), key=lambda job: job.id):
        if job.state != FAILED or job.detail is None or job.detail.next_retry_at != at:
            continue
        queue = job.queue
        if key_is_taken(queue, job):
            again = at + queue.dead_policy.auto_retry_interval_ms
            shard.emit(rec.RetryPostponed(at, queue.tenant.name, queue.name, job.id, again))
        else:
            shard.emit(rec.Revived(at, queue.tenant.name, queue.name, job.id, automatic=True))


def on_dead_age(shard: "Shard", at: int, jobs: list[Job]) -> None:
    over = [job for job in unique(jobs) if job.state == FAILED and job.detail and job.detail.expires_at == at]
    over.sort(key=lambda job: job.id)
    for queue, own in by_queue(over):
        ids = [part.lowest for part in own]
        shard.emit(rec.DeadRemoved(at, queue.tenant.name, queue.name, ids, "expired"))


def on_key(shard: "Shard", at: int, keys: list[tuple[Queue, str, str]]) -> None:
    over: dict[int, tuple[Queue, list[tuple[str, str]]]] = {}
    for queue, table, key in keys:
        held = getattr(queue, table).get(key)
        if held is not None and held.expires_at == at and is_current(queue):
            found = over.setdefault(id(queue), (queue, []))[1]
            if (table, key) not in found:
                found.append((table, key))
    for queue, forgotten in over.values():
        shard.emit(rec.KeysForgotten(at, queue.tenant.name, queue.name, sorted(forgotten)))


def on_age(shard: "Shard", at: int, lanes: list[tuple[Queue, tuple[int, int]]]) -> None:
    for queue, policy in lanes:
        retained = queue.retained
        if retained.armed.get(policy) != at or not is_current(queue):
            continue
        oldest = retained.oldest(policy)
        if oldest is not None and ended_at(oldest) + policy[0] <= at:
            shard.emit(rec.AgedOut(at, queue.tenant.name, queue.name, *policy))
            continue
        del retained.armed[policy]
        if oldest is not None:
            arm_age(shard, queue, policy, ended_at(oldest))
        else:
            retained.lanes.pop(policy, None)


def on_stage(shard: "Shard", at: int, stages: list[tuple[Tenant, str, str]]) -> None:
    for tenant, name, stage_name in stages:
        transaction = tenant.transactions.get(name)
        stage = transaction.stages.get(stage_name) if transaction else None
        if stage is not None and stage.expires_at == at:
            shard.emit(rec.StageExpired(at, tenant.name, name, stage_name))


def on_transaction(shard: "Shard", at: int, transactions: list[tuple[Tenant, str]]) -> None:
    for tenant, name in transactions:
        transaction = tenant.transactions.get(name)
        if transaction is not None and transaction.outcome is not None and transaction.expires_at == at:
            shard.emit(rec.TransactionForgotten(at, tenant.name, name))


def on_claim(shard: "Shard", at: int, claims: list[tuple[Tenant, str]]) -> None:
    for tenant, name in claims:
        claim = tenant.claims.get(name)
        if claim is not None and not claim.held and claim.expires_at == at:
            shard.emit(rec.ClaimForgotten(at, tenant.name, name))


def on_refill(shard: "Shard", at: int, queues: list[Queue]) -> None:
    """A rate limit has a token again: no fact, only a reason to look at those who wait."""
    for queue in queues:
        queue.refill_armed = 0
        shard.dirty.append(queue)


HANDLERS: tuple[Callable[["Shard", int, list[Any]], None], ...] = (
    on_due,
    on_ttl,
    on_lease,
    on_dead_retry,
    on_dead_age,
    on_key,
    on_age,
    on_stage,
    on_transaction,
    on_claim,
    on_refill,
)
"""By kind, in the order of the kinds in `deadlines.py`."""


def unique(holders: list[Any]) -> list[Any]:
    """Each holder once: a lease that was moved to and fro may be armed twice for one moment."""
    return list({id(holder): holder for holder in holders}.values())


def is_current(queue: Queue) -> bool:
    """False once the queue was obliterated: what was armed for it means nothing any more."""
    return queue.tenant.queues.get(queue.name) is queue


def is_armed(at: int, kind: int, holder: Any) -> bool:
    """Whether a lease entry still says the truth; the other kinds are few and looked at when they fire."""
    if kind != kinds.LEASE:
        return True
    if type(holder) is Slice:
        return holder.span.left > 0 and holder.fires_at == at
    return holder.state == ACTIVE and holder.detail is not None and holder.detail.fires_at == at
