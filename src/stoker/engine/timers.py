"""What happens when a deadline is reached: one handler for each kind.

A handler gets everything that was armed for one moment, without stale entries, and decides in id order. So the outcome
does not depend on batching, or on how often deadlines are processed.
"""

from collections.abc import Callable, Iterable
from heapq import heappop
from itertools import groupby
from operator import attrgetter
from typing import Any

from stoker.engine import bulk, workflows
from stoker.engine.apply.moves import PENDING, arm_age, arm_due, is_due_entry
from stoker.engine.dead_letters import emit_revived, key_is_taken
from stoker.engine.dependencies import settle, settle_one
from stoker.engine.ending import cancel_jobs, lowest
from stoker.engine.jobs import ACTIVE, EXPIRED, FAILED, Members, Part, SingleJob, Slice, UniformBatch
from stoker.engine.retained_jobs import ended_at
from stoker.engine.schedules import holds as schedule_holds
from stoker.engine.schedules import on_backlog, on_slot
from stoker.engine.settling import fail_delivery
from stoker.engine.shard_state import ShardState
from stoker.engine.slot_pacing import SlotBacklog
from stoker.engine.state import QueueState, Tenant
from stoker.engine.workflow_state import ShardWorkflow
from stoker.model.reasons import Reason
from stoker.records import records as rec


def fire(shard: ShardState, at: int, kind: int, holders: list[Any]) -> None:
    """Handle everything that was armed for one moment and is not stale."""
    HANDLERS[kind](shard, at, [holder for holder in unique(holders) if HOLDS[kind](at, holder)])
    if shard.moved_steps:
        settle(shard, at)


def on_due(shard: ShardState, at: int, queues: list[QueueState]) -> None:
    parts: list[Part] = []
    for queue in queues:
        for holder in take_due(queue, at):
            if type(holder) is UniformBatch:
                parts += [Members(holder, start, stop) for start, stop in holder.waiting.runs()]
            else:
                parts.append(holder)
        queue.delayed_armed = 0
        arm_due(shard, queue)
    parts.sort(key=lowest)
    for queue, own in groupby(parts, attrgetter("queue")):
        runs = [(part.lowest, part.jobs) for part in own]
        shard.emit(rec.BecameDue(at, queue.tenant.name, queue.name, runs))


def take_due(queue: QueueState, at: int) -> Iterable[SingleJob | UniformBatch]:
    """Take out the entries that are due by `at`, each once."""
    due: dict[SingleJob | UniformBatch, None] = {}
    while queue.delayed and (queue.delayed[0][0] <= at or not is_due_entry(queue.delayed[0])):
        entry = heappop(queue.delayed)
        if is_due_entry(entry):
            due[entry[2]] = None
    return due


def on_ttl(shard: ShardState, at: int, holders: list[SingleJob | UniformBatch]) -> None:
    parts: list[Part] = []
    for holder in holders:
        if type(holder) is UniformBatch:
            parts += [Members(holder, start, stop) for start, stop in holder.waiting.runs()]
        else:
            parts.append(holder)
    parts.sort(key=lowest)
    for piece in (piece for part in parts for piece in up_to_dependents(shard, part)):
        if type(piece) is Members or piece.state in PENDING:  # a dependency may have ended it a moment ago
            cancel_jobs(shard, piece.queue, [piece], EXPIRED, Reason.TTL_EXPIRED, at)


def up_to_dependents(shard: ShardState, part: Part) -> list[Part]:
    """Pieces of it that each end with a job that others wait for, so that its edges are settled before the next job
    ends.
    """
    if type(part) is SingleJob or not shard.dependents:
        return [part]
    batch, start = part.batch, part.start
    ends = [part.start + place + 1 for place, job_id in enumerate(part.ids) if job_id in shard.dependents]
    pieces: list[Part] = []
    for stop in [*ends, part.stop]:
        if start < stop:
            pieces.append(Members(batch, start, stop))
            start = stop
    return pieces if batch.step > 0 else pieces[::-1]


