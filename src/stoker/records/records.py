"""One struct for each thing that can happen to a shard.

Records are facts, not requests: whatever was decided (times, tokens, who moved where) stands in them, and
applying one needs nothing but the state before it. They speak of jobs in runs `(first id, count)`; a negative
count runs downwards (lifo batches). On disk a record is a tagged msgpack array: fields may be added at the end
with a default, nothing else may change. A golden file pins every one of them. The most frequent ones hold tuples: the
garbage collector lets go of those, where it would walk every list in the history again and again.
"""

import msgspec

from stoker.model.limits import Limits
from stoker.model.options import DEFAULT_OPTIONS, DeadLetterPolicy, GroupPolicy, Options, RateLimit, Settings
from stoker.model.replies import Level
from stoker.model.schedules import Schedule, SlotOutcome
from stoker.records.stored import StoredRun

VERSION = 2
"""Raised when a record changes its meaning, a default of an option included; older ones stay readable."""


class PublishStages(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """A message: a transaction was decided, publish these of its stages."""

    transaction: str
    stages: list[str]


class AbortTransaction(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    """A message: a transaction was aborted, drop what is staged."""

    transaction: str


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


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="t"):
    """Base of all records. They hold no cycles and are many: the garbage collector need not walk them."""


class Pushed(Record, frozen=True, gc=False, tag=1):
    """Jobs with neighbouring ids came in. `due` is 0 for jobs that are not delayed."""

    at: int
    tenant: str
    queue: str
    first: int
    payloads: tuple[bytes, ...]
    options: Options = DEFAULT_OPTIONS
    due: int = 0
    sizes: int | list[int] | None = None
    """How long the payloads are, each or all; None = count them."""


class RequestRemembered(Record, frozen=True, gc=False, tag=2):
    """The answer to a batch with a request key: its ids, refused as (item, code, message), duplicates as (item, by)."""

    at: int
    tenant: str
    queue: str
    key: str
    runs: list[tuple[int, int]]
    """Neighbouring ids, in the order of the items; (0, n) stands for n refused ones."""
    refused: list[tuple[int, str, str]]
    duplicates: list[tuple[int, str]]
    expires_at: int


class KeyExtended(Record, frozen=True, gc=False, tag=3):
    at: int
    tenant: str
    queue: str
    key: str
    expires_at: int


class Started(Record, frozen=True, gc=False, tag=4):
    """A pull took jobs of one queue."""

    at: int
    tenant: str
    queue: str
    token: int
    worker: str
    lease_ms: int | None
    claim: str | None
    runs: tuple[Run, ...]


class Completed(Record, frozen=True, gc=False, tag=5):
    """Deliveries were acknowledged. `results` has an entry for each job, or is None."""

    at: int
    tenant: str
    queue: str
    runs: tuple[Run, ...]
    results: list[bytes | None] | None = None
    codec: int = 0
    """How all of the results are written: a place in `CODECS`."""


class Retrying(Record, frozen=True, gc=False, tag=6):
    """A delivery failed and the job will be tried again at `due` (0 = it waits already)."""

    at: int
    tenant: str
    queue: str
    run: Run
    reason: str
    due: int
    error: str = ""
    error_class: str = ""
    stack: str = ""


class Failed(Record, frozen=True, gc=False, tag=7):
    """A job will not be tried again. `started_at` in the run is 0 when no delivery ended with it."""

    at: int
    tenant: str
    queue: str
    run: Run
    reason: str
    error: str = ""
    error_class: str = ""
    stack: str = ""
    delivery: str = ""
    """The reason of the last delivery's failure, when one ended with the job."""


class Ended(Record, frozen=True, gc=False, tag=8):
    """Jobs were cancelled or expired."""

    at: int
    tenant: str
    queue: str
    state: int
    reason: str
    runs: list[Run]


class Released(Record, frozen=True, gc=False, tag=9):
    """Deliveries were handed back: the attempts do not count. `due` is 0 for jobs that wait again."""

    at: int
    tenant: str
    queue: str
    runs: list[Run]
    due: int = 0


class Extended(Record, frozen=True, gc=False, tag=10):
    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]
    lease_ms: int | None = None


