"""Decisions that end a job as cancelled, expired or dead."""

from collections.abc import Sequence

from stoker.engine.dependencies import settle
from stoker.engine.jobs import ACTIVE, CANCELLED, EXPIRED, FAILED, Members, Part, SingleJob
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.reasons import Reason
from stoker.records import records as rec

LABELS_MAX = 1024
"""Labels kept for later records. When there are more, the cache is cleared."""

_labels: dict[int, tuple[Options, rec.Labels | None]] = {}
"""By the `id()` of the options, which are kept too so that the id stays valid. Many jobs share one value."""


def labels_of(options: Options) -> rec.Labels | None:
    if options is DEFAULT_OPTIONS:
        return None
    found = _labels.get(id(options))
    if found is None:
        if len(_labels) >= LABELS_MAX:
            _labels.clear()
        found = _labels[id(options)] = options, _labels_of(options)
    return found[1]


def _labels_of(options: Options) -> rec.Labels | None:
    labels = rec.Labels(
        options.priority,
        options.tags,
        options.group_id,
        options.trace,
        options.parent_id,
        options.name,
        options.workflow,
        options.schedule,
        options.slot,
    )
    return None if labels == NO_LABELS else labels


NO_LABELS = rec.Labels()


def run_of(part: Part) -> rec.JobRun:
    """The run that describes these jobs in a record."""
    if type(part) is SingleJob:
        detail, options = part.detail, part.options
        size, labels = len(part.payload), None if options is DEFAULT_OPTIONS else labels_of(options)
        if detail is None:
            return rec.JobRun(part.id, 1, part.pushed_at, 0, 0, "", size, labels, part.pushed_at)
        ready_at = detail.ready_at or part.pushed_at
        if part.state != ACTIVE:
            return rec.JobRun(part.id, 1, part.pushed_at, detail.attempts, 0, "", size, labels, ready_at)
        started_at, worker = detail.started_at, detail.worker
        return rec.JobRun(part.id, 1, part.pushed_at, detail.attempts, started_at, worker, size, labels, ready_at)
    batch, start, piece = part.batch, part.start, part.slice
    count = part.jobs if batch.step > 0 else -part.jobs
    first, pushed_at, ready_at = batch.id_at(start), batch.pushed_at, batch.ready_at or batch.pushed_at
    sizes, labels = batch.sizes_of(start, part.stop), labels_of(batch.options)
    if piece is None:
        return rec.JobRun(first, count, pushed_at, 0, 0, "", sizes, labels, ready_at)
    return rec.JobRun(first, count, pushed_at, 1, piece.started_at, piece.worker, sizes, labels, ready_at)


def lowest(part: Part) -> int:
    """The sort key of parts."""
    return part.lowest


def in_id_order(part: Part) -> list[Part]:
    """Pieces of it whose job ids ascend. A lifo batch is split into single jobs, since its ids descend."""
    if type(part) is SingleJob or part.batch.step > 0:
        return [part]
    return [Members(part.batch, position, position + 1) for position in range(part.stop - 1, part.start - 1, -1)]


def cancel_jobs(
    shard: ShardState,
    queue: QueueState,
    parts: Sequence[Part],
    state: int,
    reason: str,
    at: int,
    *,
    error: str = "",
    error_class: str = "",
    settle_edges: bool = True,
) -> None:
    """End jobs of one queue as cancelled or expired, or as dead letters if the queue's policy says so.

    `error` is that of a worker which failed the delivery of a job that was to be cancelled.
    """
    policy = queue.dead_policy
    if policy.take_cancelled if state == CANCELLED else policy.take_expired:
        dead_reason = Reason.CANCELLED if state == CANCELLED else Reason.TTL_EXPIRED
        for part in parts:
            for job_id in sorted(part.ids):
                fail_for_good(shard, job_id, dead_reason, at, error=error, error_class=error_class, settle_edges=False)
    elif parts:
        runs = [run_of(piece) for part in parts for piece in in_id_order(part)]
        shard.emit(rec.JobsEnded(at, queue.tenant.name, queue.name, state, reason, runs, error, error_class))
    if settle_edges:
        settle(shard, at)


def make_room(shard: ShardState, queue: QueueState, jobs: int, at: int) -> None:
    """Evict the oldest dead letters, so that `jobs` new ones fit. Call it once for many jobs: finding the oldest ones
    steps over all removed ones.
    """
    surplus = min(len(queue.dead), len(queue.dead) + jobs - queue.dead_policy.entries_max)
    if surplus > 0:
        oldest = [dead_id for dead_id, _ in zip(queue.dead, range(surplus), strict=False)]
        shard.emit(rec.DeadRemoved(at, queue.tenant.name, queue.name, oldest, "evicted"))


def fail_for_good(
    shard: ShardState,
    job: SingleJob | int,
    reason: str,
    at: int,
    *,
    error: str = "",
    error_class: str = "",
    stack: str = "",
    delivery: str = "",
    settle_edges: bool = True,
) -> None:
    """Make a job a dead letter. Older dead letters are evicted first if there is no room."""
    part = shard.part(job) if isinstance(job, int) else job
    queue = part.queue
    tenant = queue.tenant.name
    removed = part.options.remove_on_fail
    if not removed:
        make_room(shard, queue, 1, at)
    shard.emit(rec.JobDied(at, tenant, queue.name, run_of(part), reason, error, error_class, stack, delivery, removed))
    if settle_edges:
        settle(shard, at)


def outcome_state(queue: QueueState, state: int) -> int:
    """The state in which a cancelled or expired job ends."""
    policy = queue.dead_policy
    if state == CANCELLED and policy.take_cancelled:
        return FAILED
    if state == EXPIRED and policy.take_expired:
        return FAILED
    return state