def on_lease(shard: ShardState, at: int, holders: list[SingleJob | Slice]) -> None:
    parts: list[Part] = []
    for holder in holders:
        if type(holder) is Slice:
            parts += [Members(holder.batch, start, stop) for start, stop in holder.span.runs()]
        else:
            parts.append(holder)
    parts.sort(key=lowest)
    for part in parts:
        lease = part.detail if type(part) is SingleJob else part.slice
        assert lease is not None
        timeout_ms = part.options.timeout_ms
        timed_out = timeout_ms and lease.started_at + timeout_ms == at
        reason, error = (Reason.TIMEOUT, TIMED_OUT) if timed_out else (Reason.STALLED, STALLED)
        for job_id in sorted(part.ids):
            fail_delivery(shard, job_id, reason, at, error=error)


TIMED_OUT = "the delivery ran longer than its timeout_ms"
STALLED = "the lease ended: the worker neither settled the job nor renewed the lease"


POSTPONED_MS_MIN = 1_000
"""A key may be taken for a long time, and each postponed retry is a record in the journal."""


def on_dead_retry(shard: ShardState, at: int, jobs: list[SingleJob]) -> None:
    for job in sorted(jobs, key=lowest):
        queue = job.queue
        if key_is_taken(shard, job, at - 1):  # a key that expires at this very moment is still held
            again = at + max(queue.dead_policy.auto_retry_interval_ms, POSTPONED_MS_MIN)
            shard.emit(rec.RetryPostponed(at, queue.tenant.name, queue.name, job.id, again))
        else:
            emit_revived(shard, job, at, automatic=True)


def on_dead_age(shard: ShardState, at: int, jobs: list[SingleJob]) -> None:
    for queue, own in groupby(sorted(jobs, key=lowest), attrgetter("queue")):
        ids = [part.lowest for part in own]
        shard.emit(rec.DeadRemoved(at, queue.tenant.name, queue.name, ids, "expired"))


def on_key(shard: ShardState, at: int, keys: list[tuple[QueueState, str, str]]) -> None:
    over: dict[QueueState, set[tuple[str, str]]] = {}
    for queue, table, key in keys:
        over.setdefault(queue, set()).add((table, key))
    for queue, forgotten in over.items():
        shard.emit(rec.KeysForgotten(at, queue.tenant.name, queue.name, sorted(forgotten)))


def on_age(shard: ShardState, at: int, lanes: list[tuple[QueueState, tuple[int, int]]]) -> None:
    for queue, policy in dict.fromkeys(lanes):
        retained = queue.retained
        oldest = retained.oldest(policy)
        if oldest is not None and ended_at(oldest) + policy[0] <= at:
            shard.emit(rec.AgedOut(at, queue.tenant.name, queue.name, *policy))
            continue
        del retained.armed[policy]
        if oldest is not None:
            arm_age(shard, queue, policy, ended_at(oldest))
        else:
            retained.lanes.pop(policy, None)


def on_stage(shard: ShardState, at: int, stages: list[tuple[Tenant, str, str]]) -> None:
    for tenant, name, stage_name in dict.fromkeys(stages):
        shard.emit(rec.StageExpired(at, tenant.name, name, stage_name))


def on_transaction(shard: ShardState, at: int, transactions: list[tuple[Tenant, str]]) -> None:
    for tenant, name in dict.fromkeys(transactions):
        shard.emit(rec.TransactionForgotten(at, tenant.name, name))


def on_claim(shard: ShardState, at: int, claims: list[tuple[Tenant, str]]) -> None:
    for tenant, name in dict.fromkeys(claims):
        shard.emit(rec.ClaimForgotten(at, tenant.name, name))


def on_refill(shard: ShardState, at: int, queues: list[QueueState]) -> None:
    """A rate limit has a token again. This is not a fact to record, only a reason to serve waiting pulls."""
    for queue in queues:
        queue.refill_armed = 0
        shard.dirty.append(queue)


def on_kv(shard: ShardState, at: int, entries: list[tuple[Tenant, str]]) -> None:
    over: dict[Tenant, set[str]] = {}
    for tenant, key in entries:
        over.setdefault(tenant, set()).add(key)
    for tenant, keys in over.items():
        shard.emit(rec.KvRemoved(at, tenant.name, sorted(keys), expired=True))


def on_edges(shard: ShardState, at: int, ended: list[tuple[int, int]]) -> None:
    """Settle more edges of a job that has ended."""
    for job_id, state in dict.fromkeys(ended):
        settle_one(shard, job_id, state, at)
    settle(shard, at)


