"""Reads a tenant's events on from given positions: for subscriptions over TCP, streams over HTTP, and webhooks.

Each of them has an `EventReader` and encodes what it gives. A reader has at most one question a shard under way, and
asks a shard again only when its last page has been taken. So a slow consumer falls behind in the log and not in memory.
What the log no longer keeps is reported as `MissedEvents`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stoker.brokers.contract import End
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.errors import InvalidRequest, StokerError, Unauthenticated
from stoker.model.events import Event
from stoker.model.ids import shard_for, shard_of
from stoker.records.events import size_of
from stoker.server.auth.identity import Identity

if TYPE_CHECKING:
    from stoker.brokers.contract import Waiter
    from stoker.server.dispatcher import Dispatcher, Done

PAGE: Final = 256
WAIT_MS: Final = 60_000
"""How long a shard is asked to wait for an event. The rights of the consumer are checked again after it."""
HELD_BYTES_MAX: Final = 1 << 20
"""A page that would make a reader hold more is dropped and read again later. One page is always held."""
TURN_EVENTS: Final = 500
"""A transport encodes about this many events before other tasks get the event loop."""

Position = tuple[int, int]
"""A sequence number, and the index of the last event that was taken of it."""
WHOLE: Final = 2**31
"""As the index of a position: every event of the record."""


def after(position: Position) -> int:
    """The sequence number to read on from: a record that was taken in part is read again."""
    sequence, index = position
    return sequence if index == WHOLE else sequence - 1


def checked(position: "int | Position") -> Position:
    """A position as clients write it: a sequence number alone means every event of it."""
    sequence, index = (position, WHOLE) if isinstance(position, int) else position
    if not (index == WHOLE or sequence) or not (0 <= sequence < 2**53 and 0 <= index <= WHOLE):
        raise InvalidRequest(f"invalid position {position!r}: expected a sequence number, or [sequence, index]")
    return sequence, index


def shown(position: Position) -> "int | Position":
    """The same the other way round."""
    return position[0] if position[1] == WHOLE else position


class Filter(msgspec.Struct, frozen=True):
    """Which events a consumer wants."""

    queue: str | None = None
    kinds: tuple[str, ...] = ()
    """Empty = all."""
    job: int | None = None

    def shards(self, tenant: str, count: int) -> Sequence[int]:
        """Those that may hold such events."""
        if self.job is not None:
            return [shard_of(self.job)] if shard_of(self.job) < count else []
        return range(count) if self.queue is None else [shard_for(tenant, self.queue, count)]

    def wants(self, event: Event) -> bool:
        return (
            self.queue in (None, event.queue)
            and (not self.kinds or event.kind in self.kinds)
            and self.job in (None, event.job)
        )


class MissedEvents(msgspec.Struct, frozen=True):
    """Stands for events of a shard that the log no longer keeps."""

    shard: int
    after: int
    """The last sequence number that was read."""
    lowest: int
    """The first one that is still kept; the events go on from it."""


class EventPage(msgspec.Struct):
    """What is left of a page of one shard."""

    shard: int
    events: Iterator[Event]
    size: int
    next_after: int
    is_full: bool
    """Whether there may be more already."""


class SharedReads:
    """The questions that are under way. Readers that ask for the same page of a tenant share one."""

    def __init__(self, dispatcher: "Dispatcher") -> None:
        self._dispatcher = dispatcher
        self._reads: dict[tuple[str, c.ReadEvents], SharedRead] = {}

    def ask(self, tenant: str, command: c.ReadEvents, done: "Done") -> None:
        read = self._reads.get((tenant, command))
        if read is None:
            read = self._reads[tenant, command] = SharedRead()
            read.held = self._dispatcher.submit(tenant, command, partial(self._answered, tenant, command, read))
        read.dones.append(done)

    def leave(self, tenant: str, command: c.ReadEvents, done: "Done") -> None:
        """This reader no longer waits for the answer. It may be about to get it."""
        read = self._reads.get((tenant, command))
        if read is None or done not in read.dones:
            return
        read.dones.remove(done)
        if not read.dones and read.held is not None:
            del self._reads[tenant, command]
            read.held.give_up()

    def _answered(self, tenant: str, command: c.ReadEvents, read: "SharedRead", page: Any) -> None:
        if self._reads.get((tenant, command)) is read:  # if not, all have left while the answer was on its way
            del self._reads[tenant, command]
        for done in read.dones:
            done(page)


class SharedRead:
    """The client's wait for one answer, and the wait at the dispatcher."""

    def __init__(self) -> None:
        self.dones: list[Done] = []
        self.held: Waiter | None = None


