"""Which jobs a search, a count or a bulk operation is about.

`JobFilter` is the one list of what can be filtered by. `Browse` and `CountJobs` have the same fields, flat, because
people write them into URLs and call them by hand; a test compares the lists.
"""

from typing import Any

import msgspec

from stoker.model.states import State


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every field that is not None must hold."""

    queue: str | None = None
    state: State | None = None
    name: str | None = None
    tag: str | None = None
    group_id: str | None = None
    workflow: int | None = None
    parent_id: int | None = None
    """The job that pushed it."""
    worker: str | None = None
    """The worker that has the job, or had it last."""
    priority: int | None = None
    attempts_from: int | None = None
    """Jobs that were delivered at least this often."""
    pushed_from: int | None = None
    pushed_before: int | None = None
    ended_from: int | None = None
    ended_before: int | None = None
    """Jobs that ended in this range. Jobs that have not ended never match."""
    reason: str | None = None
    """Why it did not complete, as in dead letters."""
    fingerprint: str | None = None
    """The fingerprint of its last error (`model/fingerprints.py`)."""
    text: str | None = None
    """A text that occurs in the payload, in the last error or in the result, as UTF-8, in the same case."""


FIELDS: tuple[str, ...] = JobFilter.__struct_fields__
COUNTED = frozenset(("queue", "state"))
"""A filter by nothing else is counted exactly, by the counters of the queues."""


def filter_of(command: Any) -> JobFilter:
    """The filter that a command has in fields of its own."""
    return JobFilter(**{name: getattr(command, name) for name in FIELDS})


def fields_of(wanted: JobFilter) -> dict[str, Any]:
    """The filter as fields of a command."""
    return {name: getattr(wanted, name) for name in FIELDS}


def narrows_by(wanted: JobFilter) -> frozenset[str]:
    """The fields that are set."""
    return frozenset(name for name in FIELDS if getattr(wanted, name) is not None)
