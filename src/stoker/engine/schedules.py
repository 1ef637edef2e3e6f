"""Deciding about schedules: making and changing them, and what becomes of each slot when its time has come.

The calendar is asked here and nowhere else; what it says goes into the records. A slot is over with the record that
pushes its job, or with the one that says why there is none.
"""

from typing import NamedTuple

import msgspec

from stoker.engine import checks, payload_templates, schedule_checks
from stoker.engine import deadlines as kinds
from stoker.engine.apply.schedules import arm, jitter
from stoker.engine.apply.schedules import due_of as next_due
from stoker.engine.calendars import first_after, last_until
from stoker.engine.classify import ClassifiedItem, Classifier
from stoker.engine.ending import cancel_jobs
from stoker.engine.jobs import CANCELLED
from stoker.engine.plain_options import is_plain
from stoker.engine.presence import has_worker
from stoker.engine.pushing import due_of, extend_key
from stoker.engine.shard_state import ShardState
from stoker.engine.slot_pacing import SlotBacklog
from stoker.engine.state import Planned
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import make_id
from stoker.model.options import Dependency, Options
from stoker.model.reasons import Reason
from stoker.model.schedules import NEXT_RUNS, Schedule, SchedulePage, ScheduleRun, ScheduleView, SlotOutcome
from stoker.model.states import STATES
from stoker.records import records as rec

RULE = ("cron", "every_ms", "at", "zone", "start_at", "end_at")
"""What says when slots are: as long as it stays, so does what the schedule has done and when it is due."""


def find(shard: ShardState, tenant: str, queue: str, name: str) -> Planned | None:
    checks.name(queue)
    schedule_checks.name(name, shard.limits)
    known = shard.known_queue(tenant, queue)
    return known.schedules.get(name) if known is not None else None


def found(shard: ShardState, tenant: str, queue: str, name: str) -> Planned:
    planned = find(shard, tenant, queue, name)
    if planned is None:
        raise errors.NotFound(f"schedule {checks.short(name)} not found in queue {queue}: put it first")
    return planned


# --- making and changing ---------------------------------------------------------------------------


def put(shard: ShardState, tenant: str, command: c.PutSchedule, now: int) -> ScheduleView:
    planned, schedule = find(shard, tenant, command.queue, command.name), command.schedule
    if planned is not None and planned.schedule == schedule:
        return view(shard, planned)
    schedule_checks.schedule(shard, schedule)
    wall = now - shard.ahead_ms
    if planned is None:
        check_room(shard, tenant)
        shard.queue_for_writing(tenant, command.queue)
    anchor, runs, slot, done_to, is_new = wall, 0, 0, 0, True
    if planned is not None:
        done_to = planned.done_to
        if rule_of(planned.schedule) == rule_of(schedule):
            anchor, runs, slot, is_new = planned.anchor, planned.runs, planned.next_slot, False
    if not slot:
        since = wall if schedule.at is None else wall - schedule.grace_ms - 1
        slot = first_after(shard.calendar, schedule, anchor, max(since, done_to))
    if is_new or slot:
        schedule_checks.slots(shard, schedule, anchor, slot)
    if schedule.runs_max and runs >= schedule.runs_max:
        slot = 0
    shard.emit(rec.ScheduleChanged(now, tenant, command.queue, command.name, schedule, anchor, runs, slot))
    return view(shard, found(shard, tenant, command.queue, command.name))


def rule_of(schedule: Schedule) -> tuple[object, ...]:
    return tuple(getattr(schedule, field) for field in RULE)


def check_room(shard: ShardState, tenant: str) -> None:
    owner, most = shard.tenants.get(tenant), shard.limits.schedules_per_tenant_max
    if owner is not None and owner.schedules >= most:
        raise errors.LimitExceeded(f"{most} schedules are the most that a tenant may have: delete some")


def pause(shard: ShardState, tenant: str, command: c.PauseSchedule, now: int) -> ScheduleView:
    planned = found(shard, tenant, command.queue, command.name)
    if not planned.paused:
        shard.emit(rec.SchedulePaused(now, tenant, command.queue, command.name, True, planned.next_slot))
    return view(shard, planned)


