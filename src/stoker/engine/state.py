"""What a shard knows: jobs, batches, deliveries, queues, tenants.

Jobs come in two forms. Plain jobs that were pushed together are one `Batch`: waiting positions are a span,
pulled ones `Slice`s, ended ones `EndedRun`s. A job that needs to differ (retried, cancelled, grouped, with
a key, ...) is a `Job` of its own, with a `Detail` once there is more to say than that it waits.

Only `apply_*.py` changes what is in here. The structs opt out of garbage collection: they are many, they
hold no cycles among themselves, and walking millions of them would stall the loop. They are equal only to themselves.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from stoker.engine.bucket import Bucket
from stoker.engine.entries import Entries
from stoker.engine.ranges import RangeSet
from stoker.engine.spans import Pieces, Span
from stoker.model.ids import SHARD_BITS
from stoker.model.options import Codec, DeadLetterPolicy, GroupPolicy, Options
from stoker.model.replies import Attempt, Chunk, Level, LogLine
from stoker.model.schedules import Schedule, ScheduleRun
from stoker.records.records import Record
from stoker.records.stored import Stored, StoredRun

if TYPE_CHECKING:
    from stoker.engine.flows import Flow
    from stoker.engine.ready import Ready
    from stoker.engine.retained import Retained
    from stoker.engine.shard import Shard

WAITING, DELAYED, BLOCKED, ACTIVE, COMPLETED, FAILED, CANCELLED, EXPIRED = range(8)
"""Indexes into STATES and into the counters: comparing and counting small integers is what is fast."""
GONE = 8
BLOCKED_DUE = -1
"""In the place of a batch's due time: its jobs are blocked by the steps before theirs."""
LIVE_BYTES = 8
"""The place behind the states in `Scope.counts`: bytes of the payloads of live jobs, added up like them."""


class Detail(msgspec.Struct, gc=False, eq=False):
    """What there is to know about a job beyond that it waits."""

    attempts: int = 0
    crashes: int = 0
    due: int = 0
    # the current delivery
    token: int = 0
    worker: str = ""
    claim: str | None = None
    started_at: int = 0
    lease_ms: int = 0
    lease_until: int = 0
    fires_at: int = 0
    """When the delivery fails by itself: the earlier of lease and timeout."""
    cancel: bool = False
    # what it waits for: the unfinished jobs by id, with the policy of the edge
    blockers: dict[int, str] | None = None
    # what happened
    error: str = ""
    stack: str = ""
    reason: str = ""
    history: list[Attempt] | None = None
    percent: int = 0
    message: str = ""
    logs: deque[LogLine] | None = None
    partials: deque[Chunk] | None = None
    next_chunk: int = 0
    # the end
    ended_at: int = 0
    result: bytes | None = None
    serial: int = 0
    """Its number among the ended jobs of its queue."""
    expires_at: int = 0
    retry_count: int = 0
    next_retry_at: int = 0
    revived: bool = False
    """Once back from the dead letters, its ttl no longer counts."""
    result_codec: Codec = "bytes"


@final
class Job(msgspec.Struct, gc=False, eq=False):
    """A job of its own."""

    id: int
    queue: "Queue"
    options: Options
    payload: bytes | Stored
    pushed_at: int
    state: int
    detail: Detail | None = None

    @property
    def order(self) -> int:
        sequence = self.id >> SHARD_BITS
        return -sequence if self.options.lifo else sequence

    @property
    def last_order(self) -> int:
        return self.order

    @property
    def ids(self) -> Sequence[int]:
        return (self.id,)

    @property
    def lowest(self) -> int:
        return self.id

    @property
    def jobs(self) -> int:
        return 1

    def details(self) -> Detail:
        """Its detail, made when there is none yet. For `apply_*.py` only."""
        detail = self.detail
        if detail is None:
            detail = self.detail = Detail()
        return detail


