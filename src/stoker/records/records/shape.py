"""What records have in common: their base, and how they speak of jobs."""

import msgspec


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="t"):
    """Base of all records. They hold no cycles and are many: the garbage collector need not walk them."""


class Labels(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What readers of events want to group by, where it is not the default."""

    priority: int = 0
    tags: tuple[str, ...] = ()
    group_id: str | None = None
    trace: str | None = None
    parent_id: int | None = None
    name: str | None = None
    workflow: int | None = None
    schedule: str | None = None
    slot: int = 0


class Run(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Neighbouring jobs with the same story: everything that accounts for one delivery."""

    first: int
    count: int
    pushed_at: int
    attempt: int = 0
    started_at: int = 0
    worker: str = ""
    sizes: int | list[int] = 0
    """Payload bytes: of each job, or one number for all."""
    labels: Labels | None = None
