"""Requests about schedules."""

from msgspec import Raw

from stoker.model.schedules import Misfire, Overlap
from stoker.wire.flashq.requests.producing import JobOptions, JobRequest
from stoker.wire.flashq.requests.shape import NOT_SAID, Request


class Cron(JobRequest, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a job again and again: by a cron expression in `schedule`, or every `repeat_every` milliseconds, or once."""

    name: str
    queue: str
    data: Raw = NOT_SAID
    schedule: str | None = None
    """Five fields, or six with the seconds first; `*/N` alone means every N seconds."""
    repeat_every: int | None = None
    at: int | None = None
    limit: int | None = None
    zone: str | None = None
    """The time zone of `schedule`; UTC where nothing is said."""
    start_at: int | None = None
    end_at: int | None = None
    overlap: Overlap = "allow"
    misfire: Misfire = "once"
    misfires_max: int = 100
    grace_ms: int = 60_000
    jitter_ms: int = 0
    template: bool = False
    immediately: bool = False
    """Push a job at once, too, if the schedule is new."""
    job_name: str | None = None
    """The kind of its jobs: here `name` is the schedule's own."""
    options: JobOptions | None = None
    """The options of its jobs, where they do not stand beside the name."""


class CronOf(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """About one schedule; its queue has to be said only where several have one of that name."""

    name: str
    queue: str | None = None


class CronGet(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Look at a schedule: its next five slots, and what became of the last twenty."""


class CronDelete(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Delete a schedule; its jobs stay."""


class CronPause(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Let the slots of a schedule pass without a job."""


class CronResume(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Go on with the next slot of a schedule."""


class CronRun(CronOf, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a job of a schedule now."""


class CronList(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Schedules of one queue or of all, in the order of queues and names."""

    queue: str | None = None
    name: str | None = None
    after: str | None = None
    limit: int = 1_000
