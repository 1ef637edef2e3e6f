"""Jobs that are pushed by the clock: when, what, and what becomes of a slot that comes too late or too early.

A schedule belongs to the queue that it pushes to. Its *slots* are the times that its rule names; each of them is pushed
at most once, whatever happens to the server in between. Times are milliseconds of the calendar, since the epoch.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.model.replies import Level
from stoker.model.states import State

Overlap = Literal["allow", "skip", "queue"]
Misfire = Literal["skip", "once", "all"]
SlotOutcome = Literal["pushed", "skipped", "missed", "duplicate", "refused"]
ScheduleState = Literal["active", "paused", "over"]

NEXT_RUNS = 5
"""So many slots to come are shown."""
LAST_RUNS = 20
"""So many slots of the past are shown, with what became of them."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When jobs are pushed, and which. Exactly one of `cron`, `every_ms` and `at` is set.

    A field that there is not is refused: a misspelt limit would otherwise be none.
    """

    cron: str | None = None
    """Five fields, or six with the seconds first; names (`MON`, `JAN`) and `@daily` and the like are understood."""
    every_ms: int = 0
    """An interval, counted from `start_at` or else from the moment in which the schedule was made: it never drifts."""
    at: int | None = None
    """Once, at this time."""
    zone: str = "UTC"
    """The time zone of the IANA in which `cron` is read: `Europe/Vienna`."""
    start_at: int | None = None
    """No slot is earlier than this."""
    end_at: int | None = None
    """All slots are earlier than this."""
    runs_max: int = 0
    """Over after so many jobs; slots that push nothing do not count. 0 = never."""
    overlap: Overlap = "allow"
    """While a job of an earlier slot is live: push all the same, push nothing, or let one job wait for its end."""
    skip_if_no_worker: bool = False
    """Push nothing at a slot for which no worker is there: none has a job of the queue, waits for one, or did in the
    last 30 seconds."""
    misfire: Misfire = "once"
    """Of slots that nobody was there for: push none, the latest, or the latest `misfires_max`."""
    misfires_max: int = 100
    grace_ms: int = 60_000
    """A slot that comes later than this counts as missed."""
    jitter_ms: int = 0
    """Each slot's job is pushed up to so much later, by a number drawn from the slot."""
    payload: bytes = b""
    options: Options = DEFAULT_OPTIONS
    """Of its jobs; their `schedule` and `slot` are filled in."""
    template: bool = False
    """Whether `{slot}`, `{slot_ms}`, `{schedule}` and `{run}` in the payload's texts are filled in for each job."""


class ScheduleRun(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of a slot, or of several that were missed together (`until` is the last of them)."""

    slot: int
    at: int
    """When that was decided."""
    outcome: SlotOutcome
    job: int = 0
    """The job that was pushed, or because of which none was."""
    reason: str = ""
    until: int = 0
    manual: bool = False
    """Somebody asked for it: `run now`."""
    state: State | None = None
    """Of the job that was pushed, while it is readable."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, how it stands, what it will do and what it has done."""

    name: str
    queue: str
    schedule: Schedule
    state: ScheduleState
    created_at: int
    changed_at: int
    runs: int = 0
    """Jobs pushed by slots since its rule was last changed."""
    next_runs: Sequence[int] = ()
    """Slots to come: up to five, in a list of schedules only the next one."""
    last_runs: Sequence[ScheduleRun] = ()
    """Up to twenty, the latest last; empty in a list of schedules."""
    level: Level = "memory"


class SchedulePage(msgspec.Struct, frozen=True, gc=False):
    """Schedules in the order of their queues and names, and where the next page starts: None after the last one."""

    schedules: Sequence[ScheduleView]
    next_after: str | None = None
