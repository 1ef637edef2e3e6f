"""What a workflow is made of: steps of one or many jobs, and edges between them.

A step is jobs of one queue with the same options, and it starts when the steps that it comes after have ended. How a
workflow runs is the engine's business.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from stoker.model.options import DEFAULT_OPTIONS, DependencyPolicy, Options


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """Wait until every job of the step with this number has ended.

    `on_failure` says what happens if one of them fails, is cancelled or expires: the waiting jobs fail too (as soon as
    that is known), are cancelled too, or go on when all have ended.
    """

    step: int
    on_failure: DependencyPolicy = "fail"


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """Jobs of a workflow that are alike: one payload each, the same queue, options and edges.

    An `open` step has no payloads yet: a job of a step before it brings them while it runs (`FillStep`), or else the
    step has no jobs.
    """

    queue: str
    payloads: Sequence[bytes] = ()
    options: Options = DEFAULT_OPTIONS
    after: Sequence[Edge] = ()
    key: str = ""
    """A name of its own in the workflow; its number if it has none."""
    parent: int | None = None
    """The step whose (first) job is the parent of these jobs: a link for people and readers of events."""
    open: bool = False


class WorkflowState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    """All steps have ended, and those that nothing comes after ended well."""
    FAILED = "failed"
    CANCELLED = "cancelled"
