"""What the commands answer with.

Replies about many jobs speak in runs and ranges, so that a batch of ten thousand costs as much as
a batch of one; iterating over them gives one value a job. Like commands and records they hold no cycles, so
the garbage collector is told not to walk them: it would run ten times as often for nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from stoker.model.events import Event
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
    """The job that the push made, or the one that was there before."""

    id: int
    created: bool = True
    duplicate_by: DuplicateBy | None = None
    level: Level = "memory"


class Refusal(msgspec.Struct, frozen=True, gc=False):
    code: str
    message: str


class PushedBatch(msgspec.Struct, frozen=True, gc=False):
    """One id an item, 0 for a refused one. `refused` and `duplicates` are by item number."""

    ids: Sequence[int]
    refused: Mapping[int, Refusal] = {}
    duplicates: Mapping[int, DuplicateBy] = {}
    level: Level = "memory"

    @property
    def created(self) -> int:
        return len(self.ids) - len(self.refused) - len(self.duplicates)


class PushedWorkflow(msgspec.Struct, frozen=True, gc=False):
    """The workflow's id, and for each step the first id of its jobs and their number; (0, 0) where it has none yet."""

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
    """The outcome of a transaction: how many jobs were created, as runs of (first id, count)."""

    outcome: Literal["published", "aborted"]
    created: int = 0
    runs: tuple[tuple[int, int], ...] = ()
    level: Level = "memory"


class DeliveredJob(msgspec.Struct, frozen=True, gc=False):
    """One job in a worker's hands."""

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
        """The schedule that pushed it, if one did."""
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
        """The kind of all of these jobs."""
        return self.options.name


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """What a pull brought. One token proves all of it; `next_at` is the next known chance of an empty one."""

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
        """The ids as one sequence; a plain range when the delivery is one run."""
        if len(self.runs) == 1:
            return self.runs[0].ids
        return [job_id for run in self.runs for job_id in run.ids]

    @property
    def payloads(self) -> Sequence[bytes]:
        if len(self.runs) == 1:
            return self.runs[0].payloads
        return [payload for run in self.runs for payload in run.payloads]


class Settled(msgspec.Struct, frozen=True, gc=False):
    """How many of the named jobs were settled, and the code for each that was not."""

    count: int
    refused: Mapping[int, str] = NOTHING
    level: Level = "memory"


class FailedJob(msgspec.Struct, frozen=True, gc=False):
    """Where a failed delivery led: `waiting` or `delayed` until `due`, `failed`, or `cancelled`."""

    id: int
    state: State
    due: int = 0


class Failed(msgspec.Struct, frozen=True, gc=False):
    jobs: Sequence[FailedJob]
    refused: Mapping[int, str] = NOTHING
    level: Level = "memory"


class Extended(msgspec.Struct, frozen=True, gc=False):
    """`cancelled` names the jobs whose cancellation was asked for: the worker should stop them."""

    count: int
    lease_until: int
    refused: Mapping[int, str] = NOTHING
    cancelled: Sequence[int] = ()


class Done(msgspec.Struct, frozen=True, gc=False):
    """It was done; `count` jobs were touched."""

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
    """`KeyError: 'nope'`. An exception without a message of its own has its class for one."""
    if error == error_class.rpartition(".")[2]:
        return error_class
    return ": ".join(part for part in (error_class, error) if part)


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """Why a job will not be tried again."""

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
    """All that is known about one job."""

    id: int
    queue: str
    state: State
    payload: bytes
    options: Options
    pushed_at: int
    attempts: int = 0
    crashes: int = 0
    due: int = 0
    """When a delayed job becomes ready; 0 otherwise."""
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
    """Of `error`, as the worker named it: `KeyError`, `shop.errors.NoStock`."""
    heartbeat_at: int = 0
    """While it is active: when its worker was last heard of, by the delivery or by a renewed lease."""

    @property
    def cause(self) -> str:
        """The class and the message of its last error, as Python prints them; what there is of them."""
        return cause_of(self.error_class, self.error)

    @property
    def name(self) -> str | None:
        return self.options.name

    @property
    def schedule(self) -> str | None:
        """The schedule that pushed it, if one did."""
        return self.options.schedule


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The answer of waiting for a job. `finished` is false when the time ran out first."""

    id: int
    state: State
    finished: bool
    result: bytes | None = None
    reason: str = ""
    error: str = ""
    result_codec: Codec = "bytes"


class Page(msgspec.Struct, frozen=True, gc=False):
    """Some jobs in id order, and where the next page starts: None after the last one. A page may be short."""

    jobs: Sequence[JobView]
    next_after: int | None = None


class Counts(msgspec.Struct, frozen=True, gc=False):
    """Jobs by state. Ended states count what is still readable."""

    waiting: int = 0
    delayed: int = 0
    blocked: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0


class Totals(msgspec.Struct, frozen=True, gc=False):
    """What has happened since the beginning. The `_ms_sum`s are over completed jobs."""

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
    """How many jobs of a queue wait with each priority, the highest first. Together they are `Counts.waiting`."""

    waiting: Mapping[int, int]


class Stats(msgspec.Struct, frozen=True, gc=False):
    """O(1) to answer for a queue, a tenant or a shard."""

    counts: Counts
    totals: Totals
    completed_last_minute: int = 0
    """Completed jobs in the last 60 whole seconds."""
    payload_bytes: int = 0
    """Of the jobs that are waiting, delayed, blocked or active."""


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's policy."""

    name: str
    paused: bool = False
    rate_limit: RateLimit | None = None
    concurrency: int = 0
    group_on_retry: GroupPolicy = "hold"
    dead_letters: DeadLetterPolicy


