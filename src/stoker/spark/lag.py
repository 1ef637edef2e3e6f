"""How far a lake is behind its queue: events and seconds, shard by shard.

Spark's progress has only positions (`latestOffset`, from the source), because a Python source cannot report numbers of
its own. So the command that runs a stream measures the lag itself: the server counts the events after the position of
the last batch. This module knows the client, but not Spark.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stoker.model.wording import many
from stoker.spark.backlog import PAGE_BYTES, Limit, count
from stoker.spark.logs import connected, reaches_for
from stoker.spark.options import Offsets, ReadOptions

COUNTED_BYTES = 16 * PAGE_BYTES
"""So much of each log is counted; what lies beyond is estimated from it."""
FILE = "_lag.json"
"""The file of a lake with the lag that its stream has measured last."""


@dataclass(frozen=True)
class ShardLag:
    """How far the lake is behind in one shard."""

    shard: int
    position: int
    """The last record that the lake has."""
    last: int
    """The last record of the log."""
    events: int
    """Events after the position that the lake will have."""
    seconds: float
    """How long ago the oldest of them happened."""
    is_exact: bool
    """False if the number of events is estimated."""


@dataclass(frozen=True)
class Lag:
    """How far a lake is behind, as of a moment."""

    at: int
    """Milliseconds since 1970."""
    shards: tuple[ShardLag, ...]

    @property
    def events(self) -> int:
        return sum(each.events for each in self.shards)

    @property
    def seconds(self) -> float:
        return max((each.seconds for each in self.shards), default=0.0)

    @property
    def is_exact(self) -> bool:
        return all(each.is_exact for each in self.shards)

    def as_json(self) -> dict[str, Any]:
        told = {"at": self.at, "events": self.events, "seconds": self.seconds, "is_exact": self.is_exact}
        return told | {"shards": [asdict(each) for each in self.shards]}


def measure(options: ReadOptions, positions: Offsets, now: Callable[[], float] = time.time) -> Lag:
    """Ask the queue what lies after these positions, for a reader with these options."""
    found = []
    with connected(options) as client:
        for shard, reach in sorted(reaches_for(client, options).items()):
            after = min(max(positions.get(shard, 0), reach.lowest - 1), reach.last)
            counted = count(client, options, shard, after, reach.last, Limit(0, COUNTED_BYTES))
            seen, left = counted.reached - after, reach.last - counted.reached
            events = counted.events + (round(counted.events * left / seen) if left else 0)
            seconds = max(0.0, now() - counted.since / 1000) if counted.since else 0.0
            found.append(ShardLag(shard, after, reach.last, events, round(seconds, 3), not left))
    return Lag(round(now() * 1000), tuple(found))


def read_lag(lake: str) -> dict[str, Any] | None:
    """What the stream of a lake has measured last; None if there is nothing."""
    from stoker.spark.lake.files import Files

    files = Files(lake)
    if not files.exists(FILE):
        return None
    found: dict[str, Any] = files.read_json(FILE)
    return found


def lines(told: Mapping[str, Any]) -> Iterable[str]:
    """The lag as `as_json` has it, for people."""
    about = "" if told["is_exact"] else "some "
    age_s = max(0.0, time.time() - told["at"] / 1000)
    yield f"behind: {about}{many(told['events'], 'event')}, {told['seconds']:.1f} s (measured {age_s:.0f} s ago)"
    for each in told["shards"]:
        if each["events"]:
            yield f"  shard {each['shard']}: {many(each['events'], 'event')}, {each['seconds']:.1f} s"


def positions_of(progress: Any) -> Offsets:
    """Where the last batch of a query ended, from Spark's progress; empty before the first one."""
    if progress is None:
        return {}
    ends = json.loads(progress["sources"][0]["endOffset"] or "null")
    return {int(shard): position for shard, position in (ends or {}).items()}
