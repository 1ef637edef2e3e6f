"""What records have in common: their base class, and how they name jobs."""

import msgspec


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="t"):
    """The base of all records. They are many and contain no cycles, so the garbage collector does not track them."""


class Labels(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Job options that readers of events group by. Options with their default values are left out."""

    priority: int = 0
    tags: tuple[str, ...] = ()
    group_id: str | None = None
    trace: str | None = None
    parent_id: int | None = None
    name: str | None = None
    workflow: int | None = None
    schedule: str | None = None
    slot: int = 0


class JobRun(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Neighbouring jobs with the same history, and everything that accounts for one delivery."""

    first: int
    count: int
    pushed_at: int
    attempt: int = 0
    started_at: int = 0
    worker: str = ""
    sizes: int | list[int] = 0
    """The payload size of each job, or one number for all."""
    labels: Labels | None = None
    ready_at: int = 0
    """Since when they could be delivered: the push, or the end of a delay, a backoff, a dependency or a stay among the
    dead letters. 0 = unknown, in logs of earlier releases.
    """
