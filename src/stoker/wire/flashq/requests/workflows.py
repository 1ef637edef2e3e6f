"""Requests about workflows: graphs of steps, and what running jobs of one ask for."""

import msgspec

from stoker.model.options import Codec, DependencyPolicy
from stoker.model.replies import Level
from stoker.wire.flashq.requests.producing import JobOptions, PlainItem
from stoker.wire.flashq.requests.shape import Request


class WorkflowEdge(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A step to wait for, by its key or its number, and what the failure of one of its jobs means."""

    step: int | str
    on_failure: DependencyPolicy = "fail"


class WorkflowStep(JobOptions, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Jobs of one queue with the same options, and the steps that must end before they start."""

    queue: str
    jobs: list[PlainItem] = msgspec.field(default_factory=list)
    after: list[int | str | WorkflowEdge] = msgspec.field(default_factory=list)
    key: str = ""
    """A name of its own in the workflow; its number if it has none."""
    parent: int | str | None = None
    """The step whose first job is the parent of these jobs."""
    open: bool = False
    """It has no jobs yet: a running job of a step right before it brings them, with FILLSTEP."""


class Workflow(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Push a graph of jobs over any queues, all or none."""

    steps: list[WorkflowStep]
    name: str = ""
    request_key: str | None = None
    durability: Level | None = None


class WorkflowList(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Workflows, newest first."""

    state: str | None = None
    """`running`, `completed`, `failed` or `cancelled`."""
    name: str | None = None
    after: int | None = None
    limit: int = 100


class WorkflowGet(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """How far a workflow is, and how each of its steps stands."""

    id: int


class WorkflowCancel(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """End what has not started of a workflow, and tell what runs to stop."""

    id: int


class WorkflowRetry(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Go on with a workflow from the steps that failed."""

    id: int


class FillStep(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Give an open step its jobs: said by a running job of a step right before it. The first one counts."""

    id: int
    step: str
    """Its key, or its number."""
    jobs: list[PlainItem]
    token: int | None = None
    codec: Codec | None = None
    """How the payloads are to be stored, which is the codec of the step: as they came, where nothing is said."""


class GetInputs(Request, kw_only=True, forbid_unknown_fields=True, gc=False):
    """What the jobs have returned that a job comes after: those of the steps before its own, or of its `depends_on`."""

    id: int
    after: int = 0
    """So many of them are skipped."""
    limit: int = 1_000