class CancelRequested(Record, frozen=True, gc=False, tag=11):
    at: int
    tenant: str
    queue: str
    job: int


class Progressed(Record, frozen=True, gc=False, tag=12):
    at: int
    tenant: str
    queue: str
    job: int
    percent: int
    message: str = ""


class Logged(Record, frozen=True, gc=False, tag=13):
    at: int
    tenant: str
    queue: str
    job: int
    level: str
    message: str


class PartialAdded(Record, frozen=True, gc=False, tag=14):
    at: int
    tenant: str
    queue: str
    job: int
    index: int
    data: bytes
    codec: int = 0


class Unblocked(Record, frozen=True, gc=False, tag=15):
    """An edge was settled well: `job` no longer waits for `dependency`. `ready` when it was the last one."""

    at: int
    tenant: str
    queue: str
    job: int
    dependency: int
    ready: bool
    due: int = 0


class BecameDue(Record, frozen=True, gc=False, tag=16):
    """Delayed jobs wait now; `promoted` when somebody asked for it."""

    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]
    promoted: bool = False


class Delayed(Record, frozen=True, gc=False, tag=17):
    """A waiting or delayed job was moved to another time (0 = it waits)."""

    at: int
    tenant: str
    queue: str
    job: int
    due: int


class Reprioritised(Record, frozen=True, gc=False, tag=18):
    at: int
    tenant: str
    queue: str
    job: int
    priority: int


class PayloadUpdated(Record, frozen=True, gc=False, tag=19):
    at: int
    tenant: str
    queue: str
    job: int
    payload: bytes
    codec: int | None = None
    """None = as the payload before."""


class QueueConfigured(Record, frozen=True, gc=False, tag=20):
    """The queue's whole policy from now on. `refill` is true when the rate limit was set anew."""

    at: int
    tenant: str
    queue: str
    paused: bool
    rate_limit: RateLimit | None
    concurrency: int
    group_on_retry: GroupPolicy
    dead_letters: DeadLetterPolicy
    refill: bool = False
    durability: Level | None = None
    """What its jobs ask for at least; None = what the server gives."""


class QueueObliterated(Record, frozen=True, gc=False, tag=21):
    at: int
    tenant: str
    queue: str


class Revived(Record, frozen=True, gc=False, tag=22):
    """A dead letter went back to work."""

    at: int
    tenant: str
    queue: str
    job: int
    automatic: bool = False
    blocked: bool = False
    """It waits for the steps before its own, as it did before they failed."""
    pushed_at: int = 0
    size: int = 0
    """Of its payload."""
    labels: Labels | None = None


class RetryPostponed(Record, frozen=True, gc=False, tag=23):
    """A dead letter could not be retried by itself: somebody else holds its key."""

    at: int
    tenant: str
    queue: str
    job: int
    next_retry_at: int


class DeadRemoved(Record, frozen=True, gc=False, tag=24):
    """Dead letters left: `evicted` by newer ones, `expired`, or `purged`."""

    at: int
    tenant: str
    queue: str
    jobs: list[int]
    why: str


class Removed(Record, frozen=True, gc=False, tag=25):
    """Retained jobs were cleaned away."""

    at: int
    tenant: str
    queue: str
    runs: list[tuple[int, int]]


class AgedOut(Record, frozen=True, gc=False, tag=26):
    """The retention of ended jobs with this policy has passed for those that ended `age_ms` before `at`."""

    at: int
    tenant: str
    queue: str
    age_ms: int
    count: int


class KeysForgotten(Record, frozen=True, gc=False, tag=27):
    """Keys whose time has passed, as (table, key)."""

    at: int
    tenant: str
    queue: str
    keys: list[tuple[str, str]]


class Staged(Record, frozen=True, gc=False, tag=28):
    """A part of a stage was written."""

    at: int
    tenant: str
    transaction: str
    stage: str
    queue: str
    payloads: list[bytes]
    options: Options
    each: list[Options] | None
    part: int | None
    expires_at: int


