"""Everything that can be asked of a queue: one frozen value a command, typed with its reply.

This is the broker contract. A broker is whatever carries these out for a tenant; transports encode
them, clients wrap them in methods, and the conformance suite has tests for each of them.

Commands that settle a delivery take `ids` and `tokens`: one token for all, one for each, or None,
which acts on the current delivery (for clients of the old wire that know no tokens).
"""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from stoker.model import replies as r
from stoker.model.options import DEFAULT_OPTIONS, Codec, DeadLetterPolicy, GroupPolicy, Options, RateLimit
from stoker.model.schedules import Schedule, SchedulePage, ScheduleView
from stoker.model.states import State
from stoker.model.workflows import Step, WorkflowState

R_co = TypeVar("R_co", covariant=True)
Tokens = int | Sequence[int] | None


class Command(msgspec.Struct, Generic[R_co], frozen=True, gc=False, omit_defaults=True):
    """Base of all commands; the type parameter is the reply."""


# --- producing -----------------------------------------------------------------------------------


class Sending(msgspec.Struct, frozen=True, gc=False):
    """Which of a sender's pushes one is: sent again, it is answered as the first time and makes no second job.

    The queue remembers an answer until the sender says that it has it.
    """

    sender: str
    """A name of the sender's own choice that nobody else uses."""
    number: int
    """Counted up by the sender; one number a push."""
    settled: int = 0
    """Every number below this one has been answered, or was given up."""


class Push(Command[r.Pushed], frozen=True, gc=False):
    """One job. `durability` asks for another level than the queue or the server gives."""

    queue: str
    payload: bytes
    options: Options = DEFAULT_OPTIONS
    durability: r.Level | None = None
    sending: Sending | None = None


class PushBatch(Command[r.PushedBatch], frozen=True, gc=False):
    """Jobs with the same options, or with options of their own in `each` (one for every payload).

    `atomic` refuses all if one is refused. `request_key` makes sending it again harmless for as long as the settings
    say, `sending` until the sender has the answer.
    """

    queue: str
    payloads: Sequence[bytes]
    options: Options = DEFAULT_OPTIONS
    each: Sequence[Options] | None = None
    atomic: bool = False
    request_key: str | None = None
    durability: r.Level | None = None
    sending: Sending | None = None


class PushWorkflow(Command[r.PushedWorkflow], frozen=True, gc=False):
    """A graph of jobs over any queues, all of it or nothing. A step may only come after steps of the same push.

    `request_key`, held by the queue of the first step, makes sending it again harmless.
    """

    steps: Sequence[Step]
    name: str = ""
    request_key: str | None = None
    durability: r.Level | None = None


class FillStep(Command[r.Done], frozen=True, gc=False):
    """Give an open step its jobs. Said by a running job of a step right before it; the first one counts."""

    id: int
    step: str
    """The key of the open step, or its number."""
    payloads: Sequence[bytes]
    token: int | None = None


class Stage(Command[r.Staged], frozen=True, gc=False):
    """Write jobs that nobody sees until `Publish` names their stage. Sending a `part` again changes nothing."""

    transaction: str
    stage: str
    queue: str
    payloads: Sequence[bytes]
    options: Options = DEFAULT_OPTIONS
    each: Sequence[Options] | None = None
    part: int | None = None


class Publish(Command[r.Transaction], frozen=True, gc=False):
    """Make exactly these stages visible at once and drop the transaction's others."""

    transaction: str
    stages: Sequence[str]
    durability: r.Level | None = None


class Abort(Command[r.Transaction], frozen=True, gc=False):
    transaction: str


# --- consuming -----------------------------------------------------------------------------------


class Pull(Command[r.Delivery], frozen=True, gc=False):
    """Take up to `count` jobs, from the queues in the order given; wait for the first up to `wait_ms`.

    With a `claim`, asking again brings the same jobs, without those that are settled or lost by now.
    `lease_ms` overrides the jobs' own leases.
    """

    queues: Sequence[str]
    count: int = 1
    wait_ms: int = 0
    worker: str = ""
    lease_ms: int | None = None
    claim: str | None = None


class Ack(Command[r.Settled], frozen=True, gc=False):
    """The jobs are done. `results` has one entry an id, or is None; all are written in one codec."""

    ids: Sequence[int]
    tokens: Tokens = None
    results: Sequence[bytes | None] | None = None
    codec: Codec = "bytes"


