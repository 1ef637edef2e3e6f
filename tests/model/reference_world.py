"""What the reference remembers: plain records in plain lists, found by looking at all of them.

Nothing is indexed, nothing is ever removed: a forgotten job is one with a mark. The rules stand in the
sibling modules; here is only what there is.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.ids import make_id, sequence_of
from stoker.model.limits import Limits
from stoker.model.options import Codec, DeadLetterPolicy, Options, RateLimit, Settings
from stoker.model.schedules import Schedule, ScheduleRun
from stoker.model.states import LIVE, PENDING, State

OWN_WORDS = "(in the broker's own words)"
"""Stands for a message that no caller wrote and no rule prescribes."""


@dataclass(eq=False)
class Edge:
    """One dependency of a job. `good` is None while the other job is live (or not pushed yet)."""

    on_failure: str
    job: int = 0
    item: int | None = None
    good: bool | None = None

    @property
    def open(self) -> bool:
        return self.good is None

    @property
    def broken(self) -> bool:
        return self.good is False and self.on_failure != "continue"


@dataclass(eq=False)
class Job:
    id: int
    tenant: str
    queue: str
    payload: bytes
    options: Options
    pushed_at: int
    due: int
    edges: list[Edge]
    state: State = State.BLOCKED
    forgotten: bool = False

    attempts: int = 0
    crashes: int = 0
    history: list[r.Attempt] = field(default_factory=list)

    # the current delivery
    token: int = 0
    started_at: int = 0
    lease_ms: int = 0
    lease_until: int = 0
    heartbeat_at: int = 0
    worker: str = ""
    claim: str | None = None
    cancel_requested: bool = False

    # the end
    finished_at: int = 0
    end_number: int = 0
    result: bytes | None = None
    result_codec: Codec = "bytes"
    reason: str = ""
    error: str = ""
    error_class: str = ""
    stack: str = ""

    # the dead letter
    dead: bool = False
    revived: bool = False
    """It was retried; its ttl no longer counts."""
    dead_number: int = 0
    expires_at: int = 0
    retry_count: int = 0
    next_retry_at: int = 0

    progress: r.Progress = field(default_factory=r.Progress)
    logs: list[r.LogLine] = field(default_factory=list)
    partials: list[r.Chunk] = field(default_factory=list)
    next_partial: int = 0

    @property
    def live(self) -> bool:
        return not self.forgotten and self.state in LIVE

    @property
    def pending(self) -> bool:
        return not self.forgotten and self.state in PENDING

    @property
    def active(self) -> bool:
        return self.state is State.ACTIVE

    @property
    def readable(self) -> bool:
        return not self.forgotten

    @property
    def timeout_at(self) -> int | None:
        return self.started_at + self.options.timeout_ms if self.options.timeout_ms else None

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in its queue; the smallest is pulled first."""
        if self.options.lifo:
            return (-self.options.priority, 0, -self.id)
        return (-self.options.priority, 1, self.id)


@dataclass(eq=False)
class Key:
    """A name that points to a job, until a time (None: until somebody says otherwise)."""

    job: int
    until: int | None = None

    def gone(self, now: int) -> bool:
        """It may end in the very moment in which it is asked for."""
        return self.until is not None and self.until <= now


@dataclass(eq=False)
class Queue:
    tenant: str
    name: str
    dead_letters: DeadLetterPolicy
    paused: bool = False
    concurrency: int = 0
    group_on_retry: str = "hold"
    rate_limit: RateLimit | None = None
    level: int = 0
    """Tokens in the bucket, times `per_ms`, so that refilling is exact in whole numbers."""
    level_at: int = 0
    held: dict[str, int] = field(default_factory=dict)
    """The job that a group waits for after a failed delivery."""
    unique: dict[str, Key] = field(default_factory=dict)
    custom: dict[str, Key] = field(default_factory=dict)
    debounce: dict[str, Key] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    completions: list[int] = field(default_factory=list)
    """When jobs were completed."""
    waits: list[int] = field(default_factory=list)
    """From the push of each job to its first start."""
    runs: list[int] = field(default_factory=list)
    """From each start to the end of the delivery, unless it was cancelled or handed back."""
    worker_seen_at: int | None = None
    """When a worker last asked for jobs, stopped waiting for them, or settled one."""
    ends: int = 0
    """Retained jobs that have ended so far; numbers them for retention by count."""


@dataclass(eq=False)
class Part:
    number: int | None
    queue: str
    payloads: Sequence[bytes]
    options: list[Options]


@dataclass(eq=False)
class StageOfJobs:
    parts: list[Part]
    until: int


@dataclass(eq=False)
class Transaction:
    stages: dict[str, StageOfJobs] = field(default_factory=dict)
    outcome: r.Transaction | None = None
    until: int = 0


@dataclass(eq=False)
class Claim:
    token: int
    until: int | None = None
    """None while any of its jobs is held."""


@dataclass(eq=False)
class Parked:
    """A command that waits for its answer."""

    tenant: str
    command: c.Command[Any]
    until: int


@dataclass(eq=False)
class Entry:
    """A value under a key; nothing ever changes one, another takes its place."""

    value: bytes
    codec: Codec
    until: int
    """When it expires; 0 = never."""


@dataclass(frozen=True)
class Planned:
    """A schedule; nothing ever changes one, another takes its place."""

    rule: Schedule
    created_at: int
    changed_at: int
    anchor: int
    paused: bool = False
    runs: int = 0
    next_slot: int = 0
    done_to: int = 0
    excused_to: int = 0
    """Slots up to this one are made up for, however late it is."""
    decided_at: int = 0
    jobs: tuple[int, ...] = ()
    history: tuple[ScheduleRun, ...] = ()


