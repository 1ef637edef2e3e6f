"""Decide commands about dead letters: listing, counting, retrying, purging."""

from collections import Counter
from collections.abc import Iterator, Sequence

from stoker.engine import checks
from stoker.engine.dead_groups import GROUPED_MAX, LetterGroup, largest
from stoker.engine.ending import labels_of
from stoker.engine.jobs import SingleJob
from stoker.engine.old_keys import holder_of
from stoker.engine.queries import bytes_of, view
from stoker.engine.shard_state import ShardState
from stoker.engine.state import QueueState
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.fingerprints import GROUPS_MAX
from stoker.model.limits import INT_MAX
from stoker.records import records as rec


def list_dead(shard: ShardState, tenant: str, command: c.ListDead, now: int) -> r.Page:
    checks.name(command.queue)
    checks.count(command.limit, "limit", shard.limits.browse_jobs_max)
    queue = shard.known_queue(tenant, command.queue)
    found: list[r.JobView] = []
    if queue is None:
        return r.Page(found)
    room = shard.limits.reply_bytes_max
    for job in _after(queue, command.after):
        detail = job.details()
        if command.entered_from is not None and detail.ended_at < command.entered_from:
            continue
        if command.entered_before is not None and detail.ended_at >= command.entered_before:
            continue
        if command.reason is not None and detail.reason != command.reason:
            continue
        if command.tag is not None and command.tag not in job.options.tags:
            continue
        if len(found) == command.limit or (room <= 0 and found):
            return r.Page(found, found[-1].id)
        found.append(view(shard, job, now))
        room -= bytes_of(found[-1])
    return r.Page(found)


def _after(queue: QueueState, after: int | None) -> Iterator[SingleJob]:
    """The entries after the one where the last page ended; all of them if that one has been removed."""
    jobs = iter(queue.dead.values())
    if after is not None and after in queue.dead:
        for job in jobs:
            if job.id == after:
                break
    return jobs


def get_dead_stats(shard: ShardState, tenant: str, command: c.GetDeadStats, now: int) -> r.DeadStats:
    checks.name(command.queue)
    queue = shard.known_queue(tenant, command.queue)
    dead = queue.dead if queue is not None else {}
    reasons = Counter(str(job.details().reason) for job in dead.values())
    oldest = next((job.details().ended_at for job in dead.values()), None)
    return r.DeadStats(len(dead), dict(sorted(reasons.items())), oldest)


def get_dead_groups(shard: ShardState, tenant: str, command: c.GetDeadGroups, now: int) -> r.DeadGroups:
    """The largest groups of a queue, or of all queues of this shard, after grouping some more letters."""
    checks.count(command.limit, "limit", GROUPS_MAX)
    if command.queue is not None:
        checks.name(command.queue)
    owner = shard.tenants.get(tenant)
    queues = [] if owner is None else [one for one in owner.queues.values() if one.dead]
    if command.queue is not None:
        queues = [one for one in queues if one.name == command.queue]
    left = GROUPED_MAX if command.queue is not None else max(1, GROUPED_MAX // shard.neighbours)
    found: list[tuple[str, LetterGroup]] = []
    for queue in queues:
        left -= queue.dead_groups.step(left)
        found += [(queue.name, group) for group in queue.dead_groups.groups()]
    groups = largest(found, command.limit)
    ungrouped = sum(queue.dead_groups.ungrouped for queue in queues)
    letters = sum(len(queue.dead) for queue in queues)
    return r.DeadGroups(groups, ungrouped, letters - ungrouped - sum(group.count for group in groups))


def joined_groups(command: c.GetDeadGroups, found: Sequence[r.DeadGroups]) -> r.DeadGroups:
    """Those of several shards as one."""
    groups = sorted((group for one in found for group in one.groups), key=lambda group: -group.count)
    cut = sum(group.count for group in groups[command.limit :])
    ungrouped, others = sum(one.ungrouped for one in found), sum(one.others for one in found)
    return r.DeadGroups(groups[: command.limit], ungrouped, others + cut)


def chosen(queue: QueueState | None, ids: list[int] | None, reason: str | None) -> list[int]:
    """The dead letters that a command selects."""
    if queue is None:
        return []
    named = queue.dead if ids is None else [job_id for job_id in dict.fromkeys(ids) if job_id in queue.dead]
    return [job_id for job_id in named if reason is None or queue.dead[job_id].details().reason == reason]


def retry_dead(shard: ShardState, tenant: str, command: c.RetryDead, now: int) -> r.Retried:
    checks.name(command.queue)
    if command.ids is not None:
        checks.ids(command.ids, shard.limits)
    if command.limit is not None:
        checks.number(command.limit, "limit", 1, INT_MAX)
    queue = shard.known_queue(tenant, command.queue)
    ids = list(command.ids) if command.ids is not None else None
    refused = {job_id: "not_found" for job_id in ids or () if queue is None or job_id not in queue.dead}
    revived: list[int] = []
    for job_id in chosen(queue, ids, command.reason)[: command.limit]:
        assert queue is not None
        if key_is_taken(shard, queue.dead[job_id], now):
            refused[job_id] = "wrong_state"
            continue
        emit_revived(shard, queue.dead[job_id], now)
        revived.append(job_id)
    return r.Retried(revived, refused) if refused else r.Retried(revived)


def emit_revived(shard: ShardState, job: SingleJob, at: int, *, automatic: bool = False, blocked: bool = False) -> None:
    """Write the record with the labels that readers of events group by: they may never have seen the push."""
    tenant, queue, labels = job.queue.tenant.name, job.queue.name, labels_of(job.options)
    shard.emit(rec.Revived(at, tenant, queue, job.id, automatic, blocked, job.pushed_at, len(job.payload), labels))


def key_is_taken(shard: ShardState, job: SingleJob, now: int) -> bool:
    """Whether another job has taken the unique key or the custom id of this dead letter."""
    queue, options = job.queue, job.options
    if options.unique_key is not None and options.unique_key in queue.unique_keys:
        return True
    holder = holder_of(shard, queue, options.custom_id, now) if options.custom_id is not None else 0
    return holder not in (0, job.id)


def purge_dead(shard: ShardState, tenant: str, command: c.PurgeDead, now: int) -> r.Done:
    checks.name(command.queue)
    if command.ids is not None:
        checks.ids(command.ids, shard.limits)
    queue = shard.known_queue(tenant, command.queue)
    ids = chosen(queue, list(command.ids) if command.ids is not None else None, command.reason)
    if ids:
        shard.emit(rec.DeadRemoved(now, tenant, command.queue, ids, "purged"))
    return r.Done(len(ids))
