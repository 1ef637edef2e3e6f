"""Everything that a tenant can see, to be compared with the same a moment later.

A world that has its queue in another process may look at it there: that nothing has changed is no claim about the way
to it, and a picture takes a dozen questions. What comes of each of them over every way is the matter of other tests.
"""

from collections.abc import Generator
from typing import Any

from stoker.brokers.contract import Broker
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.events import Event
from stoker.model.schedules import SchedulePage, ScheduleView

Picture = dict[str, object]
Looking = Generator[c.Command[Any], Any, Picture]


def looking() -> Looking:
    """The questions one after another; what was answered is sent back in."""
    names = sorted((yield c.ListQueues()).names)
    queues = {}
    for name in names:
        queues[name] = (yield c.GetQueue(name)), (yield c.GetStats(name)), (yield c.ListDead(name, limit=100))
    return {
        "stats": (yield c.GetStats()),
        "queues": queues,
        "jobs": (yield from _jobs()),
        "kv": (yield from _entries()),
        "schedules": (yield from _schedules()),
        "events": (yield from _events()),
    }


def _jobs() -> Generator[c.Command[Any], Any, list[r.JobView]]:
    found: list[r.JobView] = []
    after = None
    while True:
        page: r.Page = yield c.Browse(after=after, limit=100, ascending=True)
        found.extend(page.jobs)
        after = page.next_after
        if after is None:
            return found


def _entries() -> Generator[c.Command[Any], Any, list[tuple[str, r.KvValue]]]:
    keys: r.KvKeyPage = yield c.KvKeys()
    found = []
    for key in keys.keys:
        found.append((key, (yield c.KvGet(key))))  # noqa: PERF401  a comprehension cannot ask
    return found


def _schedules() -> Generator[c.Command[Any], Any, list[ScheduleView]]:
    page: SchedulePage = yield c.ListSchedules()
    found = []
    for brief in page.schedules:
        found.append((yield c.GetSchedule(brief.queue, brief.name)))  # noqa: PERF401  a comprehension cannot ask
    return found


def _events() -> Generator[c.Command[Any], Any, list[Event]]:
    found: list[Event] = []
    after = 0
    while True:
        page: r.Events = yield c.ReadEvents(0, after)
        if not page.events:
            return found
        found.extend(page.events)
        after = page.next_after


def taken(broker: Broker, tenant: str) -> Picture:
    """A picture through a broker."""
    asking = looking()
    question = next(asking)
    try:
        while True:
            question = asking.send(broker.execute(tenant, question))
    except StopIteration as end:
        picture: Picture = end.value
        return picture


async def taken_async(broker: Any, tenant: str) -> Picture:
    """The same on an event loop, through whatever carries out commands there."""
    asking = looking()
    question = next(asking)
    try:
        while True:
            question = asking.send(await broker.execute_async(tenant, question))
    except StopIteration as end:
        picture: Picture = end.value
        return picture
