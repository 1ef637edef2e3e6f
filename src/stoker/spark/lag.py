"""How far a lake is behind its queue: events and seconds, shard by shard.

Spark's progress has only positions (`latestOffset`, from the source), because a Python source cannot report numbers of
its own. So the command that runs a stream measures the lag itself: the server counts the events after the position of
the last batch. This module knows the client, but not Spark.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stoker.model.lag import AGAIN_MS, FILE, Lag, ShardLag
from stoker.model.wording import away, lasting, many
from stoker.spark.backlog import PAGE_BYTES, Limit, count
from stoker.spark.lake.files import Files
from stoker.spark.logs import connected, reaches_for, readable_start
from stoker.spark.options import Offsets, ReadOptions

COUNTED_BYTES = 16 * PAGE_BYTES
"""So much of each log is counted; what lies beyond is estimated from it."""


def measure(options: ReadOptions, positions: Offsets, now: Callable[[], float] = time.time) -> Lag:
    """Ask the queue what lies after these positions, for a reader with these options.

    Events that the queue has dropped are an error, as they are for the reader, unless `failOnDataLoss` is false.
    """
    found = []
    with connected(options) as client:
        known = reaches_for(client, options)
        for shard, after in sorted(readable_start(options, positions, known, tell=False).items()):
            reach = known[shard]
            counted = count(client, options, shard, after, reach.last, Limit(0, COUNTED_BYTES))
            seen, left = counted.reached - after, reach.last - counted.reached
            events = counted.events + (round(counted.events * left / seen) if left else 0)
            seconds = max(0.0, now() - counted.since / 1000) if counted.since else 0.0
            found.append(ShardLag(shard, after, reach.last, events, round(seconds, 3), not left))
    return Lag(round(now() * 1000), tuple(found))


def read_lag(lake: str) -> dict[str, Any] | None:
    """What the stream of a lake has measured last; None if there is nothing."""
    files = Files(lake)
    if not files.exists(FILE):
        return None
    found: dict[str, Any] = files.read_json(FILE)
    return found


def lines(told: Mapping[str, Any] | None, now: Callable[[], float] = time.time) -> Iterable[str]:
    """The lag as `as_json` has it, for people."""
    if told is None:
        yield "behind: not known: --url asks the queue, and `stoker pipeline stream` measures it while it runs"
        return
    about, now_ms = "" if told["is_exact"] else "some ", round(now() * 1000)
    hint = "; no stream has measured it since: --url asks the queue" if now_ms - told["at"] > 2 * AGAIN_MS else ""
    age = f"measured {away(min(told['at'], now_ms), now_ms)}{hint}"
    yield f"behind: {about}{many(told['events'], 'event')}, {lasting(told['seconds'] * 1000)} ({age})"
    for each in told["shards"]:
        if each["events"]:
            yield f"  shard {each['shard']}: {many(each['events'], 'event')}, {lasting(each['seconds'] * 1000)}"


def positions_of(progress: Any) -> Offsets:
    """Where the last batch of a query ended, from Spark's progress; empty before the first one."""
    if progress is None:
        return {}
    ends = json.loads(progress["sources"][0]["endOffset"] or "null")
    return {int(shard): position for shard, position in (ends or {}).items()}
