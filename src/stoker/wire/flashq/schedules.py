"""Schedules in flashQ's words: CRON, CRONLIST, CRONDELETE, and what flashQ had no words for.

In flashQ a schedule has a name of its own; in Stoker it belongs to a queue. A request without a queue means the only
schedule of that name. A CRON with a name that another queue has replaces that schedule.
"""

import re
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, NotFound
from stoker.model.schedules import Schedule, SchedulePage, ScheduleView
from stoker.wire.flashq import requests as q
from stoker.wire.flashq.answers import Answer, Plan, done
from stoker.wire.flashq.context import RequestContext
from stoker.wire.flashq.option_mapping import options_of
from stoker.wire.flashq.payloads import shown, stored_as

SECONDS = re.compile(r"\*/([0-9]{1,9})")
"""flashQ's own: a single field is an interval in seconds."""


def put(request: q.Cron, context: RequestContext) -> Plan:
    schedule = schedule_of(request, context)
    before: SchedulePage = yield c.ListSchedules(name=request.name)
    view: ScheduleView = yield c.PutSchedule(request.queue, request.name, schedule)
    for other in before.schedules:
        if other.queue != request.queue:
            yield c.DeleteSchedule(other.queue, other.name)
    if request.immediately and all(other.queue != request.queue for other in before.schedules):
        yield c.RunSchedule(request.queue, request.name)
    return done(cron=described(view, context), level=view.level)


def schedule_of(request: q.Cron, context: RequestContext) -> Schedule:
    wanted = request if request.options is None else request.options
    options = msgspec.structs.replace(
        options_of(wanted, context.codec), name=request.job_name if request.options is None else request.options.name
    )
    interval = SECONDS.fullmatch(request.schedule.strip()) if request.schedule is not None else None
    every = int(interval[1]) * 1_000 if interval is not None else request.repeat_every
    return Schedule(
        cron=None if interval is not None else request.schedule,
        every_ms=every or 0,
        at=request.at,
        zone=request.zone or "UTC",
        start_at=request.start_at,
        end_at=request.end_at,
        runs_max=request.limit or 0,
        overlap=request.overlap,
        skip_if_no_worker=request.skip_if_no_worker,
        misfire=request.misfire,
        misfires_max=request.misfires_max,
        grace_ms=request.grace_ms,
        jitter_ms=request.jitter_ms,
        payload=stored_as(request.data, context.codec, wanted.codec),
        options=options,
        template=request.template,
    )


def listed(request: Any, page: SchedulePage, context: RequestContext) -> Answer:
    crons = [described(view, context) for view in page.schedules]
    return done(crons=crons, jobs=crons, next_after=page.next_after)


def looked_at(request: Any, view: ScheduleView, context: RequestContext) -> Answer:
    return done(cron=described(view, context))


def changed(request: Any, view: ScheduleView, context: RequestContext) -> Answer:
    return done(cron=described(view, context), level=view.level)


def deleted(request: Any, reply: r.Done, context: RequestContext) -> Answer:
    if not reply.count:
        raise not_found(request.name)
    return done(deleted=True, level=reply.level)


def of_one(command: Any, answer: Callable[[Any, Any, RequestContext], Answer]) -> Callable[[Any, RequestContext], Plan]:
    """The steps of a command about one schedule: find its queue if none is said, then the command itself."""

    def steps(request: Any, context: RequestContext) -> Plan:
        queue = yield from queue_of(request)
        return answer(request, (yield command(queue, request.name)), context)

    return steps


def queue_of(request: Any) -> Generator[c.Command[Any], Any, str]:
    """The queue that is meant."""
    if request.queue is not None:
        queue: str = request.queue
        return queue
    found: SchedulePage = yield c.ListSchedules(name=request.name)
    queues = [view.queue for view in found.schedules]
    if not queues:
        raise not_found(request.name)
    if len(queues) > 1:
        raise InvalidRequest(
            f"invalid name {request.name[:80]!r}: schedules of this name are in the queues {', '.join(queues[:5])};"
            " say which one is meant, with `queue`"
        )
    return queues[0]


def not_found(name: str) -> NotFound:
    return NotFound(f"Cron job not found: {name[:80]}")


def described(view: ScheduleView, context: RequestContext) -> Answer:
    schedule = view.schedule
    found: Answer = {
        "name": view.name,
        "queue": view.queue,
        "schedule": schedule.cron,
        "repeat_every": schedule.every_ms or None,
        "at": schedule.at,
        "zone": schedule.zone,
        "timezone": schedule.zone,
        "data": shown(schedule.payload, schedule.options.codec, context.codec),
        "priority": schedule.options.priority,
        "limit": schedule.runs_max or None,
        "executions": view.runs,
        "next_run": view.next_runs[0] if view.next_runs else None,
        "state": view.state,
        "overlap": schedule.overlap,
        "misfire": schedule.misfire,
        "created_at": view.created_at,
        "changed_at": view.changed_at,
        "rule": schedule,
        "job_name": schedule.options.name,
    }
    if view.last_runs or len(view.next_runs) > 1:
        found["next_runs"], found["last_runs"] = list(view.next_runs), list(view.last_runs)
    return found
