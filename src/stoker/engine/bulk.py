"""Decide bulk operations: one action on every job that a filter finds, in steps of bounded work.

Each shard walks its own jobs in id order, from a cursor that is journaled with what a step did. So a step happens as a
whole or not at all, an operation goes on after a restart, and no job is hit twice. A job that entered its state after
the operation began is left alone, and so is every job that was pushed later.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from stoker.engine import checks, control, searching
from stoker.engine.bulk_state import BulkRun
from stoker.engine.dead_letters import retry_dead
from stoker.engine.jobs import ACTIVE, Part, SingleJob
from stoker.engine.shard_state import ShardState
from stoker.model import commands as c
from stoker.model import errors
from stoker.model.bulk import MAY_BE, BulkAction, Bulks, BulkState, BulkView
from stoker.model.filters import JobFilter
from stoker.model.ids import SHARD_BITS
from stoker.model.limits import INT_MAX
from stoker.model.states import STATES
from stoker.records import records as rec
from stoker.records.stored import NotAtHand

RUNNING_MAX = 10
"""Operations of a tenant at the same time."""
STEP_JOBS = 50
"""Jobs that one step acts on: about two milliseconds."""
PAUSE_MS = 5
"""Between two steps, so that other commands come in between."""
READING_MS = 50
"""After a step that met a payload which the journal has to read first."""
RATE_MAX = 1_000_000


# --- commands ----------------------------------------------------------------------------------------


def start(shard: ShardState, tenant: str, command: c.StartBulk, now: int) -> BulkView:
    check(shard, command)
    wanted, rate = command.filter, command.rate
    owner = shard.tenants.get(tenant)
    found = owner.bulks.get(command.key) if owner is not None else None
    made = rec.BulkStarted(
        now,
        tenant,
        command.key,
        command.action,
        wanted,
        shard.sequence << SHARD_BITS | shard.number,
        command.priority,
        None if rate is None else float(rate),
    )
    if found is not None:
        if told(found.made) != told(made):
            raise errors.WrongState(f"another operation has the key {command.key!r}: choose a new one")
        return found.view()
    if owner is not None and sum(bulk.state == "running" for bulk in owner.bulks.values()) >= RUNNING_MAX:
        raise errors.LimitExceeded(f"a tenant may have {RUNNING_MAX} operations at a time: wait for one, or stop it")
    shard.emit(made)
    return shard.tenants[tenant].bulks[command.key].view()


def told(made: rec.BulkStarted) -> tuple[object, ...]:
    """What a client said of an operation."""
    return made.action, made.filter, made.priority, made.rate


def check(shard: ShardState, command: c.StartBulk) -> None:
    checks.key(command.key, "key", shard.limits)
    checks.choice(command.action, "action", BulkAction)
    searching.check(command.filter, shard.limits)
    state, may_be = command.filter.state, MAY_BE[command.action]
    if state is not None and state not in may_be:
        raise errors.InvalidRequest(
            f"invalid state {state} for {command.action}: expected one of {', '.join(may_be)}, or none"
        )
    if (command.action == "priority") != (command.priority is not None):
        raise errors.InvalidRequest("invalid priority: give one with the action `priority`, and only then")
    if command.priority is not None:
        checks.number(command.priority, "priority", -INT_MAX, INT_MAX)
    rate = command.rate
    if rate is not None and not (math.isfinite(rate) and 0 < rate <= RATE_MAX):
        raise errors.InvalidRequest(f"invalid rate {checks.short(rate)}: expected jobs a second, up to {RATE_MAX}")


def get(shard: ShardState, tenant: str, command: c.GetBulk, now: int) -> BulkView:
    return find(shard, tenant, command.key).view()


def find(shard: ShardState, tenant: str, key: str) -> BulkRun:
    checks.key(key, "key", shard.limits)
    owner = shard.tenants.get(tenant)
    bulk = owner.bulks.get(key) if owner is not None else None
    if bulk is None:
        raise errors.NotFound(f"bulk operation {checks.short(key)} not found: it was never started, or is forgotten")
    return bulk


def list_all(shard: ShardState, tenant: str, command: c.ListBulks, now: int) -> Bulks:
    owner = shard.tenants.get(tenant)
    return joined_lists(command, [Bulks([bulk.view() for bulk in owner.bulks.values()] if owner is not None else [])])


def stop(shard: ShardState, tenant: str, command: c.StopBulk, now: int) -> BulkView:
    bulk = find(shard, tenant, command.key)
    if bulk.state == "running":
        counts = (bulk.looked, bulk.changed, bulk.refused)
        shard.emit(rec.BulkStepped(now, tenant, command.key, bulk.cursor, *counts, "stopped"))
    return bulk.view()


# --- views of several shards -------------------------------------------------------------------------


def joined(parts: Sequence[BulkView]) -> BulkView:
    """The parts of several shards as one operation."""
    first, states = parts[0], {part.state for part in parts}
    running = "running" in states
    return BulkView(
        key=first.key,
        action=first.action,
        filter=first.filter,
        priority=first.priority,
        rate=None if first.rate is None else round(sum(part.rate or 0 for part in parts), 6),
        state="running" if running else "stopped" if "stopped" in states else "done",
        started_at=min(part.started_at for part in parts),
        ended_at=0 if running else max(part.ended_at for part in parts),
        looked=sum(part.looked for part in parts),
        changed=sum(part.changed for part in parts),
        refused=sum(part.refused for part in parts),
    )


def joined_lists(command: c.ListBulks, found: Sequence[Bulks]) -> Bulks:
    parts: dict[str, list[BulkView]] = {}
    for one in found:
        for view in one.bulks:
            parts.setdefault(view.key, []).append(view)
    bulks = [joined(own) for own in parts.values()]
    return Bulks(sorted(bulks, key=lambda bulk: (-bulk.started_at, bulk.key)))


# --- steps -------------------------------------------------------------------------------------------


def on_bulk(shard: ShardState, at: int, bulks: list[BulkRun]) -> None:
    for bulk in bulks:
        step(shard, bulk, at)


def holds(at: int, bulk: BulkRun) -> bool:
    return bulk.state == "running" and bulk.next_at == at


def step(shard: ShardState, bulk: BulkRun, at: int) -> None:
    """Look at some more jobs, and act on those that match and were in their state when the operation began."""
    made = bulk.made
    search = searching.JobSearch(shard, made.tenant, meant(made), bulk.cursor, ascending=True)
    most = STEP_JOBS if made.rate is None else max(1, min(STEP_JOBS, int(made.rate / 10)))
    chosen: list[tuple[str, int]] = []
    waits = False
    try:
        for part in search:
            if part.lowest > made.until or len(chosen) == most:
                break
            if STATES[shard.state_of(part)] in MAY_BE[made.action] and entered_at(shard, part) <= made.at:
                chosen.append((part.queue.name, part.lowest))
    except (NotAtHand, errors.Unavailable):
        waits = True
        if shard.expect_payloads is not None:
            shard.expect_payloads(search.missed)
    is_over = search.is_over or (search.last or 0) > made.until
    cursor = chosen[-1][1] if len(chosen) == most and not is_over else max(bulk.cursor, search.last or 0)
    refused = 0
    for queue, job_id in chosen:
        try:
            refused += ACT[made.action](shard, made, queue, job_id, at)
        except errors.Refused:
            refused += 1
    counts = (bulk.looked + search.looked, bulk.changed + len(chosen) - refused, bulk.refused + refused)
    least = READING_MS if waits else PAUSE_MS
    pause = least if made.rate is None else max(least, math.ceil(len(chosen) * 1000 / made.rate))
    state: BulkState = "done" if is_over else "running"
    next_at = 0 if is_over else max(at, shard.now) + pause
    shard.emit(rec.BulkStepped(at, made.tenant, made.key, cursor, *counts, state, next_at))


def meant(made: rec.BulkStarted) -> JobFilter:
    """The filter of an operation. An action on one state needs no other."""
    may_be = MAY_BE[made.action]
    if made.filter.state is not None or len(may_be) > 1:
        return made.filter
    return msgspec.structs.replace(made.filter, state=may_be[0])


def entered_at(shard: ShardState, part: Part) -> int:
    """When a job entered its state, as far as is known: a pending one by its push, or the end of its last delivery."""
    state = shard.state_of(part)
    if type(part) is SingleJob:
        detail = part.detail
        if detail is None:
            return part.pushed_at
        if state >= ACTIVE:
            return detail.started_at if state == ACTIVE else detail.ended_at
        return max(part.pushed_at, detail.history[-1].ended_at if detail.history else 0)
    batch, position = part.batch, part.start
    if state == ACTIVE:
        piece = batch.slices.find(position)
        assert piece is not None
        return piece.started_at
    run = batch.ended.find(position) if state > ACTIVE else None
    return part.pushed_at if run is None else run.ended_at


# --- actions -----------------------------------------------------------------------------------------


def retry(shard: ShardState, made: rec.BulkStarted, queue: str, job_id: int, at: int) -> bool:
    return bool(retry_dead(shard, made.tenant, c.RetryDead(queue, [job_id]), at).refused)


def cancel(shard: ShardState, made: rec.BulkStarted, queue: str, job_id: int, at: int) -> bool:
    control.cancel(shard, made.tenant, c.Cancel(job_id), at)
    return False


def delete(shard: ShardState, made: rec.BulkStarted, queue: str, job_id: int, at: int) -> bool:
    try:
        control.delete_job(shard, made.tenant, c.DeleteJob(job_id), at)
    except errors.WrongState:
        return True  # it has come back since it was chosen
    return False


def promote(shard: ShardState, made: rec.BulkStarted, queue: str, job_id: int, at: int) -> bool:
    control.promote(shard, made.tenant, c.Promote(job_id), at)
    return False


def change_priority(shard: ShardState, made: rec.BulkStarted, queue: str, job_id: int, at: int) -> bool:
    assert made.priority is not None
    control.change_priority(shard, made.tenant, c.ChangePriority(job_id, made.priority), at)
    return False


ACT: dict[BulkAction, Callable[[ShardState, rec.BulkStarted, str, int, int], bool]] = {
    "retry": retry,
    "cancel": cancel,
    "delete": delete,
    "promote": promote,
    "priority": change_priority,
}
"""Acts on one job. The answer is whether the job could not be changed."""
