"""Commands that read the log: events, records and stories, and the readers that wait for the next event."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from stoker.engine import checks, queries
from stoker.engine.parking import Parked
from stoker.engine.shard import Shard
from stoker.journal.contract import Journal
from stoker.journal.story import story
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.limits import INT_MAX, Limits
from stoker.records.events import events_of, size_of
from stoker.records.stored import NotAtHand
from stoker.runtime.loading import READ_MS_MAX, Load
from stoker.runtime.record_reader import read_records
from stoker.runtime.shards import Shards

Place = tuple[int, str]
"""A shard, and a tenant in it."""
T = TypeVar("T")


class Readers:
    """The readers of the logs of a process."""

    def __init__(
        self,
        shards: Shards,
        journal: Journal,
        answer: Callable[[Parked, Any], None],
        advance: Callable[[int], None],
        load: Callable[[Load], None],
    ) -> None:
        """`advance` lets happen what is due: a reader sees it, too. `load` has the log read on another thread."""
        self._shards = shards
        self._journal = journal
        self._answer = answer
        self._advance = advance
        self._load = load
        self.waiting: dict[Place, dict[Parked, r.Events]] = {}
        """Commands that wait for events of a place, with the empty page that they have got so far."""
        self.execute: dict[type[Any], Callable[[str, Any, int], Any]] = {
            c.ReadEvents: self._read_events,
            c.ReadRecords: self._read_records,
            c.GetStory: self._story,
        }
        """Carries out each of the commands."""

    @property
    def next_at(self) -> int | None:
        """When the first reader has waited long enough."""
        return min((parked.expires_at for readers in self.waiting.values() for parked in readers), default=None)

    def places(self, changed: Iterable[Shard]) -> dict[Place, int]:
        """Where the records of a turn have brought something new, and from which sequence number on."""
        found: dict[Place, int] = {}
        for shard in changed:
            first = self._journal.last(shard.number) - len(shard.records) + 1
            found |= {(shard.number, record.tenant): first for record in shard.records}  # type: ignore[attr-defined]
        return found

    def wake(self, places: Mapping[Place, int]) -> None:
        """Something happened: look on from where each reader of these places has looked.

        What the log has dropped before that was looked at when it happened, and is not missed.
        """
        for place, first in sorted(places.items()):
            for parked, seen in list(self.waiting.get(place, {}).items()):
                assert type(parked.command) is c.ReadEvents
                if parked.done:
                    self._leave(place, parked)
                    continue
                after = max(seen.next_after, first - 1)  # nothing of its tenant lies in between
                page = or_error(self._page, parked.tenant, parked.command, after)
                if isinstance(page, r.Events) and page.lowest <= first:
                    page = r.Events(page.events, page.next_after, seen.lowest)
                if not isinstance(page, r.Events) or page.events:
                    self._leave(place, parked)
                    self._answer_reader(parked, page)
                else:
                    self.waiting[place][parked] = page

    def expire(self, now: int) -> None:
        """Answer the readers that have waited long enough."""
        for place, readers in list(self.waiting.items()):
            for parked, page in [(one, page) for one, page in readers.items() if one.done or one.expires_at <= now]:
                self._leave(place, parked)
                if not parked.done:
                    self._answer_reader(parked, page)

    def _leave(self, place: Place, parked: Parked) -> None:
        del self.waiting[place][parked]
        if not self.waiting[place]:
            del self.waiting[place]

    def _answer_reader(self, parked: Parked, page: Any) -> None:
        parked.done = True
        self._answer(parked, page)

    # --- the commands ----------------------------------------------------------------------------

    @property
    def _limits(self) -> Limits:
        return self._shards[0].limits

    def _read_events(self, tenant: str, command: c.ReadEvents, now: int) -> "r.Events | Parked":
        self._check_shard(command.shard)
        if command.queue is not None:
            checks.name(command.queue)
        checks.count(command.limit, "limit", self._limits.events_max)
        checks.number(command.after, "after", 0, 2**53 - 1)
        checks.count(command.wait_ms, "wait_ms", self._limits.wait_ms_max, 0)
        self._advance(now)
        parked = Parked(tenant, command, now + command.wait_ms)
        return self._look(parked, command.after, now)

    def _look(self, parked: Parked, after: int, now: int) -> "r.Events | Parked":
        """A page of events, or the command if it waits: for the next event, or for the log to be read."""
        tenant, command = parked.tenant, parked.command
        assert type(command) is c.ReadEvents
        try:
            page = self._page(tenant, command, after)
        except NotAtHand:
            return self._read_later(parked, lambda: self._page(tenant, command, after), self._look_on)
        if page.events or parked.expires_at <= now:
            return page
        self.waiting.setdefault((command.shard, tenant), {})[parked] = page
        parked.done = False
        return parked

    def _look_on(self, parked: Parked, page: r.Events, now: int) -> "r.Events | Parked":
        """Go on behind a page that was read, and has nothing: more has happened meanwhile."""
        return page if page.events or parked.expires_at <= now else self._look(parked, page.next_after, now)

    def _read_later(
        self,
        parked: Parked,
        read: Callable[[], Any],
        then: "Callable[[Parked, Any, int], Any]" = lambda parked, found, now: found,
    ) -> Parked:
        """Have a part of the log read. `then` makes the reply of it, or the command waits on."""

        def finish(found: Any, now: int) -> None:
            reply = found if isinstance(found, Exception) else or_error(then, parked, found, now)
            if reply is not parked:
                self._answer_reader(parked, reply)

        self._load(Load(parked, read, finish))
        return parked

    def _read_records(self, tenant: str, command: c.ReadRecords, now: int) -> "r.Records | Parked":
        self._check_shard(command.shard)
        checks.number(command.after, "after", 0, 2**53 - 1)
        if command.until is not None:
            checks.number(command.until, "until", 0, 2**53 - 1)
        checks.count(command.bytes_max, "bytes_max", self._limits.reply_bytes_max)
        checks.records(command)
        self._advance(now)
        return self._now_or_later(
            tenant, command, now, lambda: read_records(self._journal, self._shards.total, tenant, command)
        )

    def _now_or_later(self, tenant: str, command: c.Command[Any], now: int, read: Callable[[], T]) -> "T | Parked":
        """What is read from the log alone: at once if it is in memory."""
        try:
            return read()
        except NotAtHand:
            return self._read_later(Parked(tenant, command, now + READ_MS_MAX), read)

    def _story(self, tenant: str, command: c.GetStory, now: int) -> "r.Story | Parked":
        checks.number(command.id, "id", 0, INT_MAX)
        self._advance(now)
        shard = self._shards.by_id(command.id)
        part = shard.find(command.id)
        ended = queries.view(shard, part, now).finished_at if part is not None else 0
        lowest = self._journal.lowest(shard.number)
        return self._now_or_later(
            tenant,
            command,
            now,
            lambda: story(self._journal.read, shard.number, command.id, tenant, lowest=lowest, finished_at=ended),
        )

    def _check_shard(self, number: int) -> None:
        if type(number) is not int or not 0 <= number < self._shards.total:
            raise errors.InvalidRequest(f"no shard {checks.short(number)}: they are 0 to {self._shards.total - 1}")
        self._shards.at(number)

    def _page(self, tenant: str, command: c.ReadEvents, after: int) -> r.Events:
        """The tenant's events after a position: whole records, until a limit is reached."""
        number = command.shard
        found: list[Any] = []
        room = self._limits.reply_bytes_max
        while len(found) < command.limit and room > 0:
            records = self._journal.read(number, after, command.limit)
            if not records:
                break
            for sequence, record in records:
                after = sequence
                if record.tenant == tenant and command.queue in (None, getattr(record, "queue", None)):  # type: ignore[attr-defined]
                    events = events_of(number, sequence, record, command.kinds)
                    wanted = [event for event in events if command.kinds is None or event.kind in command.kinds]
                    found += wanted
                    room -= sum(map(size_of, wanted))
                if len(found) >= command.limit or room <= 0:
                    break
        return r.Events(found, after, self._journal.lowest(number))


def or_error(make: Callable[..., T], *given: Any) -> "T | errors.StokerError":
    """A reply for a command that waits, or the error that it is answered with instead."""
    try:
        return make(*given)
    except errors.StokerError as error:
        return error
