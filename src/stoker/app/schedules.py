"""Schedules declared beside their functions: `@app.schedule("0 8 * * *", zone="Europe/Vienna")`.

A declaration says what should be there. `app.sync_schedules()`, which a worker calls when it starts, sends it to the
queue. The queue keeps the schedules and pushes their jobs, whether or not a program of the app runs. Nothing here knows
a calendar.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from stoker.app.errors import BadSchedule
from stoker.app.jobtype import JobType, Step
from stoker.app.options import moment
from stoker.app.sync_or_async import Plan
from stoker.model import commands as c
from stoker.model.schedules import Misfire, Overlap, Schedule, SchedulePage
from stoker.model.units import Duration, duration_ms

OWNER = "app:{}"
"""The tag that marks an app's own schedules and their jobs."""


class Rule(TypedDict, total=False):
    """The arguments of `@app.schedule(...)` besides a cron expression."""

    every: Duration
    """An interval, instead of a cron expression; it never drifts."""
    at: datetime | int
    """Once, at this time, instead of either."""
    zone: str
    """The IANA time zone of the cron expression; the default is UTC."""
    start: datetime | int
    """No run is earlier than this."""
    end: datetime | int
    """All runs are earlier than this."""
    runs_max: int
    """End after this many jobs; 0 = never."""
    overlap: Overlap
    """While the job of an earlier run is live: `allow` another, `skip` this run, or `queue` one behind it."""
    skip_if_no_worker: bool
    """Whether a run is skipped when no worker is there: none runs a job of the queue, waits for one, or did in the last
    30 seconds."""
    misfire: Misfire
    """What to do with runs missed while the queue was down: push none (`skip`), the latest (`once`), or `all`."""
    misfires_max: int
    """At most this many missed runs are pushed."""
    grace: Duration
    """A run that comes later than this counts as missed."""
    jitter: Duration
    """Delay each job by up to this long, by a number drawn from its run."""
    template: bool
    """Whether `{slot}`, `{slot_ms}`, `{schedule}` and `{run}` in text arguments are filled in for each job."""


DURATIONS = {"every": "every_ms", "grace": "grace_ms", "jitter": "jitter_ms"}
TIMES = {"at": "at", "start": "start_at", "end": "end_at"}


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule in the app's code."""

    name: str
    step: Step[Any]
    rule: Schedule

    def wanted(self, owner: str | None) -> Schedule:
        """The schedule as the queue should have it."""
        try:
            payload, options = self.step.written(validate=False if self.rule.template else None)
        except TypeError as error:
            job = self.step.job_type.name
            raise BadSchedule(f"schedule {self.name}: {error}: schedule a step, as in {job}.s(...)") from None
        if owner is not None:
            options = msgspec.structs.replace(options, tags=tuple(dict.fromkeys((*options.tags, owner))))
        return msgspec.structs.replace(self.rule, payload=payload, options=options)


@dataclass(frozen=True, slots=True)
class Synced:
    """What `sync_schedules` did, by names."""

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Unchanged."""
    deleted: list[str] = field(default_factory=list)
    """Made by this app earlier, and gone from its code."""


def rule_of(cron: str | None, given: Mapping[str, Any], label: str) -> Schedule:
    """Raises `BadSchedule` with what is wrong."""
    unknown = sorted(given.keys() - Rule.__annotations__.keys())
    if unknown:
        known = ", ".join(Rule.__annotations__)
        raise BadSchedule(f"{label}: unknown {', '.join(unknown)}; a schedule takes {known}")
    fields: dict[str, Any] = {}
    for name, value in given.items():
        try:
            if name in DURATIONS:
                fields[DURATIONS[name]] = duration_ms(value)
            elif name in TIMES:
                fields[TIMES[name]] = moment(value)
            else:
                fields[name] = value
        except (ValueError, TypeError) as error:
            raise BadSchedule(f"{label}: {name}: {error}") from None
    rules = [rule for rule in (cron, given.get("every"), given.get("at")) if rule is not None]
    if len(rules) != 1:
        raise BadSchedule(f"{label}: expected a cron expression, every= or at=, and only one of them")
    return Schedule(cron=cron, **fields)


def step_of(target: Any) -> Step[Any]:
    """What a schedule pushes: a step, or a kind of job without arguments."""
    if isinstance(target, Step):
        return target
    if isinstance(target, JobType):
        return Step(target, (), {})
    raise BadSchedule(f"{target!r} cannot be scheduled: expected a job; put @app.schedule above @app.job")


def check_name(declared: Declared, other: Declared | None) -> None:
    """A name can be used once. The same function may be scheduled again, because its module was imported again."""
    if other is None:
        return
    one, two = declared.step.job_type.definition, other.step.job_type.definition
    if one is two or one.origin != two.origin:
        raise BadSchedule(f"there is already a schedule {declared.name!r}, of {other.step!r}: rename one of them")


# --- telling the queue -------------------------------------------------------------------------------


def sync(wanted: Mapping[tuple[str, str], Schedule], owner: str | None) -> Plan[Synced]:
    """Everything is computed before anything changes: a schedule with bad arguments leaves the queue as it is."""
    there = yield from all_schedules()
    done = Synced()
    for place, schedule in wanted.items():
        found = there.get(place)
        if found == schedule:
            done.kept.append(place[1])
            continue
        yield c.PutSchedule(*place, schedule)
        (done.created if found is None else done.changed).append(place[1])
    for place, schedule in there.items():
        if place not in wanted and owner is not None and owner in schedule.options.tags:
            yield c.DeleteSchedule(*place)
            done.deleted.append(place[1])
    return done


def all_schedules() -> Plan[dict[tuple[str, str], Schedule]]:
    found: dict[tuple[str, str], Schedule] = {}
    after: str | None = None
    while True:
        page: SchedulePage = yield c.ListSchedules(after=after)
        found.update({(view.queue, view.name): view.schedule for view in page.schedules})
        after = page.next_after
        if after is None:
            return found
