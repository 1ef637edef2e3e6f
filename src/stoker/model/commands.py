"""All commands of a queue. Each command is one frozen value, typed with its reply.

This is the broker contract: a broker carries out these commands for a tenant, transports encode them, clients wrap them
in methods, and the conformance suite tests each of them.

Commands that settle a delivery take `ids` and `tokens`: one token for all ids, one token for each, or None. None means
the current delivery; clients of the old protocol know no tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from stoker.model import replies as r
from stoker.model.bulk import BulkAction, Bulks, BulkView
from stoker.model.filters import JobFilter
from stoker.model.history import MINUTE_MS, History, Timings, Trends
from stoker.model.options import DEFAULT_OPTIONS, Codec, DeadLetterPolicy, GroupPolicy, Options, RateLimit
from stoker.model.schedules import Schedule, SchedulePage, ScheduleView
from stoker.model.states import State
from stoker.model.workflows import Step, WorkflowState

R_co = TypeVar("R_co", covariant=True)
Tokens = int | Sequence[int] | None


class Command(msgspec.Struct, Generic[R_co], frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The base of all commands. The type parameter is the type of the reply."""


# --- producing -----------------------------------------------------------------------------------


class Sending(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Which of a sender's pushes one is: sent again, it is answered as the first time and makes no second job.

    The queue remembers an answer until the sender says that it has it.
    """

    sender: str
    """A name that the sender chooses and that no other sender uses."""
    number: int
    """Counted up by the sender; one number a push."""
    settled: int = 0
    """Every number below this one has been answered, or was given up."""


class Push(Command[r.Pushed], frozen=True, gc=False):
    """Push one job. `durability` overrides the level of the queue and the server for this push."""

    queue: str
    payload: bytes
    options: Options = DEFAULT_OPTIONS
    durability: r.Level | None = None
    sending: Sending | None = None


class PushBatch(Command[r.PushedBatch], frozen=True, gc=False):
    """Push jobs with the same options, or with one options value for each payload in `each`.

    With `atomic`, one refused item refuses all. With `request_key` the batch may be sent again for as long as the
    settings say; with `sending`, until the sender has the answer.
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
    """Push a graph of jobs over any queues: all of it or nothing. A step may only come after steps of the same push.

    With `request_key`, which the queue of the first step holds, it may be sent again.
    """

    steps: Sequence[Step]
    name: str = ""
    request_key: str | None = None
    durability: r.Level | None = None


class FillStep(Command[r.Done], frozen=True, gc=False):
    """Give an open step its jobs. Only a running job of a step right before it may do so. The first filling counts."""

    id: int
    step: str
    """The key of the open step, or its number."""
    payloads: Sequence[bytes]
    token: int | None = None


class Stage(Command[r.Staged], frozen=True, gc=False):
    """Write jobs that stay invisible until `Publish` names their stage. Sending a `part` again changes nothing."""

    transaction: str
    stage: str
    queue: str
    payloads: Sequence[bytes]
    options: Options = DEFAULT_OPTIONS
    each: Sequence[Options] | None = None
    part: int | None = None


class Publish(Command[r.Transaction], frozen=True, gc=False):
    """Make exactly these stages visible at once, and drop the other stages of the transaction."""

    transaction: str
    stages: Sequence[str]
    durability: r.Level | None = None


class Abort(Command[r.Transaction], frozen=True, gc=False):
    transaction: str


# --- consuming -----------------------------------------------------------------------------------


class Pull(Command[r.Delivery], frozen=True, gc=False):
    """Take up to `count` jobs from the queues, in the order given. Wait up to `wait_ms` for the first job.

    With a `claim`, pulling again brings the same jobs, without those that are settled or lost by then. `lease_ms`
    overrides the leases of the jobs.
    """

    queues: Sequence[str]
    count: int = 1
    wait_ms: int = 0
    worker: str = ""
    lease_ms: int | None = None
    claim: str | None = None


class Ack(Command[r.Settled], frozen=True, gc=False):
    """Complete the jobs. `results` is None or has one entry for each id; all results use one codec."""

    ids: Sequence[int]
    tokens: Tokens = None
    results: Sequence[bytes | None] | None = None
    codec: Codec = "bytes"


class Fail(Command[r.Failed], frozen=True, gc=False):
    """Fail the deliveries. The jobs are tried again after the backoff or after `delay_ms`; with `retry` false, never.

    `reason` is only for `retry` false: `explicit_fail` (the default), `invalid_arguments` or `invalid_result`.
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
    """Hand jobs back as if they had not been pulled: the attempt does not count. With a delay this is a snooze."""

    ids: Sequence[int]
    tokens: Tokens = None
    delay_ms: int = 0
    note: str = ""
    """Why, in words. It becomes the `error` of the jobs and appears in their story."""


class Extend(Command[r.Extended], frozen=True, gc=False):
    """Renew leases (a heartbeat). Without `lease_ms` each lease is renewed for its own length."""

    ids: Sequence[int]
    tokens: Tokens = None
    lease_ms: int | None = None
    renew: bool = True
    """False only looks: it reports which jobs are lost and which were cancelled. Nothing changes or is journaled."""


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
    """Add a chunk to the streamed result of an active job. Without `index` the chunk gets the number after the highest
    one.
    """

    id: int
    data: bytes
    index: int | None = None
    token: int | None = None
    codec: Codec = "bytes"


class GetInputs(Command[r.Inputs], frozen=True, gc=False):
    """The results that this job depends on: first the jobs of the steps before it, in the order of its edges and their
    ids, then the jobs of its `depends_on`. Starts at number `after`.
    """

    id: int
    after: int = 0
    limit: int = 1_000


# --- looking -------------------------------------------------------------------------------------


class GetJob(Command[r.JobView], frozen=True, gc=False):
    """Look at a job."""

    id: int


class FindJob(Command[r.JobView], frozen=True, gc=False):
    """Find a job by its custom id. Without a queue, all queues of the tenant are searched."""

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
    """Search for jobs, in id order (newest first by default), from the id after which the last page ended.

    A page does a bounded amount of work. It ends early where few jobs match, and says how many were looked at.
    """

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
    worker: str | None = None
    """The worker that has the job, or had it last."""
    priority: int | None = None
    attempts_from: int | None = None
    """Jobs that were delivered at least this often."""
    ended_from: int | None = None
    ended_before: int | None = None
    reason: str | None = None
    """Why it did not complete, as in dead letters."""
    fingerprint: str | None = None
    """The fingerprint of its last error."""
    text: str | None = None
    """A text that occurs in the payload, in the last error or in the result, in the same case."""
    parent_id: int | None = None
    """The job that pushed it."""


class CountJobs(Command[r.Counted], frozen=True, gc=False):
    """Count the jobs that `Browse` would find: at once by queue and state, else in steps of bounded work.

    A step answers with what it has counted and where to go on. The sum of all steps is exact if nothing changes
    meanwhile.
    """

    queue: str | None = None
    state: State | None = None
    tag: str | None = None
    group_id: str | None = None
    pushed_from: int | None = None
    pushed_before: int | None = None
    after: int | None = None
    """The `next_after` of the last step. Steps go shard by shard."""
    name: str | None = None
    workflow: int | None = None
    worker: str | None = None
    priority: int | None = None
    attempts_from: int | None = None
    ended_from: int | None = None
    ended_before: int | None = None
    reason: str | None = None
    fingerprint: str | None = None
    text: str | None = None
    parent_id: int | None = None


class GetWorkflow(Command[r.WorkflowView], frozen=True, gc=False):
    """How far a workflow is, and how each of its steps stands."""

    id: int


class ListWorkflows(Command[r.WorkflowPage], frozen=True, gc=False):
    """List workflows, newest first, from the id after which the last page ended."""

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


class GetQueues(Command[r.QueuePage], frozen=True, gc=False):
    """Queues in the order of their names, each with its policy, its counters and its timings, from the name after which
    the last page ended. `text` is a part of the names, in any case.
    """

    text: str | None = None
    after: str | None = None
    limit: int = 100


class GetPriorities(Command[r.Priorities], frozen=True, gc=False):
    """Count the waiting jobs of a queue by priority. This looks at each waiting job; `GetStats` only reads counters."""

    queue: str


class GetStats(Command[r.Stats], frozen=True, gc=False):
    """Counts and totals of a queue, or of the whole tenant when no queue is named."""

    queue: str | None = None


class GetTimings(Command[Timings], frozen=True, gc=False):
    """How long the oldest job waits, and histograms of wait and run times: of a queue, or of all of the tenant's."""

    queue: str | None = None


class GetHistory(Command[History], frozen=True, gc=False):
    """What happened in a queue, or in all queues of the tenant, in the last `range_ms`, by steps of whole minutes.

    A server samples once a minute and keeps two days. An embedded queue answers with what a server has left.
    """

    queue: str | None = None
    range_ms: int = 3_600_000
    step_ms: int = MINUTE_MS


class GetTrends(Command[Trends], frozen=True, gc=False):
    """How many jobs completed and died in each of some queues, by steps of whole minutes."""

    queues: Sequence[str]
    range_ms: int = 3_600_000
    step_ms: int = MINUTE_MS


class GetStory(Command[r.Story], frozen=True, gc=False):
    """Everything that the log still holds about one job, in order. The job itself may be forgotten."""

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

    With `prefixes`, records also come of queues whose names begin with one of them. With `tenants`, one pass brings the
    records of all of them; the token must be valid for each. With `counted`, the reply only says how many events there
    are. With `events_max`, the page ends before the record with which there would be more, but has at least one.
    """

    shard: int = 0
    after: int = 0
    until: int | None = None
    queues: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    payloads: bool = False
    bytes_max: int = 4 * 1024 * 1024
    prefixes: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    counted: bool = False
    events_max: int | None = None


# --- control -------------------------------------------------------------------------------------


class Pause(Command[r.Done], frozen=True, gc=False):
    """Give out no more jobs of the queue."""

    queue: str


class Resume(Command[r.Done], frozen=True, gc=False):
    """Give out the jobs of a paused queue again."""

    queue: str


class SetRateLimit(Command[r.Done], frozen=True, gc=False):
    """Set the limit; None lifts it."""

    queue: str
    limit: RateLimit | None


class SetConcurrency(Command[r.Done], frozen=True, gc=False):
    """Allow at most this many active jobs; 0 lifts the limit."""

    queue: str
    limit: int


class SetQueuePolicy(Command[r.Done], frozen=True, gc=False):
    """Change the policy of a queue. Fields that are None stay as they are."""

    queue: str
    group_on_retry: GroupPolicy | None = None
    dead_letters: DeadLetterPolicy | None = None
    durability: r.Level | None = None
    """`memory`, `commit` or `fsync` for everything that happens in the queue. A push may ask for another level."""


class Cancel(Command[r.JobView], frozen=True, gc=False):
    """End a pending job at once, or mark an active one. The worker sees the mark at its next heartbeat. A marked job is
    not tried again, but an ack still completes it.
    """

    id: int


class CancelWorkflow(Command[r.WorkflowView], frozen=True, gc=False):
    """End the pending jobs of the workflow at once, mark the active ones, and start nothing of it any more."""

    id: int


class RetryWorkflow(Command[r.WorkflowView], frozen=True, gc=False):
    """Send the failed jobs of the workflow back to work. Jobs that failed because of them wait for them again."""

    id: int


class Promote(Command[r.Done], frozen=True, gc=False):
    """Make a delayed job ready now."""

    id: int


class ChangePriority(Command[r.Done], frozen=True, gc=False):
    """Change the priority of a job."""

    id: int
    priority: int


class MoveToDelayed(Command[r.Done], frozen=True, gc=False):
    """Make a waiting, delayed or active job ready after `delay_ms`. An active job loses no attempt."""

    id: int
    delay_ms: int
    token: int | None = None


class UpdatePayload(Command[r.Done], frozen=True, gc=False):
    """Replace the payload of a live job or a dead letter. A running delivery keeps its payload. Without a codec, the
    job keeps its codec.
    """

    id: int
    payload: bytes
    codec: Codec | None = None


class Discard(Command[r.Done], frozen=True, gc=False):
    """Make a live job a dead letter now."""

    id: int


class DeleteJob(Command[r.Done], frozen=True, gc=False):
    """Forget a job that has ended, dead letters included."""

    id: int


class Drain(Command[r.Done], frozen=True, gc=False):
    """Cancel all waiting jobs; with `delayed`, the delayed ones too."""

    queue: str
    delayed: bool = False


class Clean(Command[r.Ids], frozen=True, gc=False):
    """Remove jobs in `state` that ended at least `age_ms` ago (if pending: were pushed that long ago), oldest first."""

    queue: str
    state: State
    age_ms: int = 0
    limit: int = 1_000


class Obliterate(Command[r.Done], frozen=True, gc=False):
    """Remove the queue with everything in it. Refused while jobs are active, unless `force` is set."""

    queue: str
    force: bool = False


# --- dead letters --------------------------------------------------------------------------------


class ListDead(Command[r.Page], frozen=True, gc=False):
    """List dead letters, oldest entry first. `after` is the last id of the page before."""

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


class GetDeadGroups(Command[r.DeadGroups], frozen=True, gc=False):
    """Group the dead letters of a queue, or of all queues, by reason and fingerprint of their errors, largest first.

    A queue keeps up to 1,000 groups apart. One call groups a bounded number of letters and says how many are left: ask
    again until none is.
    """

    queue: str | None = None
    limit: int = 100


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


# --- bulk operations ------------------------------------------------------------------------------


class StartBulk(Command[BulkView], frozen=True, gc=False):
    """Begin one action on every job that the filter finds, in the background.

    It acts on jobs that were in their state when it began, on each at most once, and goes on after a restart. The key
    names the operation: starting it again changes nothing.
    """

    key: str
    action: BulkAction
    filter: JobFilter = JobFilter()
    priority: int | None = None
    """The new priority, with the action `priority` only."""
    rate: float | None = None
    """At most this many jobs a second."""


class GetBulk(Command[BulkView], frozen=True, gc=False):
    """How far a bulk operation is."""

    key: str


class ListBulks(Command[Bulks], frozen=True, gc=False):
    """The bulk operations that run, and the last ones that ended, newest first."""


class StopBulk(Command[BulkView], frozen=True, gc=False):
    """End a bulk operation where it is. What it has done stays."""

    key: str


# --- key-value entries ---------------------------------------------------------------------------


class KvEntry(msgspec.Struct, frozen=True, gc=False):
    """A value under a key. It expires after `ttl_ms`; 0 = it stays until it is deleted."""

    key: str
    value: bytes
    ttl_ms: int = 0
    codec: Codec = "bytes"


class KvSet(Command[r.Done], frozen=True, gc=False):
    """Store a value under a key. It replaces the old value, and its time to live starts again."""

    key: str
    value: bytes
    ttl_ms: int = 0
    codec: Codec = "bytes"


class KvGet(Command[r.KvValue], frozen=True, gc=False):
    """The value under a key."""

    key: str


class KvGetMany(Command[r.KvValues], frozen=True, gc=False):
    """Read several entries, all at one moment."""

    keys: Sequence[str]


class KvSetMany(Command[r.Done], frozen=True, gc=False):
    """Store all entries or none. If a key appears twice, its last value counts."""

    entries: Sequence[KvEntry]


class KvDelete(Command[r.Done], frozen=True, gc=False):
    """Delete entries. The reply counts those that existed."""

    keys: Sequence[str]


class KvExists(Command[r.KvFound], frozen=True, gc=False):
    """Which of the entries are there."""

    keys: Sequence[str]


class KvExpire(Command[r.KvExpiry], frozen=True, gc=False):
    """Let an entry expire `ttl_ms` from now; 0 lets it stay."""

    key: str
    ttl_ms: int


class KvTtl(Command[r.KvExpiry], frozen=True, gc=False):
    """How long an entry stays."""

    key: str


class KvKeys(Command[r.KvKeyPage], frozen=True, gc=False):
    """List the keys that match the pattern, in order, from the key after which the last page ended.

    `*` stands for any characters and `?` for one. The two characters themselves cannot be searched for.
    """

    pattern: str = "*"
    after: str | None = None
    limit: int = 1_000


class KvIncrement(Command[r.KvNumber], frozen=True, gc=False):
    """Add to a whole number of 64 bits. A missing entry counts as 0 and is then written as JSON.

    The entry keeps its codec and its time to live. Numbers are decimal digits (in `bytes` and `json`) or MessagePack's
    integers.
    """

    key: str
    by: int = 1


# --- schedules -----------------------------------------------------------------------------------


class PutSchedule(Command[ScheduleView], frozen=True, gc=False):
    """Create a schedule, or change the rule, payload or policy of the one with this name in the queue.

    If the rule stays the same (`cron`, `every_ms`, `at`, `zone`, `start_at`, `end_at`), the schedule keeps its next
    slot and its history. So a program may put its schedules at every start.
    """

    queue: str
    name: str
    schedule: Schedule


class GetSchedule(Command[ScheduleView], frozen=True, gc=False):
    """A schedule with its next five slots and the outcomes of its last twenty."""

    queue: str
    name: str


class ListSchedules(Command[SchedulePage], frozen=True, gc=False):
    """Schedules of one queue or of all, ordered by queue and name, from the place where the last page ended."""

    queue: str | None = None
    name: str | None = None
    """Only schedules with this name, in any queue."""
    after: str | None = None
    limit: int = 100


class PauseSchedule(Command[ScheduleView], frozen=True, gc=False):
    """From now on the slots of the schedule pass without a job."""

    queue: str
    name: str


class ResumeSchedule(Command[ScheduleView], frozen=True, gc=False):
    """Go on with the first slot from now. Slots that passed while it was paused are not made up for."""

    queue: str
    name: str


class RunSchedule(Command[r.Pushed], frozen=True, gc=False):
    """Push a job of the schedule now, paused or not. It does not count as a run; of the policies only `overlap`
    applies.
    """

    queue: str
    name: str


class DeleteSchedule(Command[r.Done], frozen=True, gc=False):
    """Delete the schedule; its jobs stay. The reply counts whether it existed."""

    queue: str
    name: str


ALL: tuple[type[Command[object]], ...] = tuple(Command.__subclasses__())
"""Every command of the contract, in the order above."""