@final
class Batch(msgspec.Struct, gc=False, eq=False):
    """Plain jobs pushed together with the same options.

    Position p has id `first + p * step`; for lifo batches the step is negative, so that positions
    ascend in pull order either way.
    """

    first: int
    step: int
    count: int
    queue: "Queue"
    options: Options
    payloads: list[bytes | None] | StoredRun
    sizes: int | list[int]
    pushed_at: int
    waiting: Span
    slices: "Pieces[Slice]"
    ended: "Pieces[EndedRun]"
    due: int = 0
    """Delayed until then; 0 once they wait. `BLOCKED_DUE` while they are blocked."""
    left: int = 0
    """Positions that are still readable here: waiting, active or ended."""

    @property
    def order(self) -> int:
        return self.order_at(self.waiting.start)

    @property
    def last_order(self) -> int:
        return self.order_at(self.count - 1)

    def order_at(self, position: int) -> int:
        sequence = self.first >> SHARD_BITS
        return (sequence if self.step > 0 else -sequence) + position

    @property
    def pending(self) -> int:
        """The state of what stands in `waiting`."""
        if not self.due:
            return WAITING
        return BLOCKED if self.due == BLOCKED_DUE else DELAYED

    @property
    def lowest(self) -> int:
        return self.first if self.step > 0 else self.id_at(self.count - 1)

    def id_at(self, position: int) -> int:
        return self.first + position * self.step

    def ids(self, start: int, stop: int) -> range:
        return range(self.id_at(start), self.id_at(stop), self.step)

    def sizes_of(self, start: int, stop: int) -> int | list[int]:
        return self.sizes if isinstance(self.sizes, int) else self.sizes[start:stop]

    def bytes_of(self, start: int, stop: int) -> int:
        """How much memory these payloads take: none when they lie in the journal."""
        if type(self.payloads) is StoredRun:
            return 0
        return self.sizes * (stop - start) if isinstance(self.sizes, int) else sum(self.sizes[start:stop])


@final
class Slice(msgspec.Struct, gc=False, eq=False):
    """Positions of a batch that one pull delivered together; all in their first attempt."""

    batch: Batch
    origin: int
    span: Span
    token: int
    worker: str
    claim: str | None
    started_at: int
    lease_ms: int
    lease_until: int
    fires_at: int

    def covers(self, position: int) -> bool:
        return position in self.span


@final
class EndedRun(msgspec.Struct, gc=False, eq=False):
    """Neighbouring positions that ended together and are still readable."""

    batch: Batch
    origin: int
    start: int
    stop: int
    state: int
    ended_at: int
    serial: int
    """Of the position `origin`; the others follow."""
    started_at: int = 0
    worker: str = ""
    reason: str = ""
    results: list[bytes | None] | None = None
    codec: Codec = "bytes"
    """Of the results."""

    def covers(self, position: int) -> bool:
        return self.start <= position < self.stop


@final
class Members(msgspec.Struct, gc=False):
    """Neighbouring positions of a batch that are in the same state: what a decision about many jobs speaks of."""

    batch: Batch
    start: int
    stop: int

    @property
    def queue(self) -> "Queue":
        return self.batch.queue

    @property
    def options(self) -> Options:
        return self.batch.options

    @property
    def pushed_at(self) -> int:
        return self.batch.pushed_at

    @property
    def ids(self) -> Sequence[int]:
        return self.batch.ids(self.start, self.stop)

    @property
    def lowest(self) -> int:
        return min(self.batch.id_at(self.start), self.batch.id_at(self.stop - 1))

    @property
    def jobs(self) -> int:
        return self.stop - self.start

    @property
    def slice(self) -> Slice | None:
        """The delivery that they are in, if they are active."""
        return self.batch.slices.find(self.start)


Part = Job | Members
"""One or more jobs of one queue, whatever form they have."""


Appliers = dict[type[Record], Callable[["Shard", Any], None]]
"""What each record does to the state."""


class Group:
    """The lane of one group: who waits in it, who holds it, and who of them stands in the ready order."""

    __slots__ = ("holder", "lane", "offered")

    def __init__(self) -> None:
        self.lane: deque[Job] = deque()
        self.holder: Job | None = None
        self.offered: Job | None = None


class Key(msgspec.Struct, gc=False, eq=False):
    """Who holds a unique key, a custom id or a debounce window, and until when; 0 = until told otherwise."""

    job: int
    expires_at: int = 0


class Request(msgspec.Struct, gc=False, eq=False):
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
        """Add to the ring; a second that has left it is forgotten."""
        if second > self.recent_second:
            for passed in range(max(self.recent_second + 1, second - 59), second + 1):
                self.recent[passed % 60] = 0
            self.recent_second = second
        if second > self.recent_second - 60:
            self.recent[second % 60] += jobs

    def last_minute(self, second: int) -> int:
        """Completed in the 60 seconds up to `second`."""
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
"""Places in `Scope.totals`, in the order of `replies.Totals`."""


class Claim(msgspec.Struct, gc=False, eq=False):
    """Jobs pulled under a name: runs of (first id, count), and how many of them are still held."""

    token: int
    runs: list[tuple[int, int]]
    held: int
    expires_at: int = 0


class StagedPart(msgspec.Struct, gc=False, eq=False):
    """A push that has not happened yet, as its record tells it."""

    record: Any
    stored: StoredRun | None
    """Where its payloads lie in the journal, if they do; they may be in memory as well."""
    bytes: int
    """What they take in memory."""


class Stage(msgspec.Struct, gc=False, eq=False):
    """Parts written under one stage key."""

    parts: list[StagedPart]
    numbers: set[int]
    jobs: int = 0
    expires_at: int = 0


