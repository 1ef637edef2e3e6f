"""The replies to commands.

Replies about many jobs hold runs and ranges, so a batch of ten thousand costs as much as a batch of one. Iterating over
them gives one value for each job. Like commands and records they contain no cycles, so the garbage collector does not
track them: it would run ten times as often for nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from stoker.model.events import Event
from stoker.model.history import Timings
from stoker.model.ids import STEP
from stoker.model.options import Codec, DeadLetterPolicy, GroupPolicy, Options, RateLimit
from stoker.model.states import State
from stoker.model.workflows import Edge, WorkflowState

Level = Literal["memory", "commit", "fsync"]
LEVELS: tuple[Level, ...] = ("memory", "commit", "fsync")
"""From weakest to strongest."""
DuplicateBy = Literal["custom_id", "unique_key", "debounce_id"]

NOTHING: Mapping[int, str] = MappingProxyType({})


class Pushed(msgspec.Struct, frozen=True, gc=False):
    """The job that the push created, or the existing one that it was a duplicate of."""

    id: int
    created: bool = True
    duplicate_by: DuplicateBy | None = None
    level: Level = "memory"


class Refusal(msgspec.Struct, frozen=True, gc=False):
    code: str
    message: str


class PushedBatch(msgspec.Struct, frozen=True, gc=False):
    """One id for each item, 0 for a refused one. `refused` and `duplicates` are keyed by item number."""

    ids: Sequence[int]
    refused: Mapping[int, Refusal] = {}
    duplicates: Mapping[int, DuplicateBy] = {}
    level: Level = "memory"

    @property
    def created(self) -> int:
        return len(self.ids) - len(self.refused) - len(self.duplicates)


class PushedWorkflow(msgspec.Struct, frozen=True, gc=False):
    """The id of the workflow, and for each step the first id and the number of its jobs; (0, 0) if it has none yet."""

    id: int
    steps: Sequence[tuple[int, int]] = ()
    created: bool = True
    level: Level = "memory"

    def ids(self, step: int) -> range:
        first, count = self.steps[step]
        return range(first, first + count * STEP, STEP)


class Staged(msgspec.Struct, frozen=True, gc=False):
    """How many jobs the stage holds now."""

    jobs: int
    level: Level = "memory"


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a transaction: how many jobs were created, and their ids as runs of (first id, count)."""

    outcome: Literal["published", "aborted"]
    created: int = 0
    runs: tuple[tuple[int, int], ...] = ()
    level: Level = "memory"


class DeliveredJob(msgspec.Struct, frozen=True, gc=False):
    """One job that a worker has pulled."""

    id: int
    token: int
    queue: str
    payload: bytes
    options: Options
    attempt: int
    pushed_at: int
    lease_until: int

    @property
    def name(self) -> str | None:
        return self.options.name

    @property
    def schedule(self) -> str | None:
        """The schedule that pushed it, if any."""
        return self.options.schedule


