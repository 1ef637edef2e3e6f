"""Jobs that the clock pushes. Slots are plain ranges: all that there ever are, and one looks for the next in them."""

from bisect import bisect_left, bisect_right
from dataclasses import replace

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, LimitExceeded, NotFound, WrongState
from stoker.model.options import Dependency, Options
from stoker.model.schedules import Misfire, Overlap, Schedule, SchedulePage, ScheduleRun, ScheduleView, SlotOutcome
from stoker.model.states import State
from tests.model import reference_checks as check
from tests.model.reference_push import check_queue_fits, push_items
from tests.model.reference_world import Parked, Planned, World

Owner = tuple[str, str, str]

CRONS = {"* * * * *": 60_000, "*/15 * * * * *": 15_000, "@hourly": 3_600_000}
"""The only expressions that this reference understands: in UTC they are intervals from the epoch on."""
END = 10**15


def slots(rule: Schedule, anchor: int) -> range:
    """All slots that there ever are."""
    end = END if rule.end_at is None else rule.end_at
    if rule.at is not None:
        return range(rule.at, rule.at + 1)
    if rule.every_ms:
        start = anchor + rule.every_ms if rule.start_at is None else rule.start_at
        return range(start, end, rule.every_ms)
    assert rule.cron is not None
    step = CRONS[rule.cron]
    return range(-(-(rule.start_at or 0) // step) * step, end, step)


def first_after(rule: Schedule, anchor: int, time: int) -> int:
    all_of_them = slots(rule, anchor)
    place = bisect_right(all_of_them, time)
    return all_of_them[place] if place < len(all_of_them) else 0


# --- commands ------------------------------------------------------------------------------------


def check_name(world: World, name: str) -> None:
    if not name:
        raise InvalidRequest("a name is not empty")
    check.key(name, world.limits)


def find(world: World, tenant: str, queue: str, name: str) -> Planned | None:
    check.name(queue)
    check_name(world, name)
    return world.schedules.get((tenant, queue, name))


def found(world: World, tenant: str, queue: str, name: str) -> Planned:
    planned = find(world, tenant, queue, name)
    if planned is None:
        raise NotFound("no such schedule")
    return planned


def check_rule(world: World, rule: Schedule) -> None:
    limits = world.limits
    check.duration(rule.every_ms)
    if [rule.cron is not None, rule.every_ms > 0, rule.at is not None].count(True) != 1:
        raise InvalidRequest("one of the three")
    if rule.every_ms and rule.every_ms < limits.schedule_interval_ms_min:
        raise LimitExceeded("too often")
    if rule.start_at is not None and rule.end_at is not None and rule.end_at <= rule.start_at:
        raise InvalidRequest("the end is before the start")
    check.number(rule.runs_max, 0)
    check.one_of(rule.overlap, Overlap)
    check.one_of(rule.misfire, Misfire)
    check.number(rule.misfires_max, 1, limits.schedule_catch_up_max)
    check.duration(rule.grace_ms)
    check.duration(rule.jitter_ms)
    check.size(rule.payload, limits.schedule_payload_bytes_max)
    check.options(rule.options, limits)


def rule_of(rule: Schedule) -> Schedule:
    """Only that of it which says when its slots are."""
    return Schedule(
        cron=rule.cron,
        every_ms=rule.every_ms,
        at=rule.at,
        zone=rule.zone,
        start_at=rule.start_at,
        end_at=rule.end_at,
    )


def put(world: World, tenant: str, command: c.PutSchedule) -> ScheduleView:
    owner, rule, now = (tenant, command.queue, command.name), command.schedule, world.now
    before = find(world, *owner)
    if before is not None and before.rule == rule:
        return view(world, owner)
    check_rule(world, rule)
    if before is None:
        mine = [one for one in world.schedules if one[0] == tenant]
        if len(mine) >= world.limits.schedules_per_tenant_max:
            raise LimitExceeded("too many schedules")
        check_queue_fits(world, tenant, command.queue)
    is_new = before is None or rule_of(before.rule) != rule_of(rule)
    if before is not None and not is_new:
        planned = replace(before, rule=rule, changed_at=now)
    else:
        planned = replace(
            before or Planned(rule, now, now, now), rule=rule, changed_at=now, anchor=now, runs=0, next_slot=0
        )
    if not planned.next_slot:
        since = now if rule.at is None else now - rule.grace_ms - 1
        planned = replace(planned, next_slot=first_after(rule, planned.anchor, max(since, planned.done_to)))
    if is_new and not planned.next_slot:
        raise InvalidRequest("it would never run")
    if planned.next_slot:
        check_gaps(world, planned)
    if rule.runs_max and planned.runs >= rule.runs_max:
        planned = replace(planned, next_slot=0)
    world.make_queue(tenant, command.queue)
    world.schedules[owner] = replace(planned, excused_to=0, decided_at=now)
    return view(world, owner)


def check_gaps(world: World, planned: Planned) -> None:
    following = first_after(planned.rule, planned.anchor, planned.next_slot)
    gap = following - planned.next_slot
    if following and planned.rule.grace_ms > gap * world.limits.schedule_catch_up_max:
        raise LimitExceeded("too many slots at once")


def pause(world: World, tenant: str, command: c.PauseSchedule) -> ScheduleView:
    owner = (tenant, command.queue, command.name)
    planned = found(world, *owner)
    if not planned.paused:
        world.schedules[owner] = replace(planned, paused=True, excused_to=0)
    return view(world, owner)


def resume(world: World, tenant: str, command: c.ResumeSchedule) -> ScheduleView:
    owner = (tenant, command.queue, command.name)
    planned = found(world, *owner)
    if planned.paused:
        slot = planned.next_slot
        if slot and slot <= world.now:
            slot = first_after(planned.rule, planned.anchor, world.now)
        world.schedules[owner] = replace(planned, paused=False, next_slot=slot, excused_to=0, decided_at=world.now)
    return view(world, owner)


def delete(world: World, tenant: str, command: c.DeleteSchedule) -> r.Done:
    if find(world, tenant, command.queue, command.name) is None:
        return r.Done(0)
    del world.schedules[tenant, command.queue, command.name]
    return r.Done()


def run(world: World, tenant: str, command: c.RunSchedule) -> r.Pushed:
    owner = (tenant, command.queue, command.name)
    planned = found(world, *owner)
    if hindering(world, owner):
        raise WrongState("another one is not over")
    outcome = push(world, owner, world.now)
    happened: SlotOutcome = "pushed" if outcome.created else "duplicate"
    note(world, owner, world.now, happened, outcome.id, outcome.duplicate_by or "", manual=True)
    planned = world.schedules[owner]
    if outcome.created:
        world.schedules[owner] = replace(planned, jobs=(*planned.jobs, outcome.id))
    return outcome


# --- views ---------------------------------------------------------------------------------------


def brief(world: World, owner: Owner) -> ScheduleView:
    planned = world.schedules[owner]
    state = "over" if not planned.next_slot else "paused" if planned.paused else "active"
    return ScheduleView(
        name=owner[2],
        queue=owner[1],
        schedule=planned.rule,
        state=state,  # type: ignore[arg-type]
        created_at=planned.created_at,
        changed_at=planned.changed_at,
        runs=planned.runs,
        next_runs=(planned.next_slot,) if state == "active" else (),
    )


def view(world: World, owner: Owner) -> ScheduleView:
    planned, shown = world.schedules[owner], brief(world, owner)
    to_come: list[int] = []
    if shown.state == "active":
        all_of_them = slots(planned.rule, planned.anchor)
        place = bisect_left(all_of_them, planned.next_slot)
        to_come = list(all_of_them[place : place + 5])
        if planned.rule.runs_max:
            to_come = to_come[: planned.rule.runs_max - planned.runs]
    history = [with_state(world, owner[0], one) for one in planned.history]
    return msgspec.structs.replace(shown, next_runs=to_come, last_runs=history)


def with_state(world: World, tenant: str, one: ScheduleRun) -> ScheduleRun:
    job = world.job(tenant, one.job) if one.outcome == "pushed" else None
    return msgspec.structs.replace(one, state=job.state) if job is not None else one


def get(world: World, tenant: str, command: c.GetSchedule) -> ScheduleView:
    found(world, tenant, command.queue, command.name)
    return view(world, (tenant, command.queue, command.name))


def list_all(world: World, tenant: str, command: c.ListSchedules) -> SchedulePage:
    check.number(command.limit, 1, world.limits.browse_jobs_max)
    if command.queue is not None:
        check.name(command.queue)
    wanted = [
        owner
        for owner in sorted(world.schedules)
        if owner[0] == tenant and command.queue in (None, owner[1]) and command.name in (None, owner[2])
    ]
    assert len(wanted) <= command.limit, "this reference turns no pages"
    return SchedulePage([brief(world, owner) for owner in wanted])


# --- slots ---------------------------------------------------------------------------------------


def reach_slot(world: World, owner: Owner) -> None:
    """The time of its next slot has come, and perhaps long gone."""
    planned = world.schedules[owner]
    rule, slot = planned.rule, planned.next_slot
    if slot <= planned.excused_to or world.looked_at - slot <= rule.grace_ms:
        take(world, owner, slot, planned.excused_to)
        return
    all_of_them = slots(rule, planned.anchor)
    overdue = all_of_them[bisect_left(all_of_them, slot) : bisect_right(all_of_them, world.looked_at)]
    last = overdue[-1]
    if rule.misfire == "all":
        made_up = overdue[-rule.misfires_max :]
    elif rule.misfire == "once" or world.looked_at - last <= rule.grace_ms:
        made_up = overdue[-1:]
    else:
        made_up = overdue[:0]
    if made_up and made_up[0] == slot:
        take(world, owner, slot, last)
        return
    until = overdue[len(overdue) - len(made_up) - 1]
    note(world, owner, slot, "missed", until=until)
    following = made_up[0] if made_up else first_after(rule, planned.anchor, last)
    go_on(world, owner, until, following, last if made_up else 0)


def take(world: World, owner: Owner, slot: int, excused_to: int) -> None:
    planned = world.schedules[owner]
    following = first_after(planned.rule, planned.anchor, slot)
    other = hindering(world, owner)
    if other:
        note(world, owner, slot, "skipped", other, "overlap")
    elif planned.rule.skip_if_no_worker and not has_worker(world, owner):
        note(world, owner, slot, "skipped", reason="no_worker")
    else:
        outcome = push(world, owner, slot)
        note(world, owner, slot, "pushed" if outcome.created else "duplicate", outcome.id, outcome.duplicate_by or "")
        if outcome.created:
            planned = world.schedules[owner]
            world.schedules[owner] = replace(planned, runs=planned.runs + 1, jobs=(*planned.jobs, outcome.id))
            if planned.runs + 1 == planned.rule.runs_max:
                following = 0
    go_on(world, owner, slot, following, excused_to)


def has_worker(world: World, owner: Owner) -> bool:
    """Who has a job of the queue, waits for one, or did so or settled one in the last 30 seconds."""
    tenant, name, _ = owner
    queue = world.queue(tenant, name)
    assert queue is not None
    times = [parked.until for parked in world.parked if parked.tenant == tenant and waits_for(parked, name)]
    if queue.worker_seen_at is not None:
        times.append(queue.worker_seen_at)
    return bool(world.jobs_in(queue, State.ACTIVE)) or any(world.now - time <= 30_000 for time in times)


def waits_for(parked: Parked, queue: str) -> bool:
    return isinstance(parked.command, c.Pull) and queue in parked.command.queues


def go_on(world: World, owner: Owner, done_to: int, following: int, excused_to: int) -> None:
    world.schedules[owner] = replace(
        world.schedules[owner], done_to=done_to, next_slot=following, excused_to=excused_to, decided_at=world.now
    )


def note(
    world: World,
    owner: Owner,
    slot: int,
    outcome: SlotOutcome,
    job: int = 0,
    reason: str = "",
    *,
    until: int = 0,
    manual: bool = False,
) -> None:
    planned = world.schedules[owner]
    one = ScheduleRun(slot, world.now, outcome, job, reason, until, manual)
    world.schedules[owner] = replace(planned, history=(*planned.history, one)[-20:])


def live_jobs(world: World, owner: Owner) -> list[int]:
    """Of the last two that it pushed."""
    jobs = [world.given(job_id) for job_id in world.schedules[owner].jobs[-2:]]
    return [job.id for job in jobs if job is not None and job.live]


def hindering(world: World, owner: Owner) -> int:
    live, overlap = live_jobs(world, owner), world.schedules[owner].rule.overlap
    too_many = len(live) >= {"allow": 3, "skip": 1, "queue": 2}[overlap]
    return live[0] if too_many else 0


def push(world: World, owner: Owner, slot: int) -> r.Pushed:
    tenant, queue, name = owner
    rule = world.schedules[owner].rule
    options: Options = msgspec.structs.replace(rule.options, schedule=name, slot=slot)
    if rule.overlap == "queue":
        edges = tuple(Dependency(job, "continue") for job in live_jobs(world, owner))
        options = msgspec.structs.replace(options, depends_on=edges)
    payload = rule.payload.replace(b"{slot_ms}", str(slot).encode()) if rule.template else rule.payload
    [outcome] = push_items(world, tenant, queue, [(payload, options)])
    assert outcome.error is None
    return r.Pushed(outcome.job, outcome.created, outcome.duplicate_by)
