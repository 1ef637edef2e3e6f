"""The state of a shard beside its jobs: tenants and queues, with everything that belongs to them.

That is keys, groups, claims, transactions, schedules and counters. Only `engine/apply/` changes what is in here. The
structs opt out of garbage collection, like those of `jobs.py`.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.engine.dead_groups import DeadGroupIndex
from stoker.engine.jobs import ACTIVE, LIVE_BYTES, SingleJob, UniformBatch
from stoker.engine.kv_entries import Entries
from stoker.engine.range_set import RangeSet
from stoker.engine.token_bucket import TokenBucket
from stoker.model.histograms import no_durations
from stoker.model.options import DeadLetterPolicy, GroupPolicy
from stoker.model.replies import Level
from stoker.model.schedules import Schedule, ScheduleRun
from stoker.records.records import Record
from stoker.records.stored import StoredRun

if TYPE_CHECKING:
    from stoker.engine.bulk_state import BulkRun
    from stoker.engine.ready import ReadyJobs
    from stoker.engine.retained_jobs import RetainedJobs
    from stoker.engine.shard_state import ShardState
    from stoker.engine.workflow_state import ShardWorkflow

Appliers = dict[type[Record], Callable[["ShardState", Any], None]]
"""The function that applies each record."""


class JobGroup:
    """One group: its waiting jobs, the job that holds it, and the job that is in the ready order."""

    __slots__ = ("holder", "lane", "offered")

    def __init__(self) -> None:
        self.lane: deque[SingleJob] = deque()
        self.holder: SingleJob | None = None
        self.offered: SingleJob | None = None


class KeyHolder(msgspec.Struct, gc=False, eq=False):
    """The job that holds a unique key, a custom id or a debounce window, and until when; 0 = no end set."""

    job: int
    expires_at: int = 0


class RememberedRequest(msgspec.Struct, gc=False, eq=False):
    """The remembered answer to a batch with a request key."""

    reply: Any
    expires_at: int


class Scope:
    """Counters of a queue, a tenant or the shard."""

    __slots__ = ("counts", "recent", "recent_second", "totals")

    def __init__(self) -> None:
        self.counts = [0] * (LIVE_BYTES + 1)
        self.totals = [0] * 12
        self.recent = [0] * 60
        """Completed jobs by second, a ring of the last minute."""
        self.recent_second = 0

    def completed_in(self, second: int, jobs: int) -> None:
        """Add to the ring. A second that is no longer in it is ignored."""
        if second > self.recent_second:
            for passed in range(max(self.recent_second + 1, second - 59), second + 1):
                self.recent[passed % 60] = 0
            self.recent_second = second
        if second > self.recent_second - 60:
            self.recent[second % 60] += jobs

    def last_minute(self, second: int) -> int:
        """Jobs completed in the 60 seconds up to `second`."""
        first = max(0, second - 59, self.recent_second - 59)
        return sum(self.recent[s % 60] for s in range(first, min(second, self.recent_second) + 1))


(
    T_PUSHED,
    T_STARTED,
    T_COMPLETED,
    T_FAILED,
    T_CANCELLED,
    T_EXPIRED,
    T_RETRIED,
    T_TIMED_OUT,
    T_STALLED,
    T_EVICTED,
    T_WAIT_MS,
    T_RUN_MS,
) = range(12)
"""Indexes into `Scope.totals`, in the order of `replies.Totals`."""


class NamedClaim(msgspec.Struct, gc=False, eq=False):
    """Jobs pulled under a name: runs of (first id, count), and how many of them are still held."""

    token: int
    runs: list[tuple[int, int]]
    held: int
    expires_at: int = 0


class StagedPart(msgspec.Struct, gc=False, eq=False):
    """A part of a stage, which is not pushed yet, with its record."""

    record: Any
    stored: StoredRun | None
    """The places of its payloads in the journal, if they are there. They may be in memory, too."""
    bytes: int
    """The memory of its payloads."""


class OpenStage(msgspec.Struct, gc=False, eq=False):
    """Parts written under one stage key."""

    parts: list[StagedPart]
    numbers: set[int]
    jobs: int = 0
    expires_at: int = 0


class TransactionState(msgspec.Struct, gc=False, eq=False):
    """A transaction that is being written, or its outcome."""

    stages: dict[str, OpenStage]
    outcome: Any = None
    expires_at: int = 0


class Planned(msgspec.Struct, eq=False):
    """A schedule and its state. Slots are calendar times; `due` is a time of the shard."""

    name: str
    queue: "QueueState"
    schedule: Schedule
    created_at: int
    changed_at: int = 0
    anchor: int = 0
    """The time from which intervals without a start count."""
    paused: bool = False
    runs: int = 0
    next_slot: int = 0
    """0 = the schedule is over."""
    due: int = 0
    """When its next slot is handled; 0 = never."""
    done_to: int = 0
    """The latest slot that is over."""
    made_up_to: int = 0
    """Slots up to this one are pushed however late they are."""
    jobs: list[int] = []
    """The last two jobs that it pushed. Older ones never hold back the next one."""
    last: deque[ScheduleRun] | None = None


class QueueState:
    """A named line of jobs with everything that belongs to it."""

    __slots__ = (
        "bucket",
        "concurrency",
        "counts",
        "custom_ids",
        "dead",
        "dead_groups",
        "dead_policy",
        "debounces",
        "delayed",
        "delayed_armed",
        "delayed_stale",
        "durability",
        "group_on_retry",
        "groups",
        "is_free",
        "known",
        "name",
        "paused",
        "ready",
        "refill_armed",
        "requests",
        "retained",
        "run",
        "schedules",
        "scope",
        "scopes",
        "second",
        "second_jobs",
        "tenant",
        "told",
        "totals",
        "touched",
        "unique_keys",
        "wait",
        "waiters",
        "waiters_most",
        "worker_seen_at",
    )

    def __init__(
        self,
        tenant: "Tenant",
        name: str,
        ready: "ReadyJobs",
        retained: "RetainedJobs",
        dead_policy: DeadLetterPolicy,
        top: Scope,
    ) -> None:
        self.tenant = tenant
        self.name = name
        self.known = False
        """Whether it has ever had a job or a policy. A waiting pull alone does not create a queue."""
        self.ready = ready
        self.delayed: list[tuple[int, int, SingleJob | UniformBatch]] = []
        """A heap of (due, order of setting, entry)."""
        self.delayed_armed = 0
        self.delayed_stale = 0
        self.paused = False
        self.is_free = True
        """Whether it is neither paused nor limited."""
        self.bucket: TokenBucket | None = None
        self.refill_armed = 0
        self.concurrency = 0
        self.group_on_retry: GroupPolicy = "hold"
        self.durability: Level | None = None
        """The level for its jobs, if a push does not ask for another."""
        self.dead_policy = dead_policy
        self.groups: dict[str, JobGroup] = {}
        self.unique_keys: dict[str, KeyHolder] = {}
        self.custom_ids: dict[str, KeyHolder] = {}
        self.debounces: dict[str, KeyHolder] = {}
        self.requests: dict[str, RememberedRequest] = {}
        self.dead: dict[int, SingleJob] = {}
        """In the order in which they entered."""
        self.dead_groups = DeadGroupIndex()
        self.retained = retained
        self.schedules: dict[str, Planned] = {}
        self.scope = Scope()
        self.counts, self.totals = self.scope.counts, self.scope.totals
        self.scopes = (self.scope, tenant.scope, top)
        self.wait = no_durations()
        """From the push to the first start."""
        self.run = no_durations()
        """From a start to the end of the delivery, whether it completed or failed."""
        self.told = Scope()
        """The counters as the tenant and the shard last saw them. A job only changes the counters of its queue."""
        self.touched = False
        self.second = 0
        self.second_jobs = 0
        self.waiters: deque[Any] = deque()
        self.waiters_most = 64
        """How long the wait list may become before answered pulls are taken out."""
        self.worker_seen_at = -(2**62)
        """When a worker last asked for jobs or settled one. Not journaled: a restart forgets it."""

    def count(self, state: int, jobs: int) -> None:
        self.counts[state] += jobs
        if not self.touched:
            self.touch()

    def move(self, old: int, new: int, jobs: int = 1) -> None:
        counts = self.counts
        counts[old] -= jobs
        counts[new] += jobs
        if not self.touched:
            self.touch()

    def total(self, place: int, amount: int = 1) -> None:
        self.totals[place] += amount
        if not self.touched:
            self.touch()

    def touch(self) -> None:
        """Note that the counters of the tenant and the shard are out of date."""
        self.touched = True
        self.tenant.shard_touched.append(self)

    def completed(self, jobs: int, payload_bytes: int, wait_ms: int, run_ms: int, second: int) -> None:
        """Count active jobs that have completed."""
        counts, totals = self.counts, self.totals
        counts[ACTIVE] -= jobs
        counts[LIVE_BYTES] -= payload_bytes
        totals[T_COMPLETED] += jobs
        totals[T_WAIT_MS] += wait_ms
        totals[T_RUN_MS] += run_ms
        if second != self.second:
            self.roll(second)
        self.second_jobs += jobs
        if not self.touched:
            self.touch()

    def roll(self, second: int) -> None:
        """A new second begins: add the jobs of the last one to the rings."""
        if self.second_jobs:
            for scope in self.scopes:
                scope.completed_in(self.second, self.second_jobs)
        self.second, self.second_jobs = second, 0

    def add_up(self) -> None:
        """Bring the counters of the tenant and the shard up to date."""
        self.roll(self.second)
        scope, told = self.scope, self.told
        for now, before, ours in ((scope.counts, told.counts, 0), (scope.totals, told.totals, 1)):
            for place, value in enumerate(now):
                change = value - before[place]
                if change:
                    for other in self.scopes[1:]:
                        (other.totals if ours else other.counts)[place] += change
                    before[place] = value
        self.touched = False


class Tenant:
    """The owner of queues, claims, transactions and key-value entries."""

    __slots__ = (
        "bulks",
        "claims",
        "ended_badly",
        "ended_flows",
        "flows",
        "keeping",
        "kept_bytes",
        "kv",
        "kv_bytes",
        "name",
        "planned_bytes",
        "queues",
        "schedules",
        "scope",
        "shard_touched",
        "staged_bytes",
        "staged_jobs",
        "transactions",
    )

    def __init__(self, name: str, touched: list[QueueState]) -> None:
        self.name = name
        self.shard_touched = touched
        self.queues: dict[str, QueueState] = {}
        self.bulks: dict[str, BulkRun] = {}
        """Bulk operations that run, and the last ones that ended, in the order in which they began."""
        self.claims: dict[str, NamedClaim] = {}
        self.transactions: dict[str, TransactionState] = {}
        self.scope = Scope()
        self.ended_badly = RangeSet()
        """Sequence numbers of its jobs that failed, were cancelled or expired."""
        self.kv = Entries()
        """Its key-value entries, if this shard is their home."""
        self.flows: dict[int, ShardWorkflow] = {}
        """Workflows that this shard has a part of."""
        self.ended_flows: dict[int, None] = {}
        """The ended ones in the order of their ends, for workflows whose home is this shard."""
        self.keeping: dict[int, None] = {}
        """Workflows that keep results of forgotten jobs, in the order in which they began to."""
        self.kept_bytes = 0
        self.schedules = 0
        """The number of schedules of all its queues."""
        self.planned_bytes = 0
        """The bytes of the payloads of its schedules."""
        self.staged_jobs = self.staged_bytes = 0
        """Jobs that its transactions have staged, and the bytes of their payloads."""
        self.kv_bytes = 0
        """The bytes of its key-value entries, keys included."""

    @property
    def is_used(self) -> bool:
        """Whether it has anything beside its queues."""
        return bool(self.bulks or self.claims or self.transactions or self.kv or self.flows) or any(self.scope.totals)
