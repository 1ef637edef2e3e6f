"""Decisions that end a job otherwise than well: cancelled, expired, dead."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stoker.engine.edges import settle
from stoker.engine.state import ACTIVE, CANCELLED, EXPIRED, FAILED, Batch, Job, Queue, Slice
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.states import Reason
from stoker.records import records as rec

if TYPE_CHECKING:
    from stoker.engine.shard import Shard

Part = Job | tuple[Batch, int, int]
"""A job of its own, or neighbouring positions of a batch."""


def labels_of(options: Options) -> rec.Labels | None:
    if options is DEFAULT_OPTIONS:
        return None
    labels = rec.Labels(options.priority, options.tags, options.group_id, options.trace, options.parent_id)
    return labels if labels != _NO_LABELS else None


_NO_LABELS = rec.Labels()


def run_of(part: Part) -> rec.Run:
    """How a record speaks of it."""
    if type(part) is Job:
        detail, options = part.detail, part.options
        size, labels = len(part.payload), None if options is DEFAULT_OPTIONS else labels_of(options)
        if detail is None:
            return rec.Run(part.id, 1, part.pushed_at, 0, 0, "", size, labels)
        if part.state != ACTIVE:
            return rec.Run(part.id, 1, part.pushed_at, detail.attempts, 0, "", size, labels)
        started_at, worker = detail.started_at, detail.worker
        return rec.Run(part.id, 1, part.pushed_at, detail.attempts, started_at, worker, size, labels)
    batch, start, stop = part
    run = slice_run(batch, start, stop, batch.slices.find(start))
    return run


def slice_run(batch: Batch, start: int, stop: int, piece: Slice | None) -> rec.Run:
    count = stop - start if batch.step > 0 else start - stop
    sizes, labels = batch.sizes_of(start, stop), labels_of(batch.options)
    if piece is None:
        return rec.Run(batch.id_at(start), count, batch.pushed_at, 0, 0, "", sizes, labels)
    return rec.Run(
        batch.id_at(start), count, batch.pushed_at, 1, piece.started_at, piece.worker, sizes, labels
    )


def first_id(part: Part) -> int:
    """The lowest id in it: what parts are sorted by."""
    if type(part) is Job:
        return part.id
    batch, start, stop = part
    return min(batch.id_at(start), batch.id_at(stop - 1))


def ids_of(part: Part) -> Iterable[int]:
    if type(part) is Job:
        return (part.id,)
    batch, start, stop = part
    return batch.ids(start, stop)


def cancel_jobs(
    shard: "Shard",
    queue: Queue,
    parts: Sequence[Part],
    state: int,
    reason: str,
    at: int,
    *,
    settle_edges: bool = True,
) -> None:
    """Jobs of one queue end as cancelled or expired, or as dead letters where the queue asks for it."""
    policy = queue.dead_policy
    if policy.take_cancelled if state == CANCELLED else policy.take_expired:
        dead_reason = Reason.CANCELLED if state == CANCELLED else Reason.TTL_EXPIRED
        for part in parts:
            for job_id in ids_of(part):
                fail_for_good(shard, job_id, dead_reason, at, settle_edges=settle_edges)
    elif parts:
        runs = [run_of(part) for part in parts]
        shard.emit(rec.Ended(at, queue.tenant.name, queue.name, state, reason, runs))
        if settle_edges:
            settle(shard, at)


def fail_for_good(
    shard: "Shard",
    job: Job | int,
    reason: str,
    at: int,
    *,
    error: str = "",
    error_class: str = "",
    stack: str = "",
    delivery: str = "",
    settle_edges: bool = True,
) -> None:
    """One job will not be tried again. Room among the dead letters is made first, with an event."""
    part, queue = shard.part(job) if type(job) is int else (job, job.queue)  # type: ignore[union-attr]
    tenant = queue.tenant.name
    options = part.options if type(part) is Job else part[0].options
    if not options.remove_on_fail:
        surplus = len(queue.dead) + 1 - queue.dead_policy.entries_max
        if surplus > 0:
            oldest = [dead_id for dead_id, _ in zip(queue.dead, range(surplus), strict=False)]
            shard.emit(rec.DeadRemoved(at, tenant, queue.name, oldest, "evicted"))
    shard.emit(rec.Failed(at, tenant, queue.name, run_of(part), reason, error, error_class, stack, delivery))
    if settle_edges:
        settle(shard, at)


def outcome_state(queue: Queue, state: int) -> int:
    """The state that a cancelled or expired job ends in."""
    policy = queue.dead_policy
    if state == CANCELLED and policy.take_cancelled:
        return FAILED
    if state == EXPIRED and policy.take_expired:
        return FAILED
    return state
