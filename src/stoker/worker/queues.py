"""Which queues to pull from next, and how many jobs: weights, limits, room in the lanes.

Queues take turns by what they have got so far for their weight, so that none starves: one that is named first in a pull
and has nothing loses its claim to the past. All of it is arithmetic; nothing here talks to a queue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stoker.worker.errors import BadHandler
from stoker.worker.lane import Lane
from stoker.worker.pace import Bucket, Pace

PULL_JOBS_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """How a worker treats one of its queues."""

    weight: float = 1.0
    """Of two queues with jobs waiting, one with twice the weight gets twice the jobs."""
    concurrency: int | None = None
    """At most so many of its jobs at the same time in this worker; None = as many as fit."""

    def __post_init__(self) -> None:
        if self.weight <= 0 or (self.concurrency is not None and self.concurrency < 1):
            raise BadHandler(f"{self}: expected a weight above 0 and a concurrency of at least 1")


@dataclass(slots=True, eq=False)
class Line:
    """A queue, from the worker's side."""

    name: str
    settings: QueueSettings
    lanes: tuple[Lane, ...]
    """Those that its handlers run in."""
    buckets: tuple[Bucket, ...] = ()
    pace: Pace = field(default_factory=Pace)
    served: float = 0.0
    """Jobs so far, by weight."""

    def room(self, in_hand: int) -> int:
        """How many jobs of it may be taken now, whichever of its handlers they are for."""
        room = min(lane.room(self.pace.seconds) for lane in self.lanes)
        if self.settings.concurrency is not None:
            room = min(room, self.settings.concurrency - in_hand)
        for bucket in self.buckets:
            room = min(room, bucket.tokens)
        return max(0, room)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next pull."""

    queues: tuple[str, ...]
    count: int
    waits: bool
    """Whether it may wait for jobs: not while others that are not named here have room, too."""


class Roster:
    """All queues of a worker."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines = {line.name: line for line in lines}

    def plan(self, in_hand: dict[str, int], room: int, *, patient: bool) -> Plan | None:
        """The queues with room, the one that is owed most first; None if there is none.

        A pull has one number for all its queues. So those with far less room than the first are left out, unless it is
        to be `patient`: then it names all that have any, and asks for what each of them could take.
        """
        rooms = {line.name: min(room, line.room(in_hand.get(line.name, 0))) for line in self.lines.values()}
        able = sorted((line for line in self.lines.values() if rooms[line.name]), key=lambda line: line.served)
        if not able:
            return None
        least, first = min(rooms[line.name] for line in able), rooms[able[0].name]
        count = least if patient or least * 4 >= first else first
        named = tuple(line.name for line in able if rooms[line.name] >= count)
        return Plan(named, min(count, PULL_JOBS_MAX), len(named) == len(able))

    def delivered(self, named: Sequence[str], jobs: dict[str, int]) -> None:
        """What a pull over these queues brought: who had nothing does not save up for later, and comes behind."""
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
                break  # those behind were not asked, perhaps

    def next_token_s(self) -> float | None:
        """How long until a rate limit lets something through that nothing else holds back."""
        waits = [max(bucket.next_s for bucket in line.buckets) for line in self.lines.values() if line.buckets]
        later = [wait for wait in waits if wait > 0]
        return min(later) if later else None