class Queues(msgspec.Struct, frozen=True, gc=False):
    names: Sequence[str]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running: every hindrance at once, and how many jobs stand before it."""

    state: State
    paused: bool = False
    rate_limited_until: int | None = None
    no_free_slot: bool = False
    group_busy_with: int | None = None
    """The job of the same group that must end, or come first."""
    blocked_by: tuple[int, ...] = ()
    delayed_until: int | None = None
    jobs_ahead: int = 0


class Input(msgspec.Struct, frozen=True, gc=False):
    """What one job has given to those that depend on it. Without a `state` it can no longer be read."""

    id: int
    step: str = ""
    state: State | None = None
    result: bytes | None = None
    codec: Codec = "bytes"
    error: str = ""


class Inputs(msgspec.Struct, frozen=True, gc=False):
    """In order; `next_after` is None after the last one. `total` counts all of them."""

    inputs: Sequence[Input]
    next_after: int | None = None
    total: int = 0


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a workflow. `first` is 0 while its jobs are not there, or not known."""

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
    """A workflow: how far it is, and its graph."""

    id: int
    name: str = ""
    state: WorkflowState
    pushed_at: int
    finished_at: int = 0
    total: int = 0
    """Jobs, as far as they are there."""
    remaining: int = 0
    """Jobs that have not ended."""
    failed: int = 0
    """Jobs that failed, were cancelled or have expired."""
    counts: Counts = Counts()
    """Jobs by state; ended ones also if they are no longer readable."""
    retries: int = 0
    steps: Sequence[StepView] = ()

    @property
    def percent(self) -> int:
        return 100 * (self.total - self.remaining) // self.total if self.total else 100


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a list: steps are counted, not jobs."""

    id: int
    name: str = ""
    state: WorkflowState
    pushed_at: int
    finished_at: int = 0
    steps: int = 0
    ended: int = 0
    failed: int = 0


class WorkflowPage(msgspec.Struct, frozen=True, gc=False):
    """Some workflows, newest first, and where the next page starts: None after the last one."""

    workflows: Sequence[WorkflowInfo]
    next_after: int | None = None


class DeadStats(msgspec.Struct, frozen=True, gc=False):
    total: int
    by_reason: Mapping[str, int]
    oldest_at: int | None = None


class Retried(msgspec.Struct, frozen=True, gc=False):
    """The dead letters that went back to work; `refused` names those whose unique key is taken."""

    ids: Sequence[int]
    refused: Mapping[int, str] = NOTHING


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A partial result."""

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
    """One record of the log as bytes (`stoker.records.codec` reads them); `body` has its payloads, if asked for."""

    sequence: int
    head: bytes
    body: bytes = b""


class Records(msgspec.Struct, frozen=True, gc=False):
    """Records in order. `next_after` is the position to go on from; the log of the shard, one out of `shards`, reaches
    from `lowest` to `last`.
    """

    records: Sequence[LoggedRecord]
    next_after: int
    lowest: int
    last: int
    shards: int


class Note(msgspec.Struct, frozen=True):
    """Something that concerned a job without being a step of its own: an edge, a key, its queue."""

    sequence: int
    at: int
    kind: str
    text: str


class Story(msgspec.Struct, frozen=True):
    """The steps of one job, and what else concerned it."""

    events: list[Event]
    notes: list[Note]
    complete: bool
    """Whether the beginning is there. False when the push, if there was one, is older than what the log keeps."""


class KvValue(msgspec.Struct, frozen=True, gc=False):
    """An entry, or that there is none. `expires_at` is 0 for one that stays."""

    exists: bool
    value: bytes = b""
    codec: Codec = "bytes"
    expires_at: int = 0


class KvValues(msgspec.Struct, frozen=True, gc=False):
    """One for each of the keys, in their order."""

    values: Sequence[KvValue]


class KvFound(msgspec.Struct, frozen=True, gc=False):
    """Whether there is an entry, for each of the keys in their order."""

    exists: Sequence[bool]


class KvExpiry(msgspec.Struct, frozen=True, gc=False):
    """When an entry leaves by itself: 0 = never."""

    exists: bool
    expires_at: int = 0
    level: Level = "memory"


class KvNumber(msgspec.Struct, frozen=True, gc=False):
    """What an entry counts now."""

    value: int
    level: Level = "memory"


class KvKeyPage(msgspec.Struct, frozen=True, gc=False):
    """Some keys in their order, and where the next page starts: None after the last one. A page may be short."""

    keys: Sequence[str]
    next_after: str | None = None