class Fail(Command[r.Failed], frozen=True, gc=False):
    """The deliveries failed. Tried again after the backoff, or after `delay_ms`; never with `retry` false.

    `reason` goes with `retry` false and says why: `explicit_fail` (also where it is empty), `invalid_arguments` or
    `invalid_result`.
    """

    ids: Sequence[int]
    tokens: Tokens = None
    error: str = ""
    error_class: str = ""
    stack: str = ""
    retry: bool = True
    delay_ms: int | None = None
    reason: str = ""


class Release(Command[r.Settled], frozen=True, gc=False):
    """Hand jobs back as if they had never been pulled: the attempt is returned. With a delay: snooze."""

    ids: Sequence[int]
    tokens: Tokens = None
    delay_ms: int = 0
    note: str = ""
    """Why, in words. It becomes the `error` of the jobs, and stands in their story."""


class Extend(Command[r.Extended], frozen=True, gc=False):
    """Renew leases (a heartbeat); None renews each by its own length."""

    ids: Sequence[int]
    tokens: Tokens = None
    lease_ms: int | None = None
    renew: bool = True
    """False only looks: which of the jobs are lost, and which were cancelled. Nothing changes, nothing is journaled."""


class AckClaim(Command[r.Settled], frozen=True, gc=False):
    claim: str
    results: Mapping[int, bytes] = {}
    codec: Codec = "bytes"


class ReleaseClaim(Command[r.Settled], frozen=True, gc=False):
    claim: str


class ExtendClaim(Command[r.Extended], frozen=True, gc=False):
    claim: str
    lease_ms: int | None = None


class SetProgress(Command[r.Done], frozen=True, gc=False):
    """Say how far a running job is, from 0 to 100."""

    id: int
    percent: int
    message: str = ""
    token: int | None = None


class AppendLog(Command[r.Done], frozen=True, gc=False):
    """Add a line to the log of a live or failed job."""

    id: int
    message: str
    level: str = "info"
    token: int | None = None


class AppendPartial(Command[r.Done], frozen=True, gc=False):
    """Stream a chunk of the result of an active job; numbered on from the last one where `index` is not given."""

    id: int
    data: bytes
    index: int | None = None
    token: int | None = None
    codec: Codec = "bytes"


class GetInputs(Command[r.Inputs], frozen=True, gc=False):
    """What the jobs have given that this one depends on: those of the steps before it, in the order of its edges and
    their ids; then those of its `depends_on`. From number `after` on."""

    id: int
    after: int = 0
    limit: int = 1_000


# --- looking -------------------------------------------------------------------------------------


class GetJob(Command[r.JobView], frozen=True, gc=False):
    """Look at a job."""

    id: int


class FindJob(Command[r.JobView], frozen=True, gc=False):
    """Look at the job with this custom id; in any queue of the tenant when none is named."""

    custom_id: str
    queue: str | None = None


class GetLogs(Command[r.Logs], frozen=True, gc=False):
    """The lines of a job's log."""

    id: int


class GetPartials(Command[r.Partials], frozen=True, gc=False):
    """The chunks that a job has streamed."""

    id: int


class WaitJob(Command[r.Ended], frozen=True, gc=False):
    """Wait until the job has ended, up to `wait_ms`."""

    id: int
    wait_ms: int = 30_000


class Browse(Command[r.Page], frozen=True, gc=False):
    """Jobs in id order (newest first by default), after the id where the last page ended."""

    queue: str | None = None
    state: State | None = None
    tag: str | None = None
    group_id: str | None = None
    pushed_from: int | None = None
    pushed_before: int | None = None
    after: int | None = None
    limit: int = 100
    ascending: bool = False
    name: str | None = None
    workflow: int | None = None


class GetWorkflow(Command[r.WorkflowView], frozen=True, gc=False):
    """How far a workflow is, and how each of its steps stands."""

    id: int


class ListWorkflows(Command[r.WorkflowPage], frozen=True, gc=False):
    """Workflows, newest first, after the id where the last page ended."""

    state: WorkflowState | None = None
    name: str | None = None
    after: int | None = None
    limit: int = 100


class Why(Command[r.Waiting], frozen=True, gc=False):
    """Why a job has not started."""

    id: int


class ListQueues(Command[r.Queues], frozen=True, gc=False):
    """The names of all queues of the tenant."""


class GetQueue(Command[r.QueueView], frozen=True, gc=False):
    """The policy of a queue."""

    queue: str


class GetPriorities(Command[r.Priorities], frozen=True, gc=False):
    """Count the waiting jobs of a queue by priority. Looks at each of them, where `GetStats` knows its numbers."""

    queue: str


class GetStats(Command[r.Stats], frozen=True, gc=False):
    """Of a queue, or of the tenant when none is named."""

    queue: str | None = None


