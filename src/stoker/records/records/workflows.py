"""Records of workflows and their steps, as each shard that has a part in one keeps them."""

import msgspec

from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.records.records.shape import Record


class StepMade(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A step of a workflow, as all shards know it that have a part of the workflow."""

    key: str
    queue: str
    shard: int
    after: list[tuple[int, int]]
    """Number of the step and place of the policy in `POLICIES`."""
    first: int = 0
    """The id of its first job; 0 where that is not known here."""
    count: int = 0
    options: Options = DEFAULT_OPTIONS
    is_open: bool = False


class WorkflowMade(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A workflow without its payloads."""

    id: int
    name: str
    steps: list[StepMade]


class WorkflowPushed(Record, frozen=True, gc=False, tag=47):
    """A workflow that this shard has a part in, or is the home of; pushes of its jobs here follow."""

    at: int
    tenant: str
    made: WorkflowMade


class StepReleased(Record, frozen=True, gc=False, tag=48):
    """All that a step waited for has ended: its blocked jobs wait now, or are delayed."""

    at: int
    tenant: str
    queue: str
    workflow: int
    step: int
    runs: list[tuple[int, int]]
    due: int = 0


class StepSkipped(Record, frozen=True, gc=False, tag=49):
    """A step without jobs has failed with one that it waited for."""

    at: int
    tenant: str
    workflow: int
    step: int


class StepFilled(Record, frozen=True, gc=False, tag=50):
    """An open step has got its jobs, from this id on; their push follows."""

    at: int
    tenant: str
    workflow: int
    step: int
    first: int
    count: int


class StepHeard(Record, frozen=True, gc=False, tag=51):
    """Another shard has said how a step of its own stands."""

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
    """What has failed may be tried again; what was heard of failures in rounds before this one no longer counts."""

    at: int
    tenant: str
    workflow: int
    round: int


class WorkflowForgotten(Record, frozen=True, gc=False, tag=54):
    at: int
    tenant: str
    workflow: int
