"""Schedules: rules that push jobs at certain times.

A schedule belongs to the queue that it pushes to. Its *slots* are the times that its rule names. Each slot pushes at
most one job, even if the server restarts. Times are calendar milliseconds since the epoch.
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
"""How many coming slots are shown."""
LAST_RUNS = 20
"""How many past slots are shown, with their outcomes."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When jobs are pushed, and which. Exactly one of `cron`, `every_ms` and `at` is set.

    An unknown field is refused: if a limit is misspelt, there would be no limit.
    """

    cron: str | None = None
    """Five fields, or six with the seconds first. Names (`MON`, `JAN`) and shortcuts such as `@daily` are understood.
    """
    every_ms: int = 0
    """An interval, counted from `start_at`, or else from the creation of the schedule, so it never drifts."""
    at: int | None = None
    """Push once, at this time."""
    zone: str = "UTC"
    """The IANA time zone for `cron`, for example `Europe/Vienna`."""
    start_at: int | None = None
    """No slot is earlier than this."""
    end_at: int | None = None
    """All slots are earlier than this."""
    runs_max: int = 0
    """The schedule is over after this many jobs. Slots that push nothing do not count. 0 = no limit."""
    overlap: Overlap = "allow"
    """What to do while a job of an earlier slot is live: push anyway (`allow`), push nothing (`skip`), or let one job
    wait for its end (`queue`).
    """
    skip_if_no_worker: bool = False
    """Push nothing at a slot without a worker for the queue: none has a job of it, waits for one, or did in the last
    30 seconds.
    """
    misfire: Misfire = "once"
    """Which slots to make up for after they were missed, for example while the server was down: none, the latest one,
    or the latest `misfires_max`.
    """
    misfires_max: int = 100
    grace_ms: int = 60_000
    """A slot that is handled later than this counts as missed."""
    jitter_ms: int = 0
    """Push each job up to this much later. The delay is drawn from the slot, so it is the same after a restart."""
    payload: bytes = b""
    options: Options = DEFAULT_OPTIONS
    """The options of its jobs. Their `schedule` and `slot` are filled in."""
    template: bool = False
    """Whether to fill in `{slot}`, `{slot_ms}`, `{schedule}` and `{run}` in the texts of the payload."""


class ScheduleRun(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The outcome of a slot, or of several slots that were missed together (`until` is the last of them)."""

    slot: int
    at: int
    """When the outcome was decided."""
    outcome: SlotOutcome
    job: int = 0
    """The job that was pushed, or the job because of which none was."""
    reason: str = ""
    until: int = 0
    manual: bool = False
    """Whether the job was pushed by `run now`, not by a slot."""
    state: State | None = None
    """The state of the job that was pushed, while it is readable."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its state, its next slots and its last outcomes."""

    name: str
    queue: str
    schedule: Schedule
    state: ScheduleState
    created_at: int
    changed_at: int
    runs: int = 0
    """Jobs pushed by slots since the rule was last changed."""
    next_runs: Sequence[int] = ()
    """Coming slots: up to five; in a list of schedules only the next one."""
    last_runs: Sequence[ScheduleRun] = ()
    """Up to twenty outcomes, the latest last; empty in a list of schedules."""
    level: Level = "memory"


class SchedulePage(msgspec.Struct, frozen=True, gc=False):
    """Schedules ordered by queue and name. `next_after` is where the next page starts, None after the last one."""

    schedules: Sequence[ScheduleView]
    next_after: str | None = None