def resume(shard: ShardState, tenant: str, command: c.ResumeSchedule, now: int) -> ScheduleView:
    planned = found(shard, tenant, command.queue, command.name)
    if planned.paused:
        slot = planned.next_slot
        if slot and slot <= now - shard.ahead_ms:
            slot = next_slot(shard, planned, now - shard.ahead_ms)
        shard.emit(rec.SchedulePaused(now, tenant, command.queue, command.name, False, slot))
    return view(shard, planned)


def delete(shard: ShardState, tenant: str, command: c.DeleteSchedule, now: int) -> r.Done:
    if find(shard, tenant, command.queue, command.name) is None:
        return r.Done(0)
    shard.emit(rec.ScheduleDeleted(now, tenant, command.queue, command.name))
    return r.Done()


def run(shard: ShardState, tenant: str, command: c.RunSchedule, now: int) -> r.Pushed:
    planned = found(shard, tenant, command.queue, command.name)
    hindering = hindered_by(shard, planned)
    if hindering:
        raise errors.WrongState(
            f"job {hindering} of schedule {command.name} is not over, and overlap is {planned.schedule.overlap}:"
            " let it end, or cancel it"
        )
    return push(shard, planned, Over(now - shard.ahead_ms, now, 0, manual=True))


# --- looking ---------------------------------------------------------------------------------------


def get(shard: ShardState, tenant: str, command: c.GetSchedule, now: int) -> ScheduleView:
    return view(shard, found(shard, tenant, command.queue, command.name))


def list_all(shard: ShardState, tenant: str, command: c.ListSchedules, now: int) -> SchedulePage:
    checks.count(command.limit, "limit", shard.limits.browse_jobs_max)
    if command.queue is not None:
        checks.name(command.queue)
    if command.name is not None:
        schedule_checks.name(command.name, shard.limits)
    after = place_of(command.after)
    owner = shard.tenants.get(tenant)
    shown: list[ScheduleView] = []
    room = shard.limits.reply_bytes_max
    for queue in sorted(owner.queues) if owner is not None else ():
        if command.queue not in (None, queue) or queue < after[0]:
            continue
        assert owner is not None
        schedules = owner.queues[queue].schedules
        names = sorted(schedules) if command.name is None else [command.name] if command.name in schedules else []
        for name in names:
            if (queue, name) <= after:
                continue
            if len(shown) == command.limit or (room <= 0 and shown):
                return SchedulePage(shown, cursor_of(shown[-1]))
            shown.append(brief(shard, schedules[name]))
            room -= len(schedules[name].schedule.payload)
    return SchedulePage(shown)


def cursor_of(schedule: ScheduleView) -> str:
    return f"{schedule.queue}/{schedule.name}"


def place_of(cursor: str | None) -> tuple[str, str]:
    """The queue and the name after which a page starts; no queue has a slash in its name."""
    if cursor is None:
        return "", ""
    queue, slash, name = cursor.partition("/")
    if not slash:
        raise errors.InvalidRequest(f"invalid after {checks.short(cursor)}: expected the next_after of a page")
    return queue, name


def brief(shard: ShardState, planned: Planned) -> ScheduleView:
    """As it stands in a list."""
    state = "over" if not planned.next_slot else "paused" if planned.paused else "active"
    return ScheduleView(
        name=planned.name,
        queue=planned.queue.name,
        schedule=planned.schedule,
        state=state,  # type: ignore[arg-type]
        created_at=planned.created_at,
        changed_at=planned.changed_at,
        runs=planned.runs,
        next_runs=(planned.next_slot,) if state == "active" else (),
        level=shard.level,
    )


def view(shard: ShardState, planned: Planned) -> ScheduleView:
    shown, schedule = brief(shard, planned), planned.schedule
    most = min(NEXT_RUNS, schedule.runs_max - planned.runs) if schedule.runs_max else NEXT_RUNS
    slots = schedule_checks.upcoming(shard, schedule, planned.anchor, planned.next_slot, most)
    last = tuple(_with_state(shard, planned, run) for run in planned.last or ())
    return msgspec.structs.replace(shown, next_runs=tuple(slots) if shown.state == "active" else (), last_runs=last)


