"""Records of workflows and their steps. Each shard that has a part of a workflow keeps them."""

import msgspec

from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.records.records.shape import Record


class StepMade(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A step of a workflow. All shards that have a part of the workflow know all steps."""

    key: str
    queue: str
    shard: int
    after: list[tuple[int, int]]
    """Pairs of a step number and an index into `POLICIES`."""
    first: int = 0
    """The id of its first job; 0 if this shard does not know it."""
    count: int = 0
    options: Options = DEFAULT_OPTIONS
    is_open: bool = False


class WorkflowMade(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A workflow without its payloads."""

    id: int
    name: str
    steps: list[StepMade]


class WorkflowPushed(Record, frozen=True, gc=False, tag=47):
    """This shard is the home of a workflow or has a part of it. The pushes of its jobs here follow."""

    at: int
    tenant: str
    made: WorkflowMade


class StepReleased(Record, frozen=True, gc=False, tag=48):
    """All steps that a step waited for have ended: its blocked jobs became waiting, or delayed."""

    at: int
    tenant: str
    queue: str
    workflow: int
    step: int
    runs: list[tuple[int, int]]
    due: int = 0


class StepSkipped(Record, frozen=True, gc=False, tag=49):
    """A step without jobs failed, together with a step that it waited for."""

    at: int
    tenant: str
    workflow: int
    step: int


class StepFilled(Record, frozen=True, gc=False, tag=50):
    """An open step got its jobs, from this id on. Their push follows."""

    at: int
    tenant: str
    workflow: int
    step: int
    first: int
    count: int


class StepHeard(Record, frozen=True, gc=False, tag=51):
    """Another shard reported the standing of one of its steps."""

    at: int
    tenant: str
    workflow: int
    step: int
    standing: int
    failing: bool
    round: int
    first: int
    count: int


class WorkflowCancelled(Record, frozen=True, gc=False, tag=52):
    at: int
    tenant: str
    workflow: int


class WorkflowRetried(Record, frozen=True, gc=False, tag=53):
    """Failed jobs may be tried again. Failures reported in earlier rounds no longer count."""

    at: int
    tenant: str
    workflow: int
    round: int


class WorkflowForgotten(Record, frozen=True, gc=False, tag=54):
    at: int
    tenant: str
    workflow: int
