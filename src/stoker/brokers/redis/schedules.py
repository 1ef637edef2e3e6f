"""Schedules: the engine's own functions decide over what Redis has, and it is written if nothing has changed."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stoker.brokers.redis.calls import Plan, PlanContext, Rejected, ScriptCall, decode, encode
from stoker.brokers.redis.history import TICK
from stoker.brokers.redis.views import encode_options
from stoker.engine import checks, schedule_checks, schedules
from stoker.engine.apply import schedules as apply_schedules
from stoker.engine.jobs import ACTIVE
from stoker.engine.shard import Shard
from stoker.engine.state import Planned, QueueState, Tenant
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.limits import Limits
from stoker.model.schedules import LAST_RUNS, Schedule, SchedulePage, ScheduleRun, ScheduleView
from stoker.model.states import STATES
from stoker.records import records as rec
from stoker.runtime.calendar import IanaCalendar

_schedule = msgspec.msgpack.Decoder(Schedule).decode


class OneSchedule(Shard):
    """A shard with one schedule in it, as Redis has it: the engine decides about it here, and its records are sent."""

    def __init__(self, context: PlanContext, now: int) -> None:
        super().__init__(0, context.settings.engine, context.limits)
        self.calendar = IanaCalendar()
        self.now = now
        self.tenant_name = context.tenant
        self._live: set[int] = set()
        self._has_room = True
        self.version = 0

    def is_live(self, tenant: Tenant, job_id: int) -> bool:
        return job_id in self._live

    def learn(self, queue: str, schedules: int, queues: int, known: int) -> None:
        """How many the tenant has: the engine refuses one too many before it looks at slots."""
        self._has_room = bool(known) or queues < self.limits.queues_per_tenant_max
        self.queue(self.tenant_name, queue)
        self.tenants[self.tenant_name].schedules = schedules

    def queue_for_writing(self, tenant: str, name: str) -> QueueState:
        if not self._has_room:
            raise too_many_queues(self.limits)
        return super().queue_for_writing(tenant, name)

    def load(self, queue_name: str, shown: Sequence[Any]) -> Planned:
        (name, version, state, live, states, active, seen), raw = decode(shown[0]), shown[1]
        created, changed, anchor, paused, runs, next_slot, due, done_to, made_up, jobs, last = state
        queue = self.queue(self.tenant_name, queue_name)
        queue.known = True
        queue.counts[ACTIVE] = active
        if seen is not None:
            queue.worker_seen_at = seen
        found: deque[ScheduleRun] = deque(maxlen=LAST_RUNS)
        for run, at_state in zip(last, states, strict=True):
            slot, at, outcome, job, reason, until, manual = run
            kept = STATES[at_state] if at_state >= 0 else None
            found.append(ScheduleRun(slot, at, outcome, job, reason, until, manual, kept))
        planned = Planned(name, queue, _schedule(raw), created, changed, anchor, paused, runs, next_slot, due)
        planned.done_to, planned.made_up_to, planned.jobs, planned.last = done_to, made_up, list(jobs), found
        queue.schedules[name] = planned
        self._live = {job for job, is_live in zip(jobs, live, strict=True) if is_live}
        self.version = version
        return planned


def too_many_queues(limits: Limits) -> errors.LimitExceeded:
    most = limits.queues_per_tenant_max
    return errors.LimitExceeded(f"{most} queues are there already: obliterate some, or use fewer names")


def state_of(planned: Planned) -> list[Any]:
    last = [(run.slot, run.at, run.outcome, run.job, run.reason, run.until, run.manual) for run in planned.last or ()]
    return [
        *(planned.created_at, planned.changed_at, planned.anchor, planned.paused, planned.runs, planned.next_slot),
        *(planned.due, planned.done_to, planned.made_up_to, planned.jobs, last),
    ]


def loaded(
    context: PlanContext, queue: str, name: str, now: int | None = None
) -> Plan[tuple[OneSchedule, Planned | None]]:
    if now is None:
        now = (yield TICK).now
    done = yield ScriptCall("schedule", {"what": "load", "queue": queue, "name": name})
    shard = OneSchedule(context, now)
    shown, *counts = done.values
    shard.learn(queue, *counts)
    return shard, None if shown is None else shard.load(queue, shown)


def decided(context: PlanContext, command: Any, decide: Callable[..., ScheduleView]) -> Plan[ScheduleView]:
    """Let the engine decide, and write what it has changed; once more if another client was quicker."""
    checks.name(command.queue)
    schedule_checks.name(command.name, context.limits)
    while True:
        shard, _ = yield from loaded(context, command.queue, command.name)
        reply = decide(shard, context.tenant, command, shard.now)
        record = shard.records[-1] if shard.records else None
        if record is None:
            return reply
        planned = shard.queue(context.tenant, command.queue).schedules[command.name]
        params = {"what": "put", "queue": command.queue, "name": command.name, "version": shard.version}
        params |= {"state": state_of(planned), "most": context.limits.schedules_per_tenant_max}
        params["watched"] = planned.schedule.skip_if_no_worker
        try:
            done = yield ScriptCall("schedule", params, (encode(planned.schedule), encode(record)))
        except Rejected as rejected:
            if rejected.code != "limit_exceeded":
                raise
            if rejected.message == b"queues":
                raise too_many_queues(context.limits) from None
            most = context.limits.schedules_per_tenant_max
            raise errors.LimitExceeded(f"{most} schedules are the most that a tenant may have: delete some") from None
        if done.values[0]:
            return msgspec.structs.replace(reply, level=context.level)


def put(context: PlanContext, command: c.PutSchedule) -> Plan[ScheduleView]:
    return (yield from decided(context, command, schedules.put))


def pause(context: PlanContext, command: c.PauseSchedule) -> Plan[ScheduleView]:
    return (yield from decided(context, command, schedules.pause))


def resume(context: PlanContext, command: c.ResumeSchedule) -> Plan[ScheduleView]:
    return (yield from decided(context, command, schedules.resume))


def delete(context: PlanContext, command: c.DeleteSchedule) -> Plan[r.Done]:
    checks.name(command.queue)
    schedule_checks.name(command.name, context.limits)
    yield TICK
    done = yield ScriptCall("schedule", {"what": "delete", "queue": command.queue, "name": command.name})
    return r.Done(done.values[0], context.level)


def get(context: PlanContext, command: c.GetSchedule) -> Plan[ScheduleView]:
    checks.name(command.queue)
    schedule_checks.name(command.name, context.limits)
    shard, _ = yield from loaded(context, command.queue, command.name)
    return schedules.get(shard, context.tenant, command, shard.now)


def list_all(context: PlanContext, command: c.ListSchedules) -> Plan[SchedulePage]:
    checks.count(command.limit, "limit", context.limits.browse_jobs_max)
    params: dict[str, Any] = {"what": "list", "queue": command.queue or ""}
    if command.queue is not None:
        checks.name(command.queue)
    if command.name is not None:
        schedule_checks.name(command.name, context.limits)
        params["name"] = command.name
    schedules.place_of(command.after)
    now = (yield TICK).now
    done = yield ScriptCall("schedule", params)
    shard = OneSchedule(context, now)
    for queue, shown in done.values[0]:
        shard.load(queue.decode(), shown)
    return schedules.list_all(shard, context.tenant, command, now)


# --- slots -----------------------------------------------------------------------------------------


def run(context: PlanContext, command: c.RunSchedule) -> Plan[r.Pushed]:
    checks.name(command.queue)
    schedule_checks.name(command.name, context.limits)
    while True:
        shard, planned = yield from loaded(context, command.queue, command.name)
        is_last = without_end(planned) if planned is not None else False
        schedules.run(shard, context.tenant, command, shard.now)
        planned = schedules.found(shard, context.tenant, command.queue, command.name)
        found = yield from written(context, shard, planned, is_last)
        if found is not None:
            job, by = found
            return r.Pushed(job, by is None, by, context.level)


def deal(context: PlanContext, place: str, at: int, now: int) -> Plan[None]:
    """The time of a slot has come. `place` is the queue and the name of its schedule."""
    length, _, rest = place.partition(":")
    queue, name = rest[: int(length)], rest[int(length) + 1 :]
    shard, planned = yield from loaded(context, queue, name, now)
    if planned is not None:
        is_last = without_end(planned)
        schedules.deal_with(shard, planned, at, now)
        yield from written(context, shard, planned, is_last)


def without_end(planned: Planned) -> bool:
    """Let the engine find the slot that follows even the last run: only the script sees whether that is a duplicate,
    which does not count. Returns whether a job that is pushed now is the last."""
    most = planned.schedule.runs_max
    planned.schedule = msgspec.structs.replace(planned.schedule, runs_max=0)
    return most > 0 and planned.runs + 1 >= most


def written(context: PlanContext, shard: OneSchedule, planned: Planned, is_last: bool) -> Plan[Any]:
    """Carry out what the engine has decided about a slot. None if the schedule has changed meanwhile."""
    params: dict[str, Any] = {"queue": planned.queue.name, "name": planned.name, "version": shard.version}
    record: Any = shard.records[-1] if shard.records else None
    if record is None:
        yield ScriptCall("schedule", params | {"what": "arm", "due": planned.due})
        return None
    following = record.next_slot
    due = 0
    if following:
        due = max(record.at, following + apply_schedules.jitter(shard, planned.name, planned.schedule, following))
    params |= {"following": following, "due": due, "made_up_to": record.made_up_to}
    if isinstance(record, rec.SlotPassed):
        told = (record.slot, record.at, record.outcome, record.job, record.reason, record.until, record.manual)
        done = yield ScriptCall("schedule", params | {"what": "pass", "run": told})
    else:
        params |= {"what": "push", "slot": record.slot, "at": record.at, "manual": record.manual, "last": is_last}
        done = yield ScriptCall("schedule", params, (encode_options(record.options), record.payloads[0]))
    if not done.values[0]:
        return None
    return decode(done.values[1]) if len(done.values) > 1 else (0, None)