def _with_state(shard: ShardState, planned: Planned, run: ScheduleRun) -> ScheduleRun:
    part = shard.find(run.job) if run.outcome == "pushed" else None
    if part is None or part.queue.tenant is not planned.queue.tenant:
        return run
    return msgspec.structs.replace(run, state=STATES[shard.state_of(part)])


# --- when a slot's time has come -------------------------------------------------------------------


def on_slot(shard: ShardState, at: int, schedules: list[Planned]) -> None:
    """Many at once are dealt with a hundred at a time, in their order."""
    backlog = shard.backlog
    for planned in sorted(schedules, key=in_order):
        if backlog or not shard.pace.admits(shard.now):
            backlog.join(at, shard.now, planned)
        else:
            deal_with(shard, planned, at, shard.now)
    arm_backlog(shard)


def on_backlog(shard: ShardState, at: int, backlogs: list[SlotBacklog]) -> None:
    """Others were dealt with before these; now it is their turn, as of the times at which they were due."""
    shard.backlog.armed = 0
    while shard.backlog and shard.pace.admits(shard.now):
        found = shard.backlog.first()
        if found is not None:
            due, noticed_at, planned = found
            deal_with(shard, planned, due, noticed_at)
    arm_backlog(shard)


def arm_backlog(shard: ShardState) -> None:
    backlog = shard.backlog
    if backlog and not backlog.armed:
        backlog.armed = max(shard.pace.next_at, shard.now + 1)
        shard.deadlines.arm(backlog.armed, kinds.SLOTS, backlog)


def deal_with(shard: ShardState, planned: Planned, at: int, noticed_at: int) -> None:
    slot = planned.next_slot
    due = slot + jitter(shard, planned.name, planned.schedule, slot) + shard.ahead_ms
    if due > at:
        arm(shard, planned, due)  # the clock on the wall was set back: its slots come later than they seemed to
    elif slot > planned.made_up_to and noticed_at - due > planned.schedule.grace_ms:
        miss(shard, planned, at)
    else:
        take(shard, planned, slot, at, planned.made_up_to)


def follow_calendar(shard: ShardState, ahead_ms: int) -> None:
    """The clock on the wall was set: slots come when it shows their times."""
    shard.ahead_ms = ahead_ms
    for tenant in shard.tenants.values():
        for queue in tenant.queues.values() if tenant.schedules else ():
            for planned in queue.schedules.values():
                arm(shard, planned, next_due(shard, planned, shard.now))


def in_order(planned: Planned) -> tuple[str, str, str]:
    return planned.queue.tenant.name, planned.queue.name, planned.name


def holds(at: int, planned: Planned) -> bool:
    return planned.due == at


def miss(shard: ShardState, planned: Planned, at: int) -> None:
    """Make up for missed slots, this one and perhaps later ones, as the schedule's `misfire` says."""
    schedule, first = planned.schedule, planned.next_slot
    last = last_due(shard, planned)
    late = shard.now - (last + jitter(shard, planned.name, schedule, last) + shard.ahead_ms)
    wanted = {"skip": 1 if late <= schedule.grace_ms else 0, "once": 1, "all": schedule.misfires_max}[schedule.misfire]
    start = last
    kept = 1
    while kept < wanted and start > first:
        start = last_until(shard.calendar, schedule, planned.anchor, start - 1)
        kept += 1
    if wanted and start <= first:
        take(shard, planned, first, at, made_up_to=last)
        return
    if wanted:
        until, following = last_until(shard.calendar, schedule, planned.anchor, start - 1), start
    else:
        until, following = last, next_slot(shard, planned, last)
    over = Over(first, at, following, last if wanted else 0)
    emit_passed(shard, planned, over, "missed", until=until)


def last_due(shard: ShardState, planned: Planned) -> int:
    """The latest slot whose time has come, with its jitter; at least the one that was waited for."""
    schedule, slot = planned.schedule, shard.now - shard.ahead_ms
    while True:
        slot = last_until(shard.calendar, schedule, planned.anchor, slot)
        if slot <= planned.next_slot:
            return planned.next_slot
        if slot + jitter(shard, planned.name, schedule, slot) + shard.ahead_ms <= shard.now:
            return slot
        slot -= 1


def next_slot(shard: ShardState, planned: Planned, slot: int) -> int:
    return first_after(shard.calendar, planned.schedule, planned.anchor, slot)


