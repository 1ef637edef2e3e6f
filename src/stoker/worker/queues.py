"""Decides which queues to pull from next, and how many jobs: by weight, limits and room in the lanes.

Queues take turns by jobs received per weight, so none starves. A queue that was named first and had nothing does not
save up its claim. Pure arithmetic; nothing here talks to a queue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stoker.worker.errors import BadHandler
from stoker.worker.lane import Lane
from stoker.worker.pace import HandlerRateLimit, JobDuration

PULL_JOBS_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How a worker treats one of its queues."""

    weight: float = 1.0
    """A queue with twice the weight gets twice the jobs, while both have jobs waiting."""
    concurrency: int | None = None
    """At most this many of its jobs run at the same time in this worker; None means as many as fit."""

    def __post_init__(self) -> None:
        if self.weight <= 0 or (self.concurrency is not None and self.concurrency < 1):
            raise BadHandler(f"{self}: expected a weight above 0 and a concurrency of at least 1")


@dataclass(slots=True, eq=False)
class QueueLine:
    """A queue as the worker sees it."""

    name: str
    settings: QueueSettings
    lanes: tuple[Lane, ...]
    """The lanes of its handlers."""
    buckets: tuple[HandlerRateLimit, ...] = ()
    pace: JobDuration = field(default_factory=JobDuration)
    served: float = 0.0
    """Jobs received so far, divided by weight."""

    def room(self, in_hand: int) -> int:
        """How many of its jobs may be taken now, whichever of its handlers they are for."""
        room = min(lane.room(self.pace.seconds) for lane in self.lanes)
        if self.settings.concurrency is not None:
            room = min(room, self.settings.concurrency - in_hand)
        for bucket in self.buckets:
            room = min(room, bucket.tokens)
        return max(0, room)


@dataclass(frozen=True, slots=True)
class NextPull:
    """The next pull."""

    queues: tuple[str, ...]
    count: int
    waits: bool
    """Whether it may wait for jobs: not while other queues that it does not name have room, too."""


class Roster:
    """All queues of a worker."""

    def __init__(self, lines: Iterable[QueueLine]) -> None:
        self.lines = {line.name: line for line in lines}

    def plan(self, in_hand: dict[str, int], room: int, *, patient: bool) -> NextPull | None:
        """The queues with room, the one that is owed most first; None if there is none.

        A pull has one number for all its queues. So queues with far less room than the first are left out. With
        `patient`, it names all queues that have room, and asks for what each of them could take.
        """
        rooms = {line.name: min(room, line.room(in_hand.get(line.name, 0))) for line in self.lines.values()}
        able = sorted((line for line in self.lines.values() if rooms[line.name]), key=lambda line: line.served)
        if not able:
            return None
        least, first = min(rooms[line.name] for line in able), rooms[able[0].name]
        count = least if patient or least * 4 >= first else first
        named = tuple(line.name for line in able if rooms[line.name] >= count)
        return NextPull(named, min(count, PULL_JOBS_MAX), len(named) == len(able))

    def delivered(self, named: Sequence[str], jobs: dict[str, int]) -> None:
        """Note what a pull over these queues brought. A queue that had nothing loses its saved-up claim and goes
        behind.
        """
        for name, count in jobs.items():
            line = self.lines[name]
            line.served += count / line.settings.weight
        if not jobs:
            return
        floor = min(self.lines[name].served for name in jobs)
        for name in named:
            if name not in jobs:
                line = self.lines[name]
                line.served = max(line.served, floor + 1 / line.settings.weight)
            else:
                break  # the queues behind this one may not have been asked

    def next_token_s(self) -> float | None:
        """How long until a rate limit releases a queue that nothing else holds back."""
        waits = [max(bucket.next_s for bucket in line.buckets) for line in self.lines.values() if line.buckets]
        later = [wait for wait in waits if wait > 0]
        return min(later) if later else None