class GetStory(Command[r.Story], frozen=True, gc=False):
    """Everything that the log still tells about one job, in order; also about one that is long forgotten."""

    id: int


class ReadEvents(Command[r.Events], frozen=True, gc=False):
    """The tenant's events of one shard after a sequence number; whole records, at least one if there is one.

    `limit` is reached, not cut at: a record's events are never torn apart. A page of large events ends before it.
    Waits up to `wait_ms` for the first.
    """

    shard: int = 0
    after: int = 0
    limit: int = 1_000
    queue: str | None = None
    kinds: Sequence[str] | None = None
    wait_ms: int = 0


class ReadRecords(Command[r.Records], frozen=True, gc=False):
    """The tenant's records of one shard after a sequence number, as the log has them, for readers that turn them into
    tables themselves: the server does not unpack them. Only records that mean events; `until` is the last one wanted.

    Payloads stay behind unless asked for. A page is bounded in bytes, and may be empty in the middle of a log.
    """

    shard: int = 0
    after: int = 0
    until: int | None = None
    queues: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    payloads: bool = False
    bytes_max: int = 4 * 1024 * 1024


# --- control -------------------------------------------------------------------------------------


class Pause(Command[r.Done], frozen=True, gc=False):
    """Give out no more jobs of the queue."""

    queue: str


class Resume(Command[r.Done], frozen=True, gc=False):
    """Give out the jobs of a paused queue again."""

    queue: str


class SetRateLimit(Command[r.Done], frozen=True, gc=False):
    """Limit how many jobs of a queue start in a time; None lifts the limit."""

    queue: str
    limit: RateLimit | None


class SetConcurrency(Command[r.Done], frozen=True, gc=False):
    """At most so many active jobs of a queue; 0 lifts the limit."""

    queue: str
    limit: int


class SetQueuePolicy(Command[r.Done], frozen=True, gc=False):
    """Change the policy of a queue. Fields that are None stay as they are."""

    queue: str
    group_on_retry: GroupPolicy | None = None
    dead_letters: DeadLetterPolicy | None = None
    durability: r.Level | None = None
    """`memory`, `commit` or `fsync` for everything that happens in the queue, where a push does not say."""


class Cancel(Command[r.JobView], frozen=True, gc=False):
    """A job that has not started ends at once. An active one is marked: its worker learns it at the next
    heartbeat, and whatever happens but an ack, it is not tried again."""

    id: int


class CancelWorkflow(Command[r.WorkflowView], frozen=True, gc=False):
    """Jobs of it that have not started end at once, running ones are marked; nothing of it starts any more."""

    id: int


class RetryWorkflow(Command[r.WorkflowView], frozen=True, gc=False):
    """Its failed jobs go back to work, and what failed because of them waits for them again."""

    id: int


class Promote(Command[r.Done], frozen=True, gc=False):
    """A delayed job becomes ready now."""

    id: int


class ChangePriority(Command[r.Done], frozen=True, gc=False):
    """Change the priority of a job."""

    id: int
    priority: int


class MoveToDelayed(Command[r.Done], frozen=True, gc=False):
    """A waiting, delayed or active job becomes ready after `delay_ms`; an active one loses no attempt."""

    id: int
    delay_ms: int
    token: int | None = None


class UpdatePayload(Command[r.Done], frozen=True, gc=False):
    """Of a live job or a dead letter; a running delivery keeps what it got. Without a codec the job keeps its own."""

    id: int
    payload: bytes
    codec: Codec | None = None


class Discard(Command[r.Done], frozen=True, gc=False):
    """Make a live job a dead letter now."""

    id: int


class Drain(Command[r.Done], frozen=True, gc=False):
    """Cancel everything that waits; with `delayed`, what is delayed too."""

    queue: str
    delayed: bool = False


class Clean(Command[r.Ids], frozen=True, gc=False):
    """Remove jobs in `state` that ended (or, pending, were pushed) at least `age_ms` ago, oldest first."""

    queue: str
    state: State
    age_ms: int = 0
    limit: int = 1_000


class Obliterate(Command[r.Done], frozen=True, gc=False):
    """Remove the queue with everything in it; refused while jobs are active, unless forced."""

    queue: str
    force: bool = False


# --- dead letters --------------------------------------------------------------------------------


class ListDead(Command[r.Page], frozen=True, gc=False):
    """Dead letters of a queue, the oldest entry first; `after` is the last id of the page before."""

    queue: str
    reason: str | None = None
    entered_from: int | None = None
    entered_before: int | None = None
    tag: str | None = None
    after: int | None = None
    limit: int = 100