class PartPublished(Record, frozen=True, gc=False, tag=57):
    """Staged jobs came in: a push whose payloads stay in the record that staged them, and are not written again."""

    at: int
    tenant: str
    queue: str
    first: int
    transaction: str
    stage: str
    place: int
    """Which part of the stage it is."""
    sequence: int
    """The record that staged it."""
    count: int
    sizes: int | list[int]
    options: Options = DEFAULT_OPTIONS
    due: int = 0

    @property
    def payloads(self) -> StoredRun:
        return StoredRun(self.sequence, 0, self.count, self.sizes)


class TransactionEnded(Record, frozen=True, gc=False, tag=29):
    """Published or aborted: its stages are gone, its outcome is remembered."""

    at: int
    tenant: str
    transaction: str
    published: bool
    created: int
    runs: list[tuple[int, int]]
    expires_at: int


class StageExpired(Record, frozen=True, gc=False, tag=30):
    at: int
    tenant: str
    transaction: str
    stage: str


class TransactionForgotten(Record, frozen=True, gc=False, tag=31):
    at: int
    tenant: str
    transaction: str


class ClaimForgotten(Record, frozen=True, gc=False, tag=32):
    at: int
    tenant: str
    claim: str


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


class KeysStored(Record, frozen=True, gc=False, tag=37):
    """Keys of ended jobs left memory for the store of old keys, as (table, key)."""

    at: int
    tenant: str
    queue: str
    keys: list[tuple[str, str]]


class KvWritten(Record, frozen=True, gc=False, tag=38):
    """Entries were set, as (key, value, place in `CODECS`, when it expires or 0), each instead of what was there."""

    at: int
    tenant: str
    entries: list[tuple[str, bytes, int, int]]


class KvRemoved(Record, frozen=True, gc=False, tag=39):
    """Entries were deleted, or have `expired`."""

    at: int
    tenant: str
    keys: list[str]
    expired: bool = False


class KvTimed(Record, frozen=True, gc=False, tag=40):
    """An entry expires at another time from now on; 0 = never."""

    at: int
    tenant: str
    key: str
    expires_at: int


class Answered(Record, frozen=True, gc=False, tag=41):
    """The answer to a push that may be sent again; the fields are those of `RequestRemembered`."""

    at: int
    tenant: str
    queue: str
    sender: str
    number: int
    settled: int
    runs: list[tuple[int, int]]
    refused: list[tuple[int, str, str]]
    duplicates: list[tuple[int, str]]


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


class ScheduleChanged(Record, frozen=True, gc=False, tag=42):
    """A schedule was made or changed. `next_slot` is 0 for one that is over; intervals without a start count from the
    `anchor`."""

    at: int
    tenant: str
    queue: str
    name: str
    schedule: Schedule
    anchor: int
    runs: int
    next_slot: int


class SchedulePaused(Record, frozen=True, gc=False, tag=43):
    """A schedule was paused or, with `paused` false, goes on."""

    at: int
    tenant: str
    queue: str
    name: str
    paused: bool
    next_slot: int


class ScheduleDeleted(Record, frozen=True, gc=False, tag=44):
    at: int
    tenant: str
    queue: str
    name: str


class ScheduledPush(Record, frozen=True, gc=False, tag=45):
    """A schedule pushed a job, and its slot is over with that. The fields are those of `Pushed`, with one payload.

    Slots up to `made_up_to` are pushed however late they come. `manual` ones are no slots: somebody asked for a job.
    """

    at: int
    tenant: str
    queue: str
    first: int
    payloads: tuple[bytes]
    options: Options
    due: int
    sizes: int
    name: str
    slot: int
    next_slot: int
    made_up_to: int = 0
    manual: bool = False


class SlotPassed(Record, frozen=True, gc=False, tag=46):
    """A slot, or all up to `until`, went by without a job."""

    at: int
    tenant: str
    queue: str
    name: str
    slot: int
    outcome: SlotOutcome
    next_slot: int
    job: int = 0
    """Because of which there is no other one."""
    reason: str = ""
    until: int = 0
    made_up_to: int = 0
    manual: bool = False


ALL: tuple[type[Record], ...] = tuple(Record.__subclasses__())
