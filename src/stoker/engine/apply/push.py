"""Apply records about new jobs: pushes, remembered requests, extended keys."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from stoker.engine import deadlines as kinds
from stoker.engine.apply.moves import arm_ttl, make_delayed, make_waiting
from stoker.engine.batch_positions import BatchPieces, PositionSpan
from stoker.engine.dependencies import OPEN, open_edges, standing
from stoker.engine.jobs import BLOCKED, BLOCKED_DUE, DELAYED, LIVE_BYTES, WAITING, Detail, SingleJob, UniformBatch
from stoker.engine.plain_options import is_plain
from stoker.engine.shard_state import ShardState
from stoker.engine.state import T_PUSHED, Appliers, KeyHolder, QueueState, RememberedRequest
from stoker.engine.workflow_state import blocking_step
from stoker.model.ids import SHARD_BITS, STEP
from stoker.model.options import Options
from stoker.model.replies import PushedBatch, Refusal
from stoker.records import records as rec
from stoker.records.stored import StoredRun, counted


def pushed(shard: ShardState, record: rec.JobsPushed) -> None:
    queue = shard.queue(record.tenant, record.queue)
    queue.known = True
    options, payloads = shard.intern(record.options), record.payloads
    jobs = len(payloads)
    queue.total(T_PUSHED, jobs)
    if jobs > 1 and shard.settings.batching and is_plain(options):
        shard.sequence = (record.first >> SHARD_BITS) + jobs - 1
        _add_batch(shard, queue, options, record)
        return
    job_id = record.first
    for payload in payloads:
        shard.sequence = job_id >> SHARD_BITS
        add_job(shard, queue, options, record, SingleJob(job_id, queue, options, payload, record.at, WAITING))
        job_id += STEP


def _add_batch(shard: ShardState, queue: QueueState, options: Options, record: rec.JobsPushed) -> None:
    given: Any = record.payloads  # a StoredRun if the journal left the payloads on disk
    jobs = len(given)
    sizes = counted(record.sizes, given)
    payloads: list[bytes | None] | StoredRun = given if type(given) is StoredRun else list(given)
    first, step = record.first, STEP
    if options.lifo:
        payloads = payloads.backwards() if type(payloads) is StoredRun else payloads[::-1]
        sizes = sizes if isinstance(sizes, int) else sizes[::-1]
        first, step = record.first + (jobs - 1) * STEP, -STEP
    batch = UniformBatch(
        first,
        step,
        jobs,
        queue,
        options,
        payloads,
        sizes,
        record.at,
        PositionSpan(0, jobs, jobs),
        BatchPieces(),
        BatchPieces(),
        left=jobs,
    )
    queue.counts[LIVE_BYTES] += shard.index.add_batch(batch)
    blocking = blocking_step(queue.tenant, options, record.first) if options.workflow is not None else None
    if blocking is not None:
        blocking.due, batch.due = record.due, BLOCKED_DUE
        queue.count(BLOCKED, jobs)
    elif record.due:
        queue.count(DELAYED, jobs)
        make_delayed(shard, batch, record.due)
    else:
        queue.count(WAITING, jobs)
        queue.ready.add_new(batch)
        if queue.waiters:
            shard.dirty.append(queue)
    arm_ttl(shard, batch)


def add_job(
    shard: ShardState, queue: QueueState, options: Options, record: rec.JobsPushed | rec.ScheduledPush, job: SingleJob
) -> None:
    shard.index.add(job)
    queue.counts[LIVE_BYTES] += len(job.payload)
    if options.depends_on:
        edges = open_edges(shard, queue.tenant, options.depends_on)
        if edges:
            job.state = BLOCKED
            job.detail = Detail(blockers=edges, due=record.due)
            for other in edges:
                if standing(shard, queue.tenant, other) == OPEN:  # failed edges are settled right after this record
                    shard.dependents.setdefault(other, {})[job.id] = None
    if options.workflow is not None:
        blocking = blocking_step(queue.tenant, options, job.id)
        if blocking is not None:
            blocking.due, job.state = record.due, BLOCKED
    if job.state == BLOCKED:
        queue.count(BLOCKED, 1)
    elif record.due:
        queue.count(DELAYED, 1)
        make_delayed(shard, job, record.due)
    else:
        queue.count(WAITING, 1)
        make_waiting(shard, job, fresh=True)
    if options.ttl_ms:
        arm_ttl(shard, job)
    if not is_plain(options):
        _take_keys(shard, queue, options, job.id, record.at)


def _take_keys(shard: ShardState, queue: QueueState, options: Options, job_id: int, at: int) -> None:
    if options.unique_key is not None:
        hold_unique_key(
            shard, queue, options.unique_key, job_id, at + options.unique_ttl_ms if options.unique_ttl_ms else 0
        )
    if options.custom_id is not None:
        queue.custom_ids[options.custom_id] = KeyHolder(job_id)
    if options.debounce_id is not None and options.debounce_ms:
        queue.debounces[options.debounce_id] = KeyHolder(job_id, at + options.debounce_ms)
        shard.deadlines.arm(at + options.debounce_ms, kinds.KEY, (queue, "debounces", options.debounce_id))


def hold_unique_key(shard: ShardState, queue: QueueState, key: str, job_id: int, expires_at: int) -> None:
    queue.unique_keys[key] = KeyHolder(job_id, expires_at)
    if expires_at:
        shard.deadlines.arm(expires_at, kinds.KEY, (queue, "unique_keys", key))


def request_remembered(shard: ShardState, record: rec.RequestRemembered) -> None:
    queue = shard.queue(record.tenant, record.queue)
    refused = {item: Refusal(code, message) for item, code, message in record.refused}
    pieces = [range(first, first + jobs * STEP, STEP) if first else (0,) * jobs for first, jobs in record.runs]
    ids: Sequence[int] = pieces[0] if len(pieces) == 1 else tuple(job_id for piece in pieces for job_id in piece)
    # read-only, because every client that repeats the request gets this same object
    reply = PushedBatch(ids, MappingProxyType(refused), MappingProxyType(dict(record.duplicates)))  # type: ignore[arg-type]
    queue.requests[record.key] = RememberedRequest(reply, record.expires_at)
    shard.deadlines.arm(record.expires_at, kinds.KEY, (queue, "requests", record.key))


def key_extended(shard: ShardState, record: rec.KeyExtended) -> None:
    queue = shard.queue(record.tenant, record.queue)
    hold_unique_key(shard, queue, record.key, queue.unique_keys[record.key].job, record.expires_at)


APPLY: Appliers = {
    rec.JobsPushed: pushed,
    rec.RequestRemembered: request_remembered,
    rec.KeyExtended: key_extended,
}
