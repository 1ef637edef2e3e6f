"""What a tenant uses of the shards of this process, and what a command would add to it, for enforcing quotas.

This module only reads counters; it decides and changes nothing. It does not see jobs and entries of other processes.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stoker.engine import dead_letters
from stoker.engine.jobs import ACTIVE, BLOCKED, DELAYED, LIVE_BYTES, WAITING, SingleJob
from stoker.engine.kv_entries import Entry
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model.errors import Unavailable
from stoker.model.ids import KV_HOME
from stoker.runtime.shards import Shards

NUMBER_BYTES = 20
"""What a counter of 64 bits takes, written out."""


class Used(msgspec.Struct, frozen=True):
    """Jobs that no worker has yet, staged ones included, and bytes of all that is kept for the tenant."""

    jobs: int = 0
    bytes: int = 0


class FindUsed(c.Command[Used], frozen=True, gc=False):
    """What the tenant uses here."""


def find_used(shards: Shards, tenant: str, command: FindUsed, now: int) -> Used:
    for shard in shards:
        shard.advance(now)
    return used(shards, tenant)


def used(shards: Iterable[Shard], tenant: str) -> Used:
    jobs = size = 0
    for shard in shards:
        found = shard.tenants.get(tenant)
        if found is not None:
            shard.add_up()
            counts = found.scope.counts
            jobs += counts[WAITING] + counts[DELAYED] + counts[BLOCKED] + found.staged_jobs
            size += counts[LIVE_BYTES] + found.staged_bytes + found.kv_bytes + found.planned_bytes
    return Used(jobs, size)


def added_by(shards: Shards, tenant: str, command: Any) -> Used:
    """What a command would add, for those commands that add less than they bring, or more."""
    return WEIGHED[type(command)](shards, tenant, command)


def _staged(shards: Shards, tenant: str, command: c.Stage) -> Used:
    """A part that is there already is not written again."""
    for shard in shards:
        found = shard.tenants.get(tenant)
        transaction = found.transactions.get(command.transaction) if found is not None else None
        stage = transaction.stages.get(command.stage) if transaction is not None else None
        if stage is not None and command.part is not None and command.part in stage.numbers:
            return Used()
    return Used(len(command.payloads), sum(map(len, command.payloads)))


def _updated(shards: Shards, tenant: str, command: c.UpdatePayload) -> Used:
    """The new payload takes the place of the old one; a dead letter's does not count."""
    shard = _or_none(shards.by_id, command.id)
    part = shard.find(command.id) if shard is not None else None
    if shard is None or part is None or part.queue.tenant.name != tenant:
        return Used(0, len(command.payload))
    if shard.state_of(part) > ACTIVE:
        return Used()
    sizes = len(part.payload) if type(part) is SingleJob else part.batch.sizes_of(part.start, part.start + 1)
    return Used(0, len(command.payload) - (sizes if isinstance(sizes, int) else sizes[0]))


def _or_none(find: Callable[..., Shard], *where: Any) -> Shard | None:
    """A shard, unless another process has it."""
    try:
        return find(*where)
    except Unavailable:
        return None


def _entries(shards: Shards, tenant: str) -> Callable[[str], Entry | None]:
    shard = _or_none(shards.home, tenant, KV_HOME)
    found = shard.tenants.get(tenant) if shard is not None else None
    return found.kv.get if found is not None else lambda key: None


def _written(entry: Callable[[str], Entry | None], values: dict[str, int]) -> Used:
    size = 0
    for key, length in values.items():
        old = entry(key)
        size += length - len(old.value) if old is not None else len(key.encode()) + length
    return Used(0, size)


def _set(shards: Shards, tenant: str, command: c.KvSet) -> Used:
    return _written(_entries(shards, tenant), {command.key: len(command.value)})


def _set_many(shards: Shards, tenant: str, command: c.KvSetMany) -> Used:
    return _written(_entries(shards, tenant), {entry.key: len(entry.value) for entry in command.entries})


def _incremented(shards: Shards, tenant: str, command: c.KvIncrement) -> Used:
    """A counter that is there grows by digits at most, which are not worth a refusal."""
    entry = _entries(shards, tenant)
    return Used() if entry(command.key) is not None else _written(entry, {command.key: NUMBER_BYTES})


def _revived(shards: Shards, tenant: str, command: c.RetryDead) -> Used:
    shard = _or_none(shards.home, tenant, command.queue)
    queue = shard.known_queue(tenant, command.queue) if shard is not None else None
    if queue is None:
        return Used()
    ids = dead_letters.chosen(queue, list(command.ids) if command.ids is not None else None, command.reason)
    return _of_jobs([queue.dead[job_id] for job_id in ids[: command.limit]])


def _workflow_revived(shards: Shards, tenant: str, command: c.RetryWorkflow) -> Used:
    """Its dead letters, as far as they lie here."""
    found = [shard.tenants[tenant] for shard in shards if tenant in shard.tenants]
    queues = [queue for one in found if command.id in one.flows for queue in one.queues.values()]
    return _of_jobs([job for queue in queues for job in queue.dead.values() if job.options.workflow == command.id])


def _of_jobs(jobs: list[SingleJob]) -> Used:
    return Used(len(jobs), sum(len(job.payload) for job in jobs))


WEIGHED: dict[type[c.Command[Any]], Callable[[Shards, str, Any], Used]] = {
    c.Stage: _staged,
    c.UpdatePayload: _updated,
    c.KvSet: _set,
    c.KvSetMany: _set_many,
    c.KvIncrement: _incremented,
    c.RetryDead: _revived,
    c.RetryWorkflow: _workflow_revived,
}