class TransactionState(msgspec.Struct, gc=False, eq=False):
    """A transaction in the making, or how it ended."""

    stages: dict[str, Stage]
    outcome: Any = None
    expires_at: int = 0


class Planned(msgspec.Struct, eq=False):
    """A schedule, and how it stands. Slots are times of the calendar; `due` is a time of the shard."""

    name: str
    queue: "Queue"
    schedule: Schedule
    created_at: int
    changed_at: int = 0
    anchor: int = 0
    """From where intervals without a start count."""
    paused: bool = False
    runs: int = 0
    next_slot: int = 0
    """0 = it is over."""
    due: int = 0
    """When its next slot is looked at; 0 = never."""
    done_to: int = 0
    """The latest slot that is over."""
    made_up_to: int = 0
    """Slots up to this one are pushed however late they come."""
    jobs: list[int] = []
    """The last two that it pushed: more than that never hinder the next one."""
    last: deque[ScheduleRun] | None = None


class Queue:
    """A named line of jobs with everything that belongs to it."""

    __slots__ = (
        "bucket",
        "concurrency",
        "counts",
        "custom_ids",
        "dead",
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
        "waiters",
        "waiters_most",
    )

    def __init__(
        self,
        tenant: "Tenant",
        name: str,
        ready: "Ready",
        retained: "Retained",
        dead_policy: DeadLetterPolicy,
        top: Scope,
    ) -> None:
        self.tenant = tenant
        self.name = name
        self.known = False
        """Whether it has ever held a job or a policy; waiting pulls alone do not make a queue."""
        self.ready = ready
        self.delayed: list[tuple[int, int, Job | Batch]] = []
        """A heap of (due, order of setting, entry)."""
        self.delayed_armed = 0
        self.delayed_stale = 0
        self.paused = False
        self.is_free = True
        """Neither paused nor limited."""
        self.bucket: Bucket | None = None
        self.refill_armed = 0
        self.concurrency = 0
        self.group_on_retry: GroupPolicy = "hold"
        self.durability: Level | None = None
        """What its jobs ask for at least."""
        self.dead_policy = dead_policy
        self.groups: dict[str, Group] = {}
        self.unique_keys: dict[str, Key] = {}
        self.custom_ids: dict[str, Key] = {}
        self.debounces: dict[str, Key] = {}
        self.requests: dict[str, Request] = {}
        self.dead: dict[int, Job] = {}
        """In the order they entered."""
        self.retained = retained
        self.schedules: dict[str, Planned] = {}
        self.scope = Scope()
        self.counts, self.totals = self.scope.counts, self.scope.totals
        self.scopes = (self.scope, tenant.scope, top)
        self.told = Scope()
        """What the tenant and the shard know of the counters; every job touches only its queue's own."""
        self.touched = False
        self.second = 0
        self.second_jobs = 0
        self.waiters: deque[Any] = deque()
        self.waiters_most = 64
        """So long the line of waiters may become before those who are gone are taken out."""

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
        """Something was counted since the tenant's and the shard's counters were last brought up to date."""
        self.touched = True
        self.tenant.shard_touched.append(self)

    def completed(self, jobs: int, payload_bytes: int, wait_ms: int, run_ms: int, second: int) -> None:
        """Active jobs have completed."""
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
        """A new second begins: the jobs of the last one go into the rings."""
        if self.second_jobs:
            for scope in self.scopes:
                scope.completed_in(self.second, self.second_jobs)
        self.second, self.second_jobs = second, 0

    def add_up(self) -> None:
        """Bring the tenant's and the shard's counters up to date."""
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
        "claims",
        "ended_badly",
        "ended_flows",
        "flows",
        "keeping",
        "kept_bytes",
        "kv",
        "name",
        "queues",
        "schedules",
        "scope",
        "shard_touched",
        "transactions",
    )

    def __init__(self, name: str, touched: list[Queue]) -> None:
        self.name = name
        self.shard_touched = touched
        self.queues: dict[str, Queue] = {}
        self.claims: dict[str, Claim] = {}
        self.transactions: dict[str, TransactionState] = {}
        self.scope = Scope()
        self.ended_badly = RangeSet()
        """Sequence numbers of its jobs that failed, were cancelled or expired."""
        self.kv = Entries()
        """Its key-value entries, if this shard is their home."""
        self.flows: dict[int, Flow] = {}
        """Workflows that this shard has a part in."""
        self.ended_flows: dict[int, None] = {}
        """Those of them that have ended, in that order, if this shard is their home."""
        self.keeping: dict[int, None] = {}
        """Those of them that keep what forgotten jobs returned, in the order in which that began."""
        self.kept_bytes = 0
        self.schedules = 0
        """How many all of its queues have together."""

    @property
    def is_used(self) -> bool:
        """Whether anything has happened to it beside its queues."""
        return bool(self.claims or self.transactions or self.kv or self.flows) or any(self.scope.totals)