@dataclass(eq=False)
class World:
    settings: Settings
    limits: Limits
    now: int = 0
    jobs: list[Job] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    transactions: dict[tuple[str, str], Transaction] = field(default_factory=dict)
    claims: dict[tuple[str, str], Claim] = field(default_factory=dict)
    requests: dict[tuple[str, str, str], tuple[r.PushedBatch, int]] = field(default_factory=dict)
    sent: dict[tuple[str, str], dict[int, Any]] = field(default_factory=dict)
    """Of senders, by tenant and name: the reply to each number that is not settled."""
    """By tenant, queue and request key: the answer, and until when it is remembered."""
    kv: dict[tuple[str, str], Entry] = field(default_factory=dict)
    """By tenant and key."""
    schedules: dict[tuple[str, str, str], Planned] = field(default_factory=dict)
    """By tenant, queue and name."""
    looked_at: int = 0
    """The real time; `now` is that of the deadline that is being processed."""
    tenant_totals: dict[str, Counter[str]] = field(default_factory=dict)
    tenant_completions: dict[str, list[int]] = field(default_factory=dict)
    parked: list[Parked] = field(default_factory=list)
    answers: list[tuple[Parked, Any]] = field(default_factory=list)
    unsettled: list[Job] = field(default_factory=list)
    """Ended jobs whose dependents do not know it yet."""
    together: bool = False
    """Several jobs are ending in one step."""
    tokens: int = 0
    deaths: int = 0
    steps: list[tuple[int, str, str]] = field(default_factory=list)
    """Every change of state: (job, from, to). For measuring what a workload reaches."""

    def clone(self) -> "World":
        """A copy to try something out in. Values are shared, everything that can change is copied."""
        return replace(
            self,
            jobs=[job if job.forgotten else clone_job(job) for job in self.jobs],
            queues=[clone_queue(queue) for queue in self.queues],
            transactions={name: clone_transaction(one) for name, one in self.transactions.items()},
            claims={name: replace(claim) for name, claim in self.claims.items()},
            requests=dict(self.requests),
            sent={sender: dict(numbers) for sender, numbers in self.sent.items()},
            kv=dict(self.kv),
            schedules=dict(self.schedules),
            tenant_totals={tenant: Counter(totals) for tenant, totals in self.tenant_totals.items()},
            tenant_completions={tenant: list(times) for tenant, times in self.tenant_completions.items()},
            parked=list(self.parked),
            answers=list(self.answers),
            steps=list(self.steps),
        )

    def become(self, other: "World") -> None:
        """Take over a copy in which everything went well."""
        self.__dict__.update(other.__dict__)

    def next_id(self) -> int:
        return make_id(len(self.jobs) + 1, 0)

    def given(self, job_id: int) -> Job | None:
        """The job that this id was given to, whoever's, forgotten or not."""
        place = sequence_of(job_id) - 1
        if 0 <= place < len(self.jobs) and self.jobs[place].id == job_id:
            return self.jobs[place]
        return None

    def job(self, tenant: str, job_id: int) -> Job | None:
        """The readable job of this tenant."""
        job = self.given(job_id)
        return job if job is not None and job.readable and job.tenant == tenant else None

    def jobs_of(self, queue: Queue) -> Iterator[Job]:
        """The readable jobs of a queue, in id order."""
        return (j for j in self.jobs if j.readable and j.tenant == queue.tenant and j.queue == queue.name)

    def jobs_in(self, queue: Queue, *states: State) -> list[Job]:
        return [job for job in self.jobs_of(queue) if job.state in states]

    def queue(self, tenant: str, name: str) -> Queue | None:
        for queue in self.queues:
            if queue.tenant == tenant and queue.name == name:
                return queue
        return None

    def queue_of(self, job: Job) -> Queue:
        queue = self.queue(job.tenant, job.queue)
        assert queue is not None
        return queue

    def make_queue(self, tenant: str, name: str) -> Queue:
        queue = self.queue(tenant, name)
        if queue is None:
            queue = Queue(tenant, name, self.settings.dead_letters)
            self.queues.append(queue)
        return queue

    def dead_letters(self, queue: Queue) -> list[Job]:
        """Oldest entry first."""
        return sorted((job for job in self.jobs_of(queue) if job.dead), key=lambda job: job.dead_number)

    def count(self, queue: Queue, what: str, by: int = 1) -> None:
        queue.totals[what] += by
        self.tenant_totals.setdefault(queue.tenant, Counter())[what] += by

    def move(self, job: Job, state: State) -> None:
        self.steps.append((job.id, job.state, state))
        job.state = state


def clone_job(job: Job) -> Job:
    return replace(
        job,
        edges=[replace(edge) for edge in job.edges],
        history=list(job.history),
        logs=list(job.logs),
        partials=list(job.partials),
    )


def clone_queue(queue: Queue) -> Queue:
    return replace(
        queue,
        held=dict(queue.held),
        unique={name: replace(key) for name, key in queue.unique.items()},
        custom={name: replace(key) for name, key in queue.custom.items()},
        debounce={name: replace(key) for name, key in queue.debounce.items()},
        totals=Counter(queue.totals),
        completions=list(queue.completions),
        waits=list(queue.waits),
        runs=list(queue.runs),
    )


def clone_transaction(transaction: Transaction) -> Transaction:
    stages = {name: replace(stage, parts=list(stage.parts)) for name, stage in transaction.stages.items()}
    return replace(transaction, stages=stages)
