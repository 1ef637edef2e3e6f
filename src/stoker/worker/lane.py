"""The contract between a worker, which pulls and settles, and its lanes, which call handlers.

A worker cuts a delivery into chunks with one handler each, and submits a chunk only where there is room. A lane answers
with settlements, in any order and from any thread. Nothing here knows connections or signals.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

from stoker.model.commands import Command
from stoker.model.options import Options
from stoker.worker.handler import Handler
from stoker.worker.outcomes import Failure, Verdict

R = TypeVar("R")

Flag = Literal["cancelled", "lost", "timeout"]
"""Why a running job should stop: it was cancelled, its lease is lost, or the queue has timed it out."""


class JobChunk:
    """Jobs of one delivery with one handler: the unit of submitting, leases and settling.

    `flags` has the jobs that should stop. Lanes and contexts read it; only the worker's loop and its lease keeper
    write. Everything else is fixed when the chunk is made.
    """

    __slots__ = (
        "attempt",
        "flags",
        "handler",
        "ids",
        "lane",
        "lease_ms",
        "left",
        "options",
        "over",
        "payloads",
        "pushed_at",
        "queue",
        "received_at",
        "renew_at",
        "timer",
        "token",
    )

    def __init__(
        self,
        handler: Handler,
        token: int,
        queue: str,
        ids: Sequence[int],
        payloads: Sequence[bytes],
        options: Options,
        attempt: int,
        pushed_at: int,
        received_at: float = 0.0,
    ) -> None:
        self.handler, self.token, self.queue = handler, token, queue
        self.ids, self.payloads = ids, payloads
        self.options, self.attempt, self.pushed_at = options, attempt, pushed_at
        self.received_at = received_at
        """Time of `time.monotonic`."""
        self.lane: Lane | None = None
        self.flags: dict[int, Flag] = {}
        self.timer: asyncio.TimerHandle | None = None
        """Fires when the queue will have timed the jobs out."""
        # Used by the worker's books:
        self.left = len(ids)
        """Jobs that are not settled."""
        self.over: set[int] = set()
        """Jobs that their handler has finished, while others are not finished."""
        self.lease_ms = options.lease_ms
        self.renew_at = received_at + self.lease_ms / 3_000

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def name(self) -> str:
        """The handler's name; the job's own where it has no handler."""
        return self.handler.name or self.options.name or ""

    def __repr__(self) -> str:
        return f"Chunk({self.name}, {len(self.ids)} jobs of {self.queue} from {self.ids[0]} on)"


# --- settlements: what a lane tells about jobs of a chunk ------------------------------------------


@dataclass(frozen=True, slots=True)
class JobsCompleted:
    """These jobs completed. `results` has one entry for each id, or is None where no handler returned anything."""

    chunk: JobChunk
    ids: Sequence[int]
    results: Sequence[bytes | None] | None = None
    seconds: Sequence[float] = ()
    """How long the handler took for each job; empty where unknown."""


@dataclass(frozen=True, slots=True)
class JobFailure:
    """The job failed, or its handler snoozed or cancelled it; the verdict says which."""

    chunk: JobChunk
    id: int
    failure: Failure
    verdict: Verdict
    seconds: float | None = None
    """How long the handler took, where known."""


@dataclass(frozen=True, slots=True)
class JobsHandedBack:
    """These jobs go back to the queue without a counted attempt: not begun, or interrupted because the worker stops."""

    chunk: JobChunk
    ids: Sequence[int]
    delay_ms: int = 0
    note: str = ""
    """The reason, where there is more to say."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The lease of these jobs is lost: nothing is sent to the queue."""

    chunk: JobChunk
    ids: Sequence[int]


Settlement: TypeAlias = JobsCompleted | JobFailure | JobsHandedBack | Dropped