class Over(NamedTuple):
    """A slot that is dealt with, and what follows from that. Without a slot: a client asked for a job."""

    slot: int
    at: int
    following: int
    made_up_to: int = 0
    manual: bool = False


def take(shard: ShardState, planned: Planned, slot: int, at: int, made_up_to: int) -> None:
    """Push the job of a slot, or say why not."""
    over = Over(slot, at, next_slot(shard, planned, slot), made_up_to)
    hindering = hindered_by(shard, planned)
    size, tenant = len(planned.schedule.payload), planned.queue.tenant.name
    no_room = shard.no_room(tenant, size) if shard.no_room is not None else ""
    if hindering:
        emit_passed(shard, planned, over, "skipped", hindering, "overlap")
    elif planned.schedule.skip_if_no_worker and not has_worker(planned.queue, at):
        emit_passed(shard, planned, over, "skipped", reason="no_worker")
    elif no_room:
        emit_passed(shard, planned, over, "refused", reason=no_room)
    else:
        push(shard, planned, over)


def live_jobs(shard: ShardState, planned: Planned) -> list[int]:
    return [job for job in planned.jobs if shard.is_live(planned.queue.tenant, job)]


def hindered_by(shard: ShardState, planned: Planned) -> int:
    """The job that has to end before there may be another one; 0 = none."""
    if planned.schedule.overlap == "allow":
        return 0
    live = live_jobs(shard, planned)
    most = 1 if planned.schedule.overlap == "skip" else 2
    return live[0] if len(live) >= most else 0


def push(shard: ShardState, planned: Planned, over: Over) -> r.Pushed:
    queue, schedule, at = planned.queue, planned.schedule, over.at
    item = ClassifiedItem(0, payload_for(shard, planned, over), options_for(shard, planned, over.slot))
    if is_plain(item.options):
        item.id = make_id(shard.sequence + 1, shard.number)
    else:
        Classifier(shard, queue, [item], at).run({})
    if item.duplicate_by is not None:
        if item.extends:
            extend_key(shard, queue, item.options, at)
        emit_passed(shard, planned, over, "duplicate", item.id, item.duplicate_by)
        return r.Pushed(item.id, False, item.duplicate_by, shard.level)
    if item.replaces:
        cancel_jobs(shard, queue, [shard.part(item.replaces)], CANCELLED, Reason.REPLACED, at)
    is_last = schedule.runs_max and planned.runs + 1 >= schedule.runs_max
    shard.emit(
        rec.ScheduledPush(
            at,
            queue.tenant.name,
            queue.name,
            item.id,
            (item.payload,),
            item.options,
            due_of(shard, item.options, at),
            len(item.payload),
            planned.name,
            over.slot,
            0 if is_last else over.following,
            over.made_up_to,
            over.manual,
        )
    )
    return r.Pushed(item.id, True, None, shard.level)


def payload_for(shard: ShardState, planned: Planned, over: Over) -> bytes:
    schedule = planned.schedule
    if not schedule.template:
        return schedule.payload
    values = {
        "slot": shard.calendar.written(over.slot, schedule.zone),
        "slot_ms": str(over.slot),
        "schedule": planned.name,
        "run": str(planned.runs + (not over.manual)),
    }
    return payload_templates.filled(schedule.payload, schedule.options.codec, values)


def options_for(shard: ShardState, planned: Planned, slot: int) -> Options:
    """Those of the schedule; a job that may only wait behind another one depends on its end, however that is."""
    edges: tuple[Dependency, ...] = ()
    if planned.schedule.overlap == "queue":
        edges = tuple(Dependency(job, "continue") for job in live_jobs(shard, planned))
    return msgspec.structs.replace(planned.schedule.options, schedule=planned.name, slot=slot, depends_on=edges)


def emit_passed(
    shard: ShardState,
    planned: Planned,
    over: Over,
    outcome: SlotOutcome,
    job: int = 0,
    reason: str = "",
    *,
    until: int = 0,
) -> None:
    queue = planned.queue
    shard.emit(
        rec.SlotPassed(
            over.at,
            queue.tenant.name,
            queue.name,
            planned.name,
            over.slot,
            outcome,
            over.following,
            job,
            reason,
            until,
            over.made_up_to,
            over.manual,
        )
    )
