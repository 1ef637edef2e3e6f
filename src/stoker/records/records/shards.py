"""Records of the shard itself: it is opened, and talks with the other shards. The messages have tags of their own."""

import msgspec

from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.records.records.shape import Record
from stoker.records.records.workflows import WorkflowMade


class Opened(Record, frozen=True, gc=False, tag=33):
    """Somebody opened the journal: from here on ids and tokens start above these numbers.

    Whatever was given out before and lost with the power is never given out again.
    """

    at: int
    tenant: str
    epoch: int
    sequence: int
    token: int
    settings: Settings
    """How the shard behaves from here on; what happened before was decided by what stood here before."""
    limits: Limits


class PublishStages(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """A message: a transaction was decided, publish these of its stages."""

    transaction: str
    stages: list[str]


class AbortTransaction(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    """A message: a transaction was aborted, drop what is staged."""

    transaction: str


class StartWorkflow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=3):
    """A message: take part in a workflow with the payloads of these steps."""

    at: int
    made: WorkflowMade
    payloads: dict[int, list[bytes]]


class TellStep(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=4):
    """A message: how a step stands now; the fields of `StepHeard`, and whether the workflow is cancelled: whoever
    hears it from a step before he hears it from the workflow's home must not take it for a failure."""

    workflow: int
    step: int
    standing: int
    failing: bool
    round: int
    first: int
    count: int
    cancelled: bool = False


class CancelWorkflow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=5):
    workflow: int


class RetryWorkflow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=6):
    workflow: int
    round: int


class ForgetWorkflow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=7):
    workflow: int


class FillStep(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=8):
    workflow: int
    step: int
    payloads: list[bytes]


class Watch(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=9):
    """A message: say when these jobs end, as (job, who waits for it)."""

    pairs: list[tuple[int, int]]


class TellEnd(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=10):
    """A message: a job that these wait for has ended, well or not."""

    job: int
    good: bool
    waiting: list[int]


Message = (
    PublishStages
    | AbortTransaction
    | StartWorkflow
    | TellStep
    | CancelWorkflow
    | RetryWorkflow
    | ForgetWorkflow
    | FillStep
    | Watch
    | TellEnd
)
"""What shards have to say to each other."""


class Sent(Record, frozen=True, gc=False, tag=34):
    """A message to another shard waits to be taken there. Numbers count up for each pair of shards."""

    at: int
    tenant: str
    to: int
    number: int
    message: Message


class Taken(Record, frozen=True, gc=False, tag=35):
    """A message of another shard was taken, with whatever it asked for; it will not be taken again."""

    at: int
    tenant: str
    sender: int
    number: int


class Arrived(Record, frozen=True, gc=False, tag=36):
    """The other shard has taken the messages up to this number: they need not be sent again."""

    at: int
    tenant: str
    to: int
    number: int


class HeardEarly(Record, frozen=True, gc=False, tag=55):
    """Another shard spoke of a workflow before its home did: kept until that has come."""

    at: int
    tenant: str
    workflow: int
    message: TellStep | FillStep


class Watched(Record, frozen=True, gc=False, tag=56):
    """Jobs of other shards wait for jobs of this one, as (job, who waits)."""

    at: int
    tenant: str
    pairs: list[tuple[int, int]]
