"""Apply records about schedules. The slots in them were computed when they were decided."""

from collections import deque
from zlib import crc32

from stoker.engine import deadlines as kinds
from stoker.engine.apply.push import add_job
from stoker.engine.backoff import mix
from stoker.engine.jobs import WAITING, SingleJob
from stoker.engine.shard_state import ShardState
from stoker.engine.state import T_PUSHED, Appliers, Planned, QueueState
from stoker.model.ids import SHARD_BITS
from stoker.model.schedules import LAST_RUNS, Schedule, ScheduleRun
from stoker.records import records as rec

SCHEDULE_BYTES = 6_000
"""The memory of a schedule without its payload: rule, options, and the outcomes of its last slots."""


def jitter(shard: ShardState, name: str, schedule: Schedule, slot: int) -> int:
    """How much later than its slot a job is pushed. It is the same in every replay."""
    if not schedule.jitter_ms:
        return 0
    return mix(shard.settings.seed, crc32(name.encode()), slot) % (schedule.jitter_ms + 1)


OfOne = rec.SchedulePaused | rec.ScheduleDeleted | rec.ScheduledPush | rec.SlotPassed


def find(shard: ShardState, record: OfOne) -> Planned:
    return shard.queue(record.tenant, record.queue).schedules[record.name]


def size_of(planned: Planned) -> int:
    return SCHEDULE_BYTES + len(planned.name) + len(planned.schedule.payload)


def keep(shard: ShardState, planned: Planned) -> None:
    planned.queue.schedules[planned.name] = planned
    planned.queue.tenant.schedules += 1
    planned.queue.tenant.planned_bytes += len(planned.schedule.payload)
    shard.schedules += 1
    shard.index.bytes += size_of(planned)


def let_go(shard: ShardState, planned: Planned) -> None:
    """Remove a schedule. Its deadline becomes stale, because `due` is 0."""
    del planned.queue.schedules[planned.name]
    planned.queue.tenant.schedules -= 1
    planned.queue.tenant.planned_bytes -= len(planned.schedule.payload)
    shard.schedules -= 1
    planned.due = 0
    shard.index.bytes -= size_of(planned)


def let_go_all(shard: ShardState, queue: QueueState) -> None:
    for planned in list(queue.schedules.values()):
        let_go(shard, planned)


def plan_slot(shard: ShardState, planned: Planned, slot: int, at: int) -> None:
    planned.next_slot = slot
    arm(shard, planned, due_of(shard, planned, at))


def due_of(shard: ShardState, planned: Planned, at: int) -> int:
    """When to handle the next slot: not before the time of the last decision. 0 = never.

    A shard that was just created does not know yet how far it is ahead of the calendar. The result is then too early,
    and the slot is handled again later.
    """
    slot = planned.next_slot
    if not slot or planned.paused:
        return 0
    return max(at, slot + jitter(shard, planned.name, planned.schedule, slot) + shard.ahead_ms)


def arm(shard: ShardState, planned: Planned, due: int) -> None:
    planned.due = due
    if due:
        shard.deadlines.arm(due, kinds.SCHEDULE, planned)


def note(planned: Planned, run: ScheduleRun) -> None:
    if planned.last is None:
        planned.last = deque(maxlen=LAST_RUNS)
    planned.last.append(run)


def changed(shard: ShardState, record: rec.ScheduleChanged) -> None:
    queue = shard.queue(record.tenant, record.queue)
    queue.known = True
    planned = queue.schedules.get(record.name)
    if planned is None:
        planned = Planned(record.name, queue, record.schedule, record.at)
    else:
        let_go(shard, planned)
    planned.schedule, planned.anchor, planned.runs = record.schedule, record.anchor, record.runs
    planned.changed_at, planned.made_up_to = record.at, 0
    keep(shard, planned)
    plan_slot(shard, planned, record.next_slot, record.at)


def paused(shard: ShardState, record: rec.SchedulePaused) -> None:
    planned = find(shard, record)
    planned.paused, planned.made_up_to = record.paused, 0
    plan_slot(shard, planned, record.next_slot, record.at)


def deleted(shard: ShardState, record: rec.ScheduleDeleted) -> None:
    let_go(shard, find(shard, record))


def pushed(shard: ShardState, record: rec.ScheduledPush) -> None:
    """Push the job and end its slot. Both are one record, so neither can exist without the other."""
    planned = find(shard, record)
    queue, options = planned.queue, record.options
    queue.total(T_PUSHED)
    shard.sequence = record.first >> SHARD_BITS
    add_job(
        shard, queue, options, record, SingleJob(record.first, queue, options, record.payloads[0], record.at, WAITING)
    )
    planned.jobs = [*planned.jobs[-1:], record.first]
    note(planned, ScheduleRun(record.slot, record.at, "pushed", record.first, manual=record.manual))
    if not record.manual:
        planned.runs += 1
        planned.done_to, planned.made_up_to = record.slot, record.made_up_to
        plan_slot(shard, planned, record.next_slot, record.at)


def passed(shard: ShardState, record: rec.SlotPassed) -> None:
    planned = find(shard, record)
    run = ScheduleRun(record.slot, record.at, record.outcome, record.job, record.reason, record.until, record.manual)
    note(planned, run)
    if not record.manual:
        planned.done_to, planned.made_up_to = record.until or record.slot, record.made_up_to
        plan_slot(shard, planned, record.next_slot, record.at)


APPLY: Appliers = {
    rec.ScheduleChanged: changed,
    rec.SchedulePaused: paused,
    rec.ScheduleDeleted: deleted,
    rec.ScheduledPush: pushed,
    rec.SlotPassed: passed,
}