class Run(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring jobs of one batch, delivered together."""

    queue: str
    ids: Sequence[int]
    payloads: Sequence[bytes]
    options: Options
    attempt: int
    pushed_at: int
    lease_until: int

    @property
    def name(self) -> str | None:
        """The kind of these jobs."""
        return self.options.name


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """The jobs of a pull. One token covers all of them. If it is empty, `next_at` is when a job may be ready."""

    token: int = 0
    runs: Sequence[Run] = ()
    next_at: int | None = None

    def __len__(self) -> int:
        return sum(len(run.ids) for run in self.runs)

    def __iter__(self) -> Iterator[DeliveredJob]:
        token = self.token
        for run in self.runs:
            for job_id, payload in zip(run.ids, run.payloads, strict=True):
                yield DeliveredJob(
                    job_id, token, run.queue, payload, run.options, run.attempt, run.pushed_at, run.lease_until
                )

    @property
    def ids(self) -> Sequence[int]:
        """The ids as one sequence: a plain range if the delivery is one run."""
        if len(self.runs) == 1:
            return self.runs[0].ids
        return [job_id for run in self.runs for job_id in run.ids]

    @property
    def payloads(self) -> Sequence[bytes]:
        if len(self.runs) == 1:
            return self.runs[0].payloads
        return [payload for run in self.runs for payload in run.payloads]


class Settled(msgspec.Struct, frozen=True, gc=False):
    """How many of the named jobs were settled, and the error code for each that was not."""

    count: int
    refused: Mapping[int, str] = NOTHING
    level: Level = "memory"


class FailedJob(msgspec.Struct, frozen=True, gc=False):
    """The state after a failed delivery: `waiting`, `delayed` until `due`, `failed` or `cancelled`."""

    id: int
    state: State
    due: int = 0


class Failed(msgspec.Struct, frozen=True, gc=False):
    jobs: Sequence[FailedJob]
    refused: Mapping[int, str] = NOTHING
    level: Level = "memory"


class Extended(msgspec.Struct, frozen=True, gc=False):
    """`cancelled` names the jobs that were marked for cancelling: the worker should stop them."""

    count: int
    lease_until: int
    refused: Mapping[int, str] = NOTHING
    cancelled: Sequence[int] = ()


class Done(msgspec.Struct, frozen=True, gc=False):
    """The command was carried out; it affected `count` jobs."""

    count: int = 1
    level: Level = "memory"


class Ids(msgspec.Struct, frozen=True, gc=False):
    ids: Sequence[int]


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One delivery that failed."""

    attempt: int
    started_at: int
    ended_at: int
    reason: str
    worker: str = ""
    error: str = ""
    error_class: str = ""

    @property
    def duration_ms(self) -> int:
        return self.ended_at - self.started_at

    @property
    def cause(self) -> str:
        """The class and the message of its error, as Python prints them."""
        return cause_of(self.error_class, self.error)


def cause_of(error_class: str, error: str) -> str:
    """`KeyError: 'nope'`. If an exception has no message, workers report its class as the message; it is not repeated
    here.
    """
    if error == error_class.rpartition(".")[2]:
        return error_class
    return ": ".join(part for part in (error_class, error) if part)


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """Why a job will not be tried again, and how long its dead letter stays."""

    reason: str
    entered_at: int
    expires_at: int
    retry_count: int = 0
    next_retry_at: int = 0


class LogLine(msgspec.Struct, frozen=True, gc=False):
    at: int
    level: str
    message: str


class Progress(msgspec.Struct, frozen=True, gc=False):
    percent: int = 0
    message: str = ""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about one job."""

    id: int
    queue: str
    state: State
    payload: bytes
    options: Options
    pushed_at: int
    attempts: int = 0
    crashes: int = 0
    due: int = 0
    """When a delayed job becomes ready; 0 in other states."""
    blocked_by: tuple[int, ...] = ()
    started_at: int = 0
    lease_until: int = 0
    worker: str = ""
    claim: str | None = None
    cancel_requested: bool = False
    finished_at: int = 0
    result: bytes | None = None
    reason: str = ""
    error: str = ""
    stack: str = ""
    progress: Progress = Progress()
    history: tuple[Attempt, ...] = ()
    dead: DeadLetter | None = None
    result_codec: Codec = "bytes"
    error_class: str = ""
    """The class of `error`, as the worker named it: `KeyError`, `shop.errors.NoStock`."""
    heartbeat_at: int = 0
    """While the job is active: when its worker last gave a sign of life, by the pull or by renewing the lease."""

    @property
    def cause(self) -> str:
        """The class and the message of its last error, as Python prints them, as far as they are known."""
        return cause_of(self.error_class, self.error)

    @property
    def name(self) -> str | None:
        return self.options.name

    @property
    def schedule(self) -> str | None:
        """The schedule that pushed it, if any."""
        return self.options.schedule


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The answer to waiting for a job. `finished` is false if the time ran out first."""

    id: int
    state: State
    finished: bool
    result: bytes | None = None
    reason: str = ""
    error: str = ""
    result_codec: Codec = "bytes"


class Page(msgspec.Struct, frozen=True, gc=False):
    """Some jobs in id order. `next_after` is where the next page starts, None after the last. A page may be short, and
    even empty, when there was much to look at.
    """

    jobs: Sequence[JobView]
    next_after: int | None = None
    looked: int = 0
    """How many jobs were looked at for it, where the broker tells."""


class Counted(msgspec.Struct, frozen=True, gc=False):
    """How many jobs match, as far as was looked: all of them if `next_after` is None, else at least this many."""

    count: int
    looked: int = 0
    next_after: int | None = None


class Counts(msgspec.Struct, frozen=True, gc=False):
    """Jobs by state. Ended states count the jobs that are still readable."""

    waiting: int = 0
    delayed: int = 0
    blocked: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0


class Totals(msgspec.Struct, frozen=True, gc=False):
    """What has happened since the beginning. The `_ms_sum`s add up completed jobs."""

    pushed: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    retried: int = 0
    timed_out: int = 0
    stalled: int = 0
    evicted: int = 0
    wait_ms_sum: int = 0
    run_ms_sum: int = 0


class Priorities(msgspec.Struct, frozen=True, gc=False):
    """How many jobs of a queue wait with each priority, the highest first. The sum is `Counts.waiting`."""

    waiting: Mapping[int, int]


class Stats(msgspec.Struct, frozen=True, gc=False):
    """Counters of a queue, a tenant or a shard. Answering is O(1)."""

    counts: Counts
    totals: Totals
    completed_last_minute: int = 0
    """Jobs completed in the last 60 whole seconds."""
    payload_bytes: int = 0
    """The payloads of jobs that are waiting, delayed, blocked or active."""


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of a queue."""

    name: str
    paused: bool = False
    rate_limit: RateLimit | None = None
    concurrency: int = 0
    group_on_retry: GroupPolicy = "hold"
    dead_letters: DeadLetterPolicy


class Queues(msgspec.Struct, frozen=True, gc=False):
    names: Sequence[str]


class QueueSummary(msgspec.Struct, frozen=True):
    """One queue: what it is set to, its counters, and how long its jobs wait and run."""

    policy: QueueView
    stats: Stats
    timings: Timings | None = None
    """None where the broker does not measure."""

    @property
    def name(self) -> str:
        return self.policy.name


class QueuePage(msgspec.Struct, frozen=True):
    """Some of the tenant's queues, in the order of their names."""

    queues: Sequence[QueueSummary]
    next_after: str | None = None
    """Where the next page starts; None after the last queue."""
    total: int = 0
    """All queues of the tenant, whatever was asked for."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running: everything that holds it back, and how many jobs are before it."""

    state: State
    paused: bool = False
    rate_limited_until: int | None = None
    no_free_slot: bool = False
    group_busy_with: int | None = None
    """The job of the same group that has to end, or that comes first."""
    blocked_by: tuple[int, ...] = ()
    delayed_until: int | None = None
    jobs_ahead: int = 0


class Input(msgspec.Struct, frozen=True, gc=False):
    """The result of one job, for the jobs that depend on it. Without a `state` it can no longer be read."""

    id: int
    step: str = ""
    state: State | None = None
    result: bytes | None = None
    codec: Codec = "bytes"
    error: str = ""


class Inputs(msgspec.Struct, frozen=True, gc=False):
    """Inputs in order. `next_after` is None after the last one. `total` counts all of them."""

    inputs: Sequence[Input]
    next_after: int | None = None
    total: int = 0


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a workflow. `first` is 0 while its jobs do not exist or are not known."""

    key: str
    queue: str
    name: str | None = None
    first: int = 0
    count: int = 0
    after: tuple[Edge, ...] = ()
    open: bool = False
    state: Literal["blocked", "running", "completed", "failed"]
    counts: Counts = Counts()


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow: its progress and its graph."""

    id: int
    name: str = ""
    state: WorkflowState
    pushed_at: int
    finished_at: int = 0
    total: int = 0
    """Jobs that exist so far."""
    remaining: int = 0
    """Jobs that have not ended."""
    failed: int = 0
    """Jobs that failed, were cancelled or have expired."""
    counts: Counts = Counts()
    """Jobs by state, including ended jobs that are no longer readable."""
    retries: int = 0
    steps: Sequence[StepView] = ()

    @property
    def percent(self) -> int:
        return 100 * (self.total - self.remaining) // self.total if self.total else 100


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line in a list of workflows. `steps`, `ended` and `failed` count steps, not jobs."""

    id: int
    name: str = ""
    state: WorkflowState
    pushed_at: int
    finished_at: int = 0
    steps: int = 0
    ended: int = 0
    failed: int = 0


class WorkflowPage(msgspec.Struct, frozen=True, gc=False):
    """Some workflows, newest first. `next_after` is where the next page starts, None after the last one."""

    workflows: Sequence[WorkflowInfo]
    next_after: int | None = None


class DeadStats(msgspec.Struct, frozen=True, gc=False):
    total: int
    by_reason: Mapping[str, int]
    oldest_at: int | None = None


class DeadGroup(msgspec.Struct, frozen=True, gc=False):
    """Dead letters of one queue with the same reason and the same fingerprint of their errors."""

    queue: str
    reason: str
    fingerprint: str
    count: int
    first_at: int
    """When the oldest of them became a dead letter."""
    last_at: int
    examples: Sequence[int] = ()
    """The ids of some of them, the newest first."""


class DeadGroups(msgspec.Struct, frozen=True, gc=False):
    """Groups of dead letters, the largest first."""

    groups: Sequence[DeadGroup]
    ungrouped: int = 0
    """Dead letters that were not looked at yet. Asking again goes on with them."""
    others: int = 0
    """Dead letters in groups that this answer does not list."""


class Retried(msgspec.Struct, frozen=True, gc=False):
    """The dead letters that went back to work. `refused` names those whose unique key is taken."""

    ids: Sequence[int]
    refused: Mapping[int, str] = NOTHING


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One partial result."""

    index: int
    data: bytes
    codec: Codec = "bytes"


class Partials(msgspec.Struct, frozen=True, gc=False):
    chunks: Sequence[Chunk]


class Logs(msgspec.Struct, frozen=True, gc=False):
    lines: Sequence[LogLine]


class Events(msgspec.Struct, frozen=True, gc=False):
    """Events in order. `next_after` is the position to go on from, `lowest` the first sequence number still kept.

    `lowest` is as it was when the reading began: what is dropped while the reader waits has been looked at.
    """

    events: Sequence[Event]
    next_after: int
    lowest: int


class LoggedRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record of the log as bytes, which `stoker.records.codec` reads. `body` has its payloads, if asked for."""

    sequence: int
    head: bytes
    body: bytes = b""


class Records(msgspec.Struct, frozen=True, gc=False):
    """Records in order. `next_after` is the position to continue from. The log of this shard, one of `shards`, reaches
    from `lowest` to `last`.

    If the events were to be counted, there are no records: `events` is their number, `bytes` what the records of this
    page would have, and `since` the time of the first.
    """

    records: Sequence[LoggedRecord]
    next_after: int
    lowest: int
    last: int
    shards: int
    events: int = 0
    bytes: int = 0
    since: int = 0


class Note(msgspec.Struct, frozen=True):
    """Something that affected a job but is not a step of it: an edge, a key, its queue."""

    sequence: int
    at: int
    kind: str
    text: str


class Story(msgspec.Struct, frozen=True):
    """The steps of one job, and what else affected it."""

    events: list[Event]
    notes: list[Note]
    complete: bool
    """Whether the story starts at the push. False if the push is older than what the log keeps, or never happened."""


class KvValue(msgspec.Struct, frozen=True, gc=False):
    """An entry; `exists` is false if there is none. `expires_at` is 0 if it does not expire."""

    exists: bool
    value: bytes = b""
    codec: Codec = "bytes"
    expires_at: int = 0


class KvValues(msgspec.Struct, frozen=True, gc=False):
    """One value for each key, in the order of the keys."""

    values: Sequence[KvValue]


class KvFound(msgspec.Struct, frozen=True, gc=False):
    """Whether each key exists, in the order of the keys."""

    exists: Sequence[bool]


class KvExpiry(msgspec.Struct, frozen=True, gc=False):
    """When an entry expires: 0 = never."""

    exists: bool
    expires_at: int = 0
    level: Level = "memory"


class KvNumber(msgspec.Struct, frozen=True, gc=False):
    """The number that the entry holds now."""

    value: int
    level: Level = "memory"


class KvKeyPage(msgspec.Struct, frozen=True, gc=False):
    """Some keys in order. `next_after` is where the next page starts, None after the last one. A page may be short."""

    keys: Sequence[str]
    next_after: str | None = None
