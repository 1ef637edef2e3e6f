"""Apply records about queues, dead letters, retention and keys."""

from stoker.engine import deadlines as kinds
from stoker.engine.apply.moves import arm_age, cut_ended, forget, make_waiting, own_job
from stoker.engine.apply.push import hold_unique_key
from stoker.engine.apply.schedules import let_go_all
from stoker.engine.jobs import BLOCKED, FAILED, GONE, LIVE_BYTES, WAITING, EndedRun
from stoker.engine.shard_state import ShardState
from stoker.engine.state import T_EVICTED, Appliers, KeyHolder
from stoker.engine.token_bucket import TokenBucket
from stoker.engine.workflow_state import keep_job, let_go_of_queue, note_revived
from stoker.model.ids import SHARD_BITS
from stoker.records import records as rec


def queue_configured(shard: ShardState, record: rec.QueueConfigured) -> None:
    queue = shard.queue(record.tenant, record.queue)
    queue.known = True
    queue.paused = record.paused
    queue.concurrency = record.concurrency
    queue.group_on_retry = record.group_on_retry
    queue.dead_policy = record.dead_letters
    queue.durability = record.durability
    if record.durability is None:
        shard.queue_levels.pop((record.tenant, record.queue), None)
    else:
        shard.queue_levels[record.tenant, record.queue] = record.durability
    if record.rate_limit is None:
        queue.bucket = None
    elif record.refill or queue.bucket is None:
        queue.bucket = TokenBucket.full(record.rate_limit, record.at)
    queue.is_free = not record.paused and record.rate_limit is None and not record.concurrency
    if queue.waiters:
        shard.dirty.append(queue)


def queue_obliterated(shard: ShardState, record: rec.QueueObliterated) -> None:
    """Forget the rest of a queue. A record before this one cancelled its live jobs."""
    queue = shard.queue(record.tenant, record.queue)
    let_go_of_queue(shard, queue.tenant, queue.name)
    for ended in list(queue.retained.entries()):
        forget(shard, ended, ended.stop - ended.start if type(ended) is EndedRun else 1)
    for job in queue.dead.values():
        queue.count(FAILED, -1)
        shard.index.remove(job.id)
        job.state = GONE
    let_go_all(shard, queue)
    if queue.touched:
        shard.touched.remove(queue)
        queue.add_up()
    waiters = queue.waiters
    shard.queue_levels.pop((record.tenant, record.queue), None)
    del queue.tenant.queues[queue.name]
    if waiters:
        shard.queue(record.tenant, record.queue).waiters = waiters


def revived(shard: ShardState, record: rec.Revived) -> None:
    job = own_job(shard, record.job)
    queue, detail, options = job.queue, job.details(), job.options
    del queue.dead[job.id]
    queue.dead_groups.remove(job.id)
    detail.attempts = detail.crashes = 0
    detail.cancel = False
    detail.ended_at = detail.expires_at = detail.next_retry_at = detail.due = 0
    detail.started_at = detail.lease_until = 0
    detail.worker = detail.reason = ""
    detail.ready_at = record.at
    detail.revived = True
    if record.automatic:
        detail.retry_count += 1
    queue.tenant.ended_badly.remove(job.id >> SHARD_BITS)
    if options.unique_key is not None:
        expires_at = record.at + options.unique_ttl_ms if options.unique_ttl_ms else 0
        hold_unique_key(shard, queue, options.unique_key, job.id, expires_at)
    if options.custom_id is not None:
        queue.custom_ids[options.custom_id] = KeyHolder(job.id)
    queue.count(LIVE_BYTES, len(job.payload))
    if record.blocked:
        queue.move(FAILED, BLOCKED)
        job.state = BLOCKED
    else:
        queue.move(FAILED, WAITING)
        make_waiting(shard, job)
    if options.workflow is not None:
        note_revived(shard, queue.tenant, options, job.id, FAILED, record.at)


def retry_postponed(shard: ShardState, record: rec.RetryPostponed) -> None:
    job = own_job(shard, record.job)
    job.details().next_retry_at = record.next_retry_at
    shard.deadlines.arm(record.next_retry_at, kinds.DEAD_RETRY, job)


def dead_removed(shard: ShardState, record: rec.DeadRemoved) -> None:
    queue = shard.queue(record.tenant, record.queue)
    for job_id in record.jobs:
        job = queue.dead.pop(job_id)
        queue.dead_groups.remove(job_id)
        if job.options.workflow is not None:
            keep_job(shard, job, FAILED)
        job.state = GONE
        shard.index.remove(job_id)
    queue.count(FAILED, -len(record.jobs))
    if record.why == "evicted":
        queue.total(T_EVICTED, len(record.jobs))


def removed(shard: ShardState, record: rec.Removed) -> None:
    for first, count in record.runs:
        job = shard.index.get(first)
        if job is not None:
            forget(shard, job, 1)
            continue
        found = shard.index.find_batch(first)
        assert found is not None
        run = found[0].ended.find(found[1])
        assert run is not None
        if found[1] > run.start:
            run = cut_ended(found[0].queue, run, found[1])
        forget(shard, run, abs(count))
    shard.queue(record.tenant, record.queue).retained.cleaned(len(record.runs))


def aged_out(shard: ShardState, record: rec.AgedOut) -> None:
    queue = shard.queue(record.tenant, record.queue)
    policy = (record.age_ms, record.count)
    queue.retained.armed.pop(policy, None)
    oldest = queue.retained.age_out(policy, record.at)
    if oldest:
        arm_age(shard, queue, policy, oldest)


def keys_forgotten(shard: ShardState, record: rec.KeysForgotten) -> None:
    queue = shard.queue(record.tenant, record.queue)
    for table, key in record.keys:
        getattr(queue, table).pop(key, None)
    shard.drop_unknown(queue)


def keys_stored(shard: ShardState, record: rec.KeysStored) -> None:
    """Drop keys that are in the store of old keys from now on. Their deadlines find nothing and are stale."""
    queue = shard.queue(record.tenant, record.queue)
    for table, key in record.keys:
        del getattr(queue, table)[key]
    shard.drop_unknown(queue)


APPLY: Appliers = {
    rec.QueueConfigured: queue_configured,
    rec.QueueObliterated: queue_obliterated,
    rec.Revived: revived,
    rec.RetryPostponed: retry_postponed,
    rec.DeadRemoved: dead_removed,
    rec.Removed: removed,
    rec.AgedOut: aged_out,
    rec.KeysForgotten: keys_forgotten,
    rec.KeysStored: keys_stored,
}
