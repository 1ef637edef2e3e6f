"""Records of the shard itself: it is opened, and exchanges messages with other shards. Messages have their own tags."""

import msgspec

from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.records.records.shape import Record
from stoker.records.records.workflows import WorkflowMade


class Opened(Record, frozen=True, gc=False, tag=33):
    """A process opened the journal. From here on, ids and tokens start above these numbers.

    So numbers that were given out and lost in a power cut are never given out again.
    """

    at: int
    tenant: str
    epoch: int
    sequence: int
    token: int
    settings: Settings
    """The settings from here on. Earlier records were decided under the settings of the `Opened` record before them."""
    limits: Limits


class PublishStages(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """A message: a transaction was decided; publish these of its stages."""

    transaction: str
    stages: list[str]


class AbortTransaction(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    """A message: a transaction was aborted; drop its stages."""

    transaction: str


class StartWorkflow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=3):
    """A message: take part in a workflow, with the payloads of these steps."""

    at: int
    made: WorkflowMade
    payloads: dict[int, list[bytes]]


class TellStep(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=4):
    """A message: the standing of a step, with the fields of `StepHeard`.

    `cancelled` tells whether the workflow is cancelled. A shard may hear of it from a step before it hears it from the
    workflow's home, and must not take the step for failed.
    """

    workflow: int
    step: int
    standing: int
    failing: bool
    round: int
    first: int
    count: int
    cancelled: bool = False


class CancelWorkflowHere(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=5):
    workflow: int


class RetryWorkflowHere(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=6):
    workflow: int
    round: int


class ForgetWorkflow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=7):
    workflow: int


class FillStepHere(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=8):
    workflow: int
    step: int
    payloads: list[bytes]


class Watch(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=9):
    """A message: report when these jobs end, as (job, the job that waits for it)."""

    pairs: list[tuple[int, int]]


class TellEnd(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=10):
    """A message: a job that these jobs wait for has ended, `good` or not."""

    job: int
    good: bool
    waiting: list[int]


Message = (
    PublishStages
    | AbortTransaction
    | StartWorkflow
    | TellStep
    | CancelWorkflowHere
    | RetryWorkflowHere
    | ForgetWorkflow
    | FillStepHere
    | Watch
    | TellEnd
)
"""All messages between shards."""


class MessageSent(Record, frozen=True, gc=False, tag=34):
    """A message to another shard was written and has to be taken there. Numbers count up for each pair of shards."""

    at: int
    tenant: str
    to: int
    number: int
    message: Message


class MessageTaken(Record, frozen=True, gc=False, tag=35):
    """A message of another shard was taken and carried out. It will not be taken again."""

    at: int
    tenant: str
    sender: int
    number: int


class MessagesArrived(Record, frozen=True, gc=False, tag=36):
    """The other shard has taken the messages up to this number, so they need not be sent again."""

    at: int
    tenant: str
    to: int
    number: int


class HeardEarly(Record, frozen=True, gc=False, tag=55):
    """A message about a workflow arrived before the workflow itself. It is kept until the workflow arrives from its
    home.
    """

    at: int
    tenant: str
    workflow: int
    message: TellStep | FillStepHere


class Watched(Record, frozen=True, gc=False, tag=56):
    """Jobs of other shards wait for jobs of this one, as (job, the job that waits)."""

    at: int
    tenant: str
    pairs: list[tuple[int, int]]
