"""Which shards a command concerns, and how their replies become one.

Most commands name a queue or a job and go to one shard. The few that span shards are decided in each; since one
owner runs all of them in the same turn, nobody sees them half done.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from stoker.engine import pulling, transactions
from stoker.engine.parking import Parked, register
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import shard_for, shard_of

Shards = Sequence[Shard]


def execute(shards: Shards, tenant: str, command: c.Command[Any], now: int) -> Any:
    """Carry out a command on the shards that it concerns."""
    for shard in shards:
        shard.advance(now)
    special = SPECIAL.get(type(command))
    if special is not None:
        return special(shards, tenant, command, now)
    queue = getattr(command, "queue", None)
    if queue is not None:
        return shards[shard_for(tenant, str(queue), len(shards))].execute(tenant, command, now)
    if hasattr(command, "id"):
        return by_id(shards, command.id).execute(tenant, command, now)
    return settle(shards, tenant, command, now)


def by_id(shards: Shards, job_id: Any) -> Shard:
    number = shard_of(job_id) if type(job_id) is int else 0
    return shards[number] if number < len(shards) else shards[0]


def settle(shards: Shards, tenant: str, command: Any, now: int) -> Any:
    """Ack, Fail, Release and Extend: each shard gets the ids that are its own."""
    if not command.ids or len({shard_of(i) if type(i) is int else 0 for i in command.ids}) == 1:
        return by_id(shards, command.ids[0] if command.ids else 0).execute(tenant, command, now)
    places: dict[int, list[int]] = {}
    for place, job_id in enumerate(command.ids):
        places.setdefault(by_id(shards, job_id).number, []).append(place)
    replies = []
    for number, own in places.items():
        changes: dict[str, Any] = {"ids": [command.ids[place] for place in own]}
        if command.tokens is not None and type(command.tokens) is not int:
            changes["tokens"] = [command.tokens[place] for place in own]
        if getattr(command, "results", None) is not None:
            changes["results"] = [command.results[place] for place in own]
        replies.append(shards[number].execute(tenant, msgspec.structs.replace(command, **changes), now))
    return merge(replies)


def merge(replies: Sequence[Any]) -> Any:
    """One reply out of several of a kind: counts add up, lists and maps are joined, the latest time counts."""
    first = replies[0]
    changes: dict[str, Any] = {}
    for name in first.__struct_fields__:
        values = [getattr(reply, name) for reply in replies]
        if name in ("count", "created"):
            changes[name] = sum(values)
        elif name == "lease_until":
            changes[name] = max(values)
        elif name in ("refused", "duplicates"):
            changes[name] = {key: value for found in values for key, value in found.items()}
        elif name in ("jobs", "cancelled", "ids"):
            changes[name] = [value for found in values for value in found]
        elif name == "runs":
            changes[name] = tuple(value for found in values for value in found)
    return msgspec.structs.replace(first, **changes)


# --- commands that span shards -----------------------------------------------------------------------


def pull(shards: Shards, tenant: str, command: c.Pull, now: int) -> Any:
    """One token for all: every shard gives out the number after the highest of any."""
    pulling.check_pull(shards[0], command)
    if command.claim is not None:
        found = [pulling.reread_claim(shard, tenant, command.claim) for shard in shards]
        claimed = [delivery for delivery in found if delivery is not None]
        if claimed:
            return r.Delivery(claimed[0].token, [run for delivery in claimed for run in delivery.runs])
    token = max(shard.token for shard in shards)
    runs: list[r.Run] = []
    left = command.count
    homes = [shards[shard_for(tenant, name, len(shards))] for name in command.queues]
    for name, shard in zip(command.queues, homes, strict=True):
        if not left:
            break
        shard.token = token
        own = msgspec.structs.replace(command, queues=[name], count=left, wait_ms=0)
        delivery = pulling.dispatch(shard, tenant, own, now)
        if delivery is not None:
            runs += delivery.runs
            left -= len(delivery)
    if runs:
        return r.Delivery(token + 1, runs)
    if not command.wait_ms:
        chances = [
            pulling.next_chance(shard, tenant, [name], now) for name, shard in zip(command.queues, homes, strict=True)
        ]
        return r.Delivery(next_at=min((at for at in chances if at is not None), default=None))
    parked = Parked(tenant, command, now + command.wait_ms)
    for shard in dict.fromkeys(homes):
        own_queues = [name for name, home in zip(command.queues, homes, strict=True) if home is shard]
        register(shard, parked, own_queues)
    return parked


def each(shards: Shards, tenant: str, command: Any, now: int) -> list[Any]:
    return [shard.execute(tenant, command, now) for shard in shards]


def claim(shards: Shards, tenant: str, command: Any, now: int) -> Any:
    """Ack, release or extend a claim wherever it holds jobs."""
    replies, error = [], None
    for shard in shards:
        try:
            replies.append(shard.execute(tenant, command, now))
        except errors.NotFound as not_here:
            error = not_here
    if not replies and error is not None:
        raise error
    return merge(replies)


def stage(shards: Shards, tenant: str, command: c.Stage, now: int) -> Any:
    shard = shards[shard_for(tenant, str(command.queue), len(shards))]
    return shard.execute(tenant, command, now)


def publish(shards: Shards, tenant: str, command: c.Publish, now: int) -> Any:
    """Look in every shard first; then each publishes its own stages, and all remember the end."""
    known: dict[str, bool] = {}
    for shard in shards:
        found = transactions.find(shard, tenant, command.transaction)
        if found is not None and found.outcome is not None:
            return merge(each(shards, tenant, command, now))
        for name in found.stages if found is not None else ():
            known[name] = True
    missing = [name for name in command.stages if name not in known]
    if missing:
        return shards[0].execute(tenant, msgspec.structs.replace(command, stages=missing), now)
    replies = []
    for shard in shards:
        found = transactions.find(shard, tenant, command.transaction)
        own = [name for name in command.stages if found is not None and name in found.stages]
        replies.append(shard.execute(tenant, msgspec.structs.replace(command, stages=own), now))
    return merge(replies)


def abort(shards: Shards, tenant: str, command: c.Abort, now: int) -> Any:
    return merge(each(shards, tenant, command, now))


def find_job(shards: Shards, tenant: str, command: c.FindJob, now: int) -> Any:
    if command.queue is not None:
        return shards[shard_for(tenant, str(command.queue), len(shards))].execute(tenant, command, now)
    for shard in shards[:-1]:
        try:
            return shard.execute(tenant, command, now)
        except errors.NotFound:
            continue
    return shards[-1].execute(tenant, command, now)


def list_queues(shards: Shards, tenant: str, command: c.ListQueues, now: int) -> r.Queues:
    return r.Queues(sorted(name for found in each(shards, tenant, command, now) for name in found.names))


def get_stats(shards: Shards, tenant: str, command: c.GetStats, now: int) -> Any:
    if command.queue is not None:
        return shards[shard_for(tenant, str(command.queue), len(shards))].execute(tenant, command, now)
    found: list[r.Stats] = each(shards, tenant, command, now)
    counts = [sum(values) for values in zip(*(msgspec.structs.astuple(one.counts) for one in found), strict=True)]
    totals = [sum(values) for values in zip(*(msgspec.structs.astuple(one.totals) for one in found), strict=True)]
    return r.Stats(r.Counts(*counts), r.Totals(*totals), sum(one.completed_last_minute for one in found))


def browse(shards: Shards, tenant: str, command: c.Browse, now: int) -> Any:
    if command.queue is not None:
        return shards[shard_for(tenant, str(command.queue), len(shards))].execute(tenant, command, now)
    pages: list[r.Page] = each(shards, tenant, command, now)
    jobs = sorted((job for page in pages for job in page.jobs), key=lambda job: job.id, reverse=not command.ascending)
    more = len(jobs) > command.limit or any(page.next_after is not None for page in pages)
    jobs = jobs[: command.limit]
    return r.Page(jobs, jobs[-1].id if more and jobs else None)


SPECIAL: dict[type[Any], Any] = {
    c.Pull: pull,
    c.AckClaim: claim,
    c.ReleaseClaim: claim,
    c.ExtendClaim: claim,
    c.Stage: stage,
    c.Publish: publish,
    c.Abort: abort,
    c.FindJob: find_job,
    c.ListQueues: list_queues,
    c.GetStats: get_stats,
    c.Browse: browse,
}