class GetDeadStats(Command[r.DeadStats], frozen=True, gc=False):
    """Count the dead letters of a queue by reason."""

    queue: str


class RetryDead(Command[r.Retried], frozen=True, gc=False):
    """Send dead letters back to work with a fresh count of attempts: the named ones, or all that match."""

    queue: str
    ids: Sequence[int] | None = None
    reason: str | None = None
    limit: int | None = None


class PurgeDead(Command[r.Done], frozen=True, gc=False):
    """Forget dead letters: the named ones, or all that match."""

    queue: str
    ids: Sequence[int] | None = None
    reason: str | None = None


# --- key-value entries ---------------------------------------------------------------------------


class KvEntry(msgspec.Struct, frozen=True, gc=False):
    """A value under a key, for `ttl_ms`; 0 = until it is deleted."""

    key: str
    value: bytes
    ttl_ms: int = 0
    codec: Codec = "bytes"


class KvSet(Command[r.Done], frozen=True, gc=False):
    """Keep a value under a key, instead of what was there; its time to live starts anew."""

    key: str
    value: bytes
    ttl_ms: int = 0
    codec: Codec = "bytes"


class KvGet(Command[r.KvValue], frozen=True, gc=False):
    """The value under a key."""

    key: str


class KvGetMany(Command[r.KvValues], frozen=True, gc=False):
    """The values under some keys, all at one moment."""

    keys: Sequence[str]


class KvSetMany(Command[r.Done], frozen=True, gc=False):
    """Keep many values at once, all or none. A key that is there twice keeps its last value."""

    entries: Sequence[KvEntry]


class KvDelete(Command[r.Done], frozen=True, gc=False):
    """Forget entries. Counts those that were there."""

    keys: Sequence[str]


class KvExists(Command[r.KvFound], frozen=True, gc=False):
    """Which of the entries are there."""

    keys: Sequence[str]


class KvExpire(Command[r.KvExpiry], frozen=True, gc=False):
    """Let an entry leave after `ttl_ms`, counted from now; 0 lets it stay."""

    key: str
    ttl_ms: int


class KvTtl(Command[r.KvExpiry], frozen=True, gc=False):
    """How long an entry stays."""

    key: str


class KvKeys(Command[r.KvKeyPage], frozen=True, gc=False):
    """Keys that match the pattern, in their order, after the key where the last page ended.

    `*` stands for any characters, `?` for one; there is no way to ask for those two themselves.
    """

    pattern: str = "*"
    after: str | None = None
    limit: int = 1_000


class KvIncrement(Command[r.KvNumber], frozen=True, gc=False):
    """Add to a whole number of 64 bits. An entry that is not there counts 0, and is written as JSON from then on.

    The entry keeps its codec and its time to live: decimal digits, which are JSON's too, or MessagePack's integers.
    """

    key: str
    by: int = 1


# --- schedules -----------------------------------------------------------------------------------


class PutSchedule(Command[ScheduleView], frozen=True, gc=False):
    """Make a schedule, or give the one of that name in the queue another rule, payload or policy.

    As long as the rule stays (`cron`, `every_ms`, `at`, `zone`, `start_at`, `end_at`), what it has done and when it is
    due stay, too: so a program may say at each start what it wants.
    """

    queue: str
    name: str
    schedule: Schedule


class GetSchedule(Command[ScheduleView], frozen=True, gc=False):
    """Look at a schedule: its next five slots, and what became of the last twenty."""

    queue: str
    name: str


class ListSchedules(Command[SchedulePage], frozen=True, gc=False):
    """Schedules of one queue or of all, in the order of queues and names, after the place where the last page ended."""

    queue: str | None = None
    name: str | None = None
    """Only those of this name, whatever their queues."""
    after: str | None = None
    limit: int = 100


class PauseSchedule(Command[ScheduleView], frozen=True, gc=False):
    """From now on the slots of the schedule pass without a job."""

    queue: str
    name: str


class ResumeSchedule(Command[ScheduleView], frozen=True, gc=False):
    """Go on with the first slot from now; those that have passed meanwhile are not made up for."""

    queue: str
    name: str


class RunSchedule(Command[r.Pushed], frozen=True, gc=False):
    """Push a job of the schedule now, paused or not. It counts no run; of the policies only `overlap` is asked."""

    queue: str
    name: str


class DeleteSchedule(Command[r.Done], frozen=True, gc=False):
    """Delete a schedule; its jobs stay. Counts whether it was there."""

    queue: str
    name: str


ALL: tuple[type[Command[object]], ...] = tuple(Command.__subclasses__())
"""Every command of the contract, in the order above."""
