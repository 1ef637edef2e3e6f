"""Where jobs run: the contract between a worker, which pulls and settles, and its lanes, which call handlers.

A worker cuts what a pull brought into chunks, one handler each, and submits a chunk only where there is room. A lane
answers with settlements, in any order and from any thread. Nothing here knows connections or signals.
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
"""Why a running job should stop: somebody cancelled it, its lease is lost, or the engine has timed it out."""


class Chunk:
    """Jobs of one delivery with one handler. It is the unit of submitting, of leases and of settling.

    `flags` has the jobs that should stop; lanes and contexts look into it, and only the worker's loop and its lease
    keeper write. Everything else is fixed when it is made.
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
        """By `time.monotonic`."""
        self.lane: Lane | None = None
        self.flags: dict[int, Flag] = {}
        self.timer: asyncio.TimerHandle | None = None
        """When the queue will have timed it out."""
        # For the worker's books:
        self.left = len(ids)
        """How many have not been settled."""
        self.over: set[int] = set()
        """Those whose handler is done with them, as long as others are not."""
        self.lease_ms = options.lease_ms
        self.renew_at = received_at + self.lease_ms / 3_000

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def name(self) -> str:
        """Of the handler; the job's own where no handler is for it."""
        return self.handler.name or self.options.name or ""

    def __repr__(self) -> str:
        return f"Chunk({self.name}, {len(self.ids)} jobs of {self.queue} from {self.ids[0]} on)"


# --- settlements: what a lane tells about jobs of a chunk ------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """They completed. `results` has one entry an id, or is None where no handler returned anything."""

    chunk: Chunk
    ids: Sequence[int]
    results: Sequence[bytes | None] | None = None
    seconds: Sequence[float] = ()
    """How long the handler took for each; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It failed, or was snoozed or cancelled by its handler: as the verdict says."""

    chunk: Chunk
    id: int
    failure: Failure
    verdict: Verdict
    seconds: float | None = None
    """How long the handler took, where that is known."""


@dataclass(frozen=True, slots=True)
class Released:
    """They were not begun, or were broken off because the worker stops: handed back, and the attempt with them."""

    chunk: Chunk
    ids: Sequence[int]
    delay_ms: int = 0
    note: str = ""
    """Why, where there is more to say than that."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Their lease is lost: there is nothing left to say to the queue."""

    chunk: Chunk
    ids: Sequence[int]


Settlement: TypeAlias = Done | Failed | Released | Dropped


class Host(Protocol):
    """What a lane and a context may ask of the worker. Everything may be called from any thread."""

    @property
    def stopping(self) -> bool:
        """Whether the worker drains: no new jobs will come."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def worker(self) -> str:
        """The worker's id."""
        ...

    def settle(self, settlement: Settlement) -> None:
        """Say how jobs ended. Each job of a submitted chunk has to be told about, whatever happened to it.

        What is said first counts: a thread that comes back after its job was given up may say so without harm.
        """
        ...

    def measured(self, queue: str, jobs: int, seconds: float) -> None:
        """So many jobs of a queue kept a slot for so long, together: short ones are fetched ahead."""
        ...

    def roomier(self) -> None:
        """A lane has room again without having settled anything: on the event loop, look again."""
        ...

    def report(self, chunk: Chunk, job: int, command: Command[object]) -> None:
        """Send something about a running job in the background, before it is settled (progress, log lines)."""
        ...

    def renew(self, chunk: Chunk) -> None:
        """Renew the lease soon, and learn about cancellations."""
        ...

    def execute(self, command: Command[R]) -> R:
        """Carry out a command and wait for it; not on the event loop."""
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
        """How many jobs are being worked on."""
        ...

    def room(self, pace_s: float | None) -> int:
        """How many more jobs it takes now: free slots, and a small backlog where jobs are short.

        `pace_s` is how long a job of the queue in question has been taking; None where nobody knows yet.
        """
        ...

    async def start(self, host: Host) -> None: ...

    def submit(self, chunk: Chunk) -> None:
        """Work on it; each of its jobs comes back in a settlement."""
        ...

    def interrupt(self, chunk: Chunk, job: int) -> None:
        """`chunk.flags` says why: stop the job if it can be stopped from outside. It still has to be settled.

        A job flagged `cancelled` is settled as failed (the queue makes it cancelled), one that is `lost` or timed out
        is dropped.
        """
        ...

    def hand_back(self) -> None:
        """Release everything that has not begun."""
        ...

    def break_off(self) -> None:
        """Release what is running, too, as far as it can be stopped; what cannot is released all the same."""
        ...

    async def close(self) -> None:
        """Let go of threads and processes. Called once, after everything has been settled or given up."""
        ...


# --- how much to fetch ahead ------------------------------------------------------------------------

AHEAD_S = 0.05
"""What a lane may have waiting is what it will do in this time: long enough for any round trip, short for a person."""
AHEAD_JOBS_MIN = 64
"""Where to begin, for jobs that are short: it doubles with every look."""
AHEAD_JOBS_MAX = 5_000
"""Payloads that wait are memory, and are handed back one by one if something goes wrong."""

STILL_S = 0.025
STUCK_LOOKS = 10
"""Jobs that were fetched ahead and stand still for so many looks, one every `STILL_S`, go back to the queue.

Looks and not time: when the machine stops this process for a while, its jobs are not to blame.
"""


def ahead(slots: int, pace_s: float | None, prefetch: int | None) -> int:
    """How many jobs may wait in a lane besides those that run. An explicit `prefetch` is taken as it is."""
    if prefetch is not None:
        return prefetch
    if pace_s is None:
        return 0
    return min(AHEAD_JOBS_MAX, int(slots * AHEAD_S / max(pace_s, 1e-6)))


class Flow:
    """How many jobs a lane really begins. What it may have waiting is twice what it did last: jobs that are short by
    themselves wait all the same where long ones of another handler have the slots."""

    __slots__ = ("_at", "_begun", "_clock", "_per_s")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._begun = 0
        self._per_s = 0.0

    def ahead(self, begun: int) -> int:
        """`begun` counts from the beginning."""
        now = self._clock()
        if now - self._at >= AHEAD_S:
            self._per_s = (begun - self._begun) / (now - self._at)
            self._at, self._begun = now, begun
        return max(AHEAD_JOBS_MIN, int(2 * self._per_s * AHEAD_S))


def room_for(slots: int, in_hand: int, extra: int) -> int:
    """How many more jobs fit, where so many are in hand and `extra` may wait.

    While all slots have work it pays to fetch a good part of what may wait at once, and not each one by itself.
    """
    room = slots + extra - in_hand
    return 0 if in_hand >= slots and room * 4 < extra else max(0, room)
