"""The parts of a workflow: steps of one or many jobs, and edges between them.

A step is jobs of one queue with the same options. It starts when the steps before it have ended. The engine decides how
a workflow runs.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from stoker.model.options import DEFAULT_OPTIONS, DependencyPolicy, Options


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """Wait until every job of the step with this number has ended.

    `on_failure` says what happens if one of them fails, is cancelled or expires: the waiting jobs `fail` too (as soon
    as that is known), `cancel`, or `continue` when all have ended.
    """

    step: int
    on_failure: DependencyPolicy = "fail"


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs of a workflow with the same queue, options and edges: one for each payload.

    An `open` step has no payloads yet. A running job of a step before it may bring them (`FillStep`); if none does, the
    step has no jobs.
    """

    queue: str
    payloads: Sequence[bytes] = ()
    options: Options = DEFAULT_OPTIONS
    after: Sequence[Edge] = ()
    key: str = ""
    """Its own name in the workflow; without one, its number is used."""
    parent: int | None = None
    """The step whose first job is the parent of these jobs: a link for people and readers of events."""
    open: bool = False


class WorkflowState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    """All steps have ended, and the steps that no other step comes after ended well."""
    FAILED = "failed"
    CANCELLED = "cancelled"