class LaneHost(Protocol):
    """What a lane and a context can ask of the worker. Every method may be called from any thread."""

    @property
    def stopping(self) -> bool:
        """Whether the worker is draining: no new jobs will come."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def worker(self) -> str:
        """The worker's id."""
        ...

    def settle(self, settlement: Settlement) -> None:
        """Say how jobs ended. Every job of a submitted chunk needs a settlement, whatever happened to it.

        The first one counts: a thread that comes back after its job was given up may still settle it without harm.
        """
        ...

    def measured(self, queue: str, jobs: int, seconds: float) -> None:
        """Note that `jobs` jobs of a queue kept a slot for `seconds` in total: short jobs are fetched ahead."""
        ...

    def roomier(self) -> None:
        """A lane has room again without having settled anything. Called on the event loop."""
        ...

    def report(self, chunk: JobChunk, job: int, command: Command[object]) -> None:
        """Send something about a running job (progress, log lines) in the background, before the job is settled."""
        ...

    def renew(self, chunk: JobChunk) -> None:
        """Renew the lease soon, and look for cancellations."""
        ...

    def execute(self, command: Command[R]) -> R:
        """Execute a command and wait for the reply. Not for the event loop."""
        ...

    async def execute_async(self, command: Command[R]) -> R: ...


class Lane(Protocol):
    """Runs handlers of one kind. All methods are called on the worker's event loop; none may block it."""

    @property
    def slots(self) -> int:
        """How many handlers run at the same time."""
        ...

    @property
    def running(self) -> int:
        """How many jobs are running."""
        ...

    def room(self, pace_s: float | None) -> int:
        """How many more jobs it takes now: free slots, and a small backlog where jobs are short.

        `pace_s` is how long a job of this queue has been taking; None if unknown.
        """
        ...

    async def start(self, host: LaneHost) -> None: ...

    def submit(self, chunk: JobChunk) -> None:
        """Run these jobs; each comes back in a settlement."""
        ...

    def interrupt(self, chunk: JobChunk, job: int) -> None:
        """Stop the job if it can be stopped from outside; `chunk.flags` says why. It still has to be settled.

        A job flagged `cancelled` is settled as failed (the queue makes it cancelled); one flagged `lost` or `timeout`
        is dropped.
        """
        ...

    def hand_back(self) -> None:
        """Release all jobs that have not begun."""
        ...

    def break_off(self) -> None:
        """Release running jobs, too. Those that cannot be stopped are released all the same."""
        ...

    async def close(self) -> None:
        """Let go of threads and processes. Called once, after every job was settled or given up."""
        ...


# --- fetching ahead ---------------------------------------------------------------------------------

AHEAD_S = 0.05
"""A lane's backlog is the work of this time: long enough for any round trip, short for a person."""
AHEAD_JOBS_MIN = 64
"""The first backlog for short jobs; it doubles with every look."""
AHEAD_JOBS_MAX = 5_000
"""Waiting payloads take memory, and are handed back one by one if something goes wrong."""

STILL_S = 0.025
STUCK_LOOKS = 10
"""Jobs that were fetched ahead and have not moved for this many looks, one every `STILL_S`, go back to the queue.

It counts looks instead of time: if the machine suspends this process for a while, its jobs are not to blame.
"""


def ahead(slots: int, pace_s: float | None, prefetch: int | None) -> int:
    """How many jobs may wait in a lane besides those that run. An explicit `prefetch` is used as given."""
    if prefetch is not None:
        return prefetch
    if pace_s is None:
        return 0
    return min(AHEAD_JOBS_MAX, int(slots * AHEAD_S / max(pace_s, 1e-6)))


class LaneFlow:
    """Measures how many jobs a lane really begins. Its backlog may be twice that: even short jobs wait a long time
    where long jobs of another handler hold the slots.
    """

    __slots__ = ("_at", "_begun", "_clock", "_per_s")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._begun = 0
        self._per_s = 0.0

    def ahead(self, begun: int) -> int:
        """`begun` is the total since the start."""
        now = self._clock()
        if now - self._at >= AHEAD_S:
            self._per_s = (begun - self._begun) / (now - self._at)
            self._at, self._begun = now, begun
        return max(AHEAD_JOBS_MIN, int(2 * self._per_s * AHEAD_S))


def room_for(slots: int, in_hand: int, extra: int) -> int:
    """How many more jobs fit when `in_hand` are there and `extra` may wait.

    While all slots have work, a good part of the backlog is fetched at once instead of job by job.
    """
    room = slots + extra - in_hand
    return 0 if in_hand >= slots and room * 4 < extra else max(0, room)