def on_flow(shard: ShardState, at: int, steps: list[tuple[ShardWorkflow, int]]) -> None:
    for flow, number in dict.fromkeys(steps):
        workflows.on_time(shard, flow, number, at)
    settle(shard, at)


HANDLERS: tuple[Callable[[ShardState, int, list[Any]], None], ...] = (
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
    on_kv,
    on_edges,
    on_flow,
    on_slot,
    on_backlog,
    on_refill,
    bulk.on_bulk,
)
"""By kind, in the order of the kinds in `deadlines.py`."""


def unique(holders: list[Any]) -> list[Any]:
    """Each holder once: a lease that was moved back and forth may be armed twice for one moment."""
    return list({id(holder): holder for holder in holders}.values())


# --- whether a deadline is still valid ---------------------------------------------------------------


def is_current(queue: QueueState) -> bool:
    """False if the queue was obliterated: then its deadlines are stale."""
    return queue.tenant.queues.get(queue.name) is queue


def due_holds(at: int, queue: QueueState) -> bool:
    return queue.delayed_armed == at and is_current(queue)


def ttl_holds(at: int, holder: SingleJob | UniformBatch) -> bool:
    """Not for a delivered job: if it is released without a counted attempt, its ttl is armed again."""
    if type(holder) is UniformBatch:
        return holder.waiting.left > 0
    detail = holder.detail
    return holder.state in PENDING and (detail is None or not (detail.attempts or detail.revived))


def lease_holds(at: int, holder: SingleJob | Slice) -> bool:
    if type(holder) is Slice:
        return holder.span.left > 0 and holder.fires_at == at
    return holder.state == ACTIVE and holder.details().fires_at == at


def dead_retry_holds(at: int, job: SingleJob) -> bool:
    return job.state == FAILED and job.details().next_retry_at == at


def dead_age_holds(at: int, job: SingleJob) -> bool:
    return job.state == FAILED and job.details().expires_at == at


def key_holds(at: int, place: tuple[QueueState, str, str]) -> bool:
    queue, table, key = place
    held = getattr(queue, table).get(key)
    return held is not None and held.expires_at == at and is_current(queue)


def age_holds(at: int, lane: tuple[QueueState, tuple[int, int]]) -> bool:
    queue, policy = lane
    return queue.retained.armed.get(policy) == at and is_current(queue)


def stage_holds(at: int, place: tuple[Tenant, str, str]) -> bool:
    tenant, name, stage_name = place
    transaction = tenant.transactions.get(name)
    stage = transaction.stages.get(stage_name) if transaction else None
    return stage is not None and stage.expires_at == at


def transaction_holds(at: int, place: tuple[Tenant, str]) -> bool:
    tenant, name = place
    transaction = tenant.transactions.get(name)
    return transaction is not None and transaction.outcome is not None and transaction.expires_at == at


def claim_holds(at: int, place: tuple[Tenant, str]) -> bool:
    tenant, name = place
    claim = tenant.claims.get(name)
    return claim is not None and not claim.held and claim.expires_at == at


def refill_holds(at: int, queue: QueueState) -> bool:
    return queue.refill_armed == at and is_current(queue)


def kv_holds(at: int, place: tuple[Tenant, str]) -> bool:
    tenant, key = place
    entry = tenant.kv.get(key)
    return entry is not None and entry.expires_at == at


def slots_hold(at: int, backlog: SlotBacklog) -> bool:
    return backlog.holds(at)


def edges_hold(at: int, ended: tuple[int, int]) -> bool:
    return True


def flow_holds(at: int, place: tuple[ShardWorkflow, int]) -> bool:
    return workflows.is_expected(at, *place)


HOLDS: tuple[Callable[[int, Any], bool], ...] = (
    due_holds,
    ttl_holds,
    lease_holds,
    dead_retry_holds,
    dead_age_holds,
    key_holds,
    age_holds,
    stage_holds,
    transaction_holds,
    claim_holds,
    kv_holds,
    edges_hold,
    flow_holds,
    schedule_holds,
    slots_hold,
    refill_holds,
    bulk.holds,
)
"""By kind, in the order of the kinds in `deadlines.py`."""


def is_armed(at: int, kind: int, holder: Any) -> bool:
    return HOLDS[kind](at, holder)