class EventReader:
    """One consumer's way through the logs. `wake` is called when `next` may have something to give.

    It gives nothing before each of its shards has a place: from `start`, or from what `ends` says.
    """

    def __init__(
        self,
        dispatcher: "Dispatcher",
        tenant: str,
        wanted: Filter,
        wake: Callable[[], None],
        *,
        start: Mapping[int, Position],
        ends: Mapping[int, End],
        from_beginning: bool = False,
        identity: Identity | None = None,
    ) -> None:
        self._dispatcher, self._tenant, self._wanted, self._wake = dispatcher, tenant, wanted, wake
        self._from_beginning = from_beginning
        self._identity = identity
        """Whose rights end the reading. None for what the server reads for itself."""
        self.shards = wanted.shards(tenant, dispatcher.logs.shards)
        self.positions = {shard: position for shard, position in start.items() if shard < dispatcher.logs.shards}
        """How far the consumer has come."""
        self._last: dict[int, int] = {}
        """The last sequence number of each log, as far as it is known."""
        self._idle: list[int] = []
        """Shards to ask for what is still to happen, once the consumer begins."""
        self._behind: deque[int] = deque()
        """Shards that have more already, in the order in which they are read."""
        self._due: int | None = None
        """The one of them that is being read."""
        self._asked: dict[int, tuple[c.ReadEvents, Done]] = {}
        self._pages: deque[EventPage] = deque()
        self._held_bytes = 0
        self._missed: deque[MissedEvents] = deque()
        self._failed: dict[int, StokerError] = {}
        self.place(ends)

    def place(self, ends: Mapping[int, End]) -> None:
        """Find the place to begin in each of these logs. It is kept for other shards than the wanted ones, too."""
        for shard in sorted(ends.keys() - self._last.keys()):
            end = ends[shard]
            self._last[shard] = end.last
            first = end.lowest - 1 if self._from_beginning else end.last
            position = self.positions.setdefault(shard, (first, WHOLE))
            if shard not in self.shards:
                continue
            if position[0] > end.last:  # it is of another log, or of a part of this one that a crash has taken
                self._miss(shard, end.lowest)
            else:
                self._check_gap(shard, end.lowest)
            if after(self.positions[shard]) < end.last:
                self._behind.append(shard)
            else:
                self._idle.append(shard)

    @property
    def is_placed(self) -> bool:
        return all(shard in self._last for shard in self.shards)

    def last(self, shard: int) -> int:
        """The last sequence number that the log has given, as far as this process knows."""
        end = self._dispatcher.logs.known_end(self._tenant, shard) if self._dispatcher.has(shard) else None
        return self._last[shard] if end is None else end.last

    def next(self) -> Event | MissedEvents | None:
        """What comes next, if it is there; if not, `wake` is called when it is. Raises `StokerError` where reading
        failed; asking again tries again.
        """
        self._check_identity()
        if self._missed:
            return self._missed.popleft()
        while self._pages:
            page = self._pages[0]
            event = next(page.events, None)
            if event is not None:
                self.positions[page.shard] = event.sequence, event.index
                return event
            self._pages.popleft()
            self._held_bytes -= page.size
            self._pass(page.shard, page.next_after, page.is_full)
        if self._failed:
            failed, self._failed = self._failed, {}
            self._behind.extend(failed)
            raise next(iter(failed.values()))
        idle, self._idle = self._idle, []
        for shard in idle:
            self._ask(shard, waits=True)
        self._catch_up()
        return None

    def let_go(self) -> None:
        """Hold nothing in memory: the consumer has no room. `next` reads it again."""
        self._behind.extendleft(page.shard for page in reversed(self._pages))
        self._pages.clear()
        self._held_bytes = 0

    def close(self) -> None:
        self._wake = lambda: None
        asked, self._asked = self._asked, {}
        for command, done in asked.values():
            self._dispatcher.reads.leave(self._tenant, command, done)
        self.let_go()

    # --- within --------------------------------------------------------------------------------------

    def _check_identity(self) -> None:
        if self._identity is not None and not self._identity.is_valid(time.time()):
            raise Unauthenticated("authentication expired: the events end here")

    def _check_gap(self, shard: int, lowest: int) -> None:
        if lowest > after(self.positions[shard]) + 1:
            self._miss(shard, lowest)

    def _miss(self, shard: int, lowest: int) -> None:
        self._missed.append(MissedEvents(shard, after(self.positions[shard]), lowest))
        self.positions[shard] = lowest - 1, WHOLE

    def _pass(self, shard: int, next_after: int, is_full: bool) -> None:
        """A page has been taken. If there may be more, the shard is read on after the others that are behind."""
        self.positions[shard] = next_after, WHOLE
        if is_full:
            self._behind.append(shard)
        else:
            self._ask(shard, waits=True)

    def _catch_up(self) -> None:
        """Read one shard that is behind: one after the other, so that few pages are dropped and none starves."""
        if self._due is None and self._behind and not self._pages:
            self._due = self._behind.popleft()
            self._ask(self._due, waits=False)

    def _ask(self, shard: int, *, waits: bool) -> None:
        """Ask for the next page. A shard waits for the wanted events alone; what is there already is read unfiltered,
        so that each page ends soon, however rare the wanted ones are.
        """
        limits, wanted, at = self._dispatcher.broker.limits, self._wanted, after(self.positions[shard])
        command = c.ReadEvents(shard, at, min(PAGE, limits.events_max))
        if waits:
            wait_ms = min(WAIT_MS, limits.wait_ms_max)
            command = c.ReadEvents(shard, at, command.limit, wanted.queue, wanted.kinds or None, wait_ms)
        done = partial(self._got, shard, command)
        self._asked[shard] = command, done
        self._dispatcher.reads.ask(self._tenant, command, done)

    def _got(self, shard: int, command: c.ReadEvents, reply: Any) -> None:
        if self._asked.pop(shard, None) is None:
            return  # closed while the answer was on its way
        is_due = shard == self._due
        if is_due:
            self._due = None
        if isinstance(reply, StokerError):
            self._failed[shard] = reply
        else:
            self._read(shard, command, reply, is_due)
        self._wake()

    def _read(self, shard: int, command: c.ReadEvents, page: r.Events, is_due: bool) -> None:
        self._check_gap(shard, page.lowest)
        self._last[shard] = max(self._last[shard], page.next_after)
        at, size = self.positions[shard], sum(map(size_of, page.events))
        is_full = len(page.events) >= command.limit or size > HELD_BYTES_MAX
        wanted = [event for event in page.events if (event.sequence, event.index) > at and self._wanted.wants(event)]
        if not wanted:
            self._pass(shard, max(page.next_after, after(at)), is_full)
            self._catch_up()
        elif self._pages and not is_due and self._held_bytes + size > HELD_BYTES_MAX:
            self._behind.append(shard)
        else:
            self._pages.append(EventPage(shard, iter(wanted), size, page.next_after, is_full))
            self._held_bytes += size


async def event_at(dispatcher: "Dispatcher", tenant: str, shard: int, position: Position) -> Event | None:
    """The event at this position, if the log still has it."""
    page = await dispatcher.call(tenant, c.ReadEvents(shard, position[0] - 1, 1))
    return next((event for event in page.events if (event.sequence, event.index) == position), None)
