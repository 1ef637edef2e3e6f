"""Shards, journal and clock in motion.

A turn is: let time pass, decide, journal the records, and only then let replies out. The runtime has one owner at
a time and knows neither threads nor event loops; `brokers/local.py` gives it those.
"""

from collections.abc import Callable
from typing import Any

from stoker.engine import checks, looking
from stoker.engine.parking import Parked
from stoker.engine.shard import Shard
from stoker.journal.contract import Journal
from stoker.model import commands as c
from stoker.model import errors
from stoker.model import replies as r
from stoker.model.ids import SHARDS_MAX
from stoker.model.limits import DEFAULT_LIMITS, Limits
from stoker.model.options import Settings
from stoker.records.events import events_of
from stoker.runtime import routing, shapes

TENANTS_CHECKED_MAX = 10_000


class Runtime:
    """All shards of a process."""

    def __init__(
        self,
        journal: Journal,
        answer: Callable[[Parked, Any], None],
        shards: int = 1,
        settings: Settings | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if shards not in (1 << bits for bits in range(7)):
            raise errors.InvalidRequest(f"{shards} shards: expected a power of two from 1 to {SHARDS_MAX}")
        self.journal = journal
        self._append = journal.append
        self.limits = limits
        self.shards = [Shard(number, settings, limits) for number in range(shards)]
        self._only = self.shards[0] if shards == 1 else None
        self._tenants: set[str] = set()
        """Names that have been checked."""
        self._answer = answer
        self._readers: dict[tuple[int, str], dict[Parked, int]] = {}
        """Commands that wait for events of a shard and a tenant, with the position up to which there was nothing."""

    def execute(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """One turn with one command: its reply, or a `Parked` that will be answered later."""
        only = self._only
        known = type(tenant) is str and tenant in self._tenants
        if only is None or not known or type(command) not in shapes.QUICK:
            return self._execute_checked(tenant, command, now)
        try:
            reply = only.execute(tenant, command, now)
        except Exception as error:
            self._after_error(command, error)
            raise
        if only.records and not only.effects and not self._readers:
            self._append(0, only.records)  # what `commit` does when nobody waits for anything
            only.records.clear()
        else:
            self.commit()
        return reply

    def _execute_checked(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        """The same for commands and tenants that must be looked at first."""
        checks.name(tenant, "tenant")
        if len(self._tenants) >= TENANTS_CHECKED_MAX:
            self._tenants.clear()
        self._tenants.add(tenant)
        try:
            if type(command) not in shapes.QUICK:
                shapes.check(command)
            reply = self._execute_any(tenant, command, now)
        except Exception as error:
            self._after_error(command, error)
            raise
        self.commit()
        return reply

    def _after_error(self, command: c.Command[Any], error: Exception) -> None:
        """Time may have passed before a refusal. Anything else was malformed, as its types can tell, or is a bug."""
        if isinstance(error, errors.Refused):
            self.commit()
        elif not self.is_torn:
            shapes.check(command)

    def _execute_any(self, tenant: str, command: c.Command[Any], now: int) -> Any:
        if type(command) is c.ReadEvents:
            return self._read_events(tenant, command, now)
        if self._only is not None:
            return self._only.execute(tenant, command, now)
        return routing.execute(self.shards, tenant, command, now)

    def advance(self, now: int) -> None:
        """One turn without a command."""
        for shard in self.shards:
            shard.advance(now)
        self.commit()
        for place, readers in list(self._readers.items()):
            for parked, after in [(one, after) for one, after in readers.items() if one.done or one.expires_at <= now]:
                self._leave(place, parked)
                if not parked.done:
                    self._answer_reader(parked, r.Events([], after, self.journal.lowest(place[0])))

    def commit(self) -> None:
        """Journal what happened in this turn, then let the answers to waiting commands out."""
        for shard in self.shards:
            if shard.records:
                self.journal.append(shard.number, shard.records)
                tenants = {record.tenant for record in shard.records} if self._readers else ()  # type: ignore[attr-defined]
                shard.records.clear()
                for tenant in tenants:
                    self._wake_readers((shard.number, tenant))
            if shard.effects:
                for parked, reply in shard.take_effects():
                    self._answer(parked, reply)

    @property
    def is_torn(self) -> bool:
        """Whether a turn was broken off in the middle: something was recorded, perhaps half applied, and not journaled.

        Nothing changes before it is recorded, so an exception that leaves no record behind has done no harm.
        """
        return any(shard.records for shard in self.shards)

    @property
    def next_at(self) -> int | None:
        """When to come back, at the latest."""
        times = [at for shard in self.shards if (at := shard.next_at) is not None]
        times += [parked.expires_at for readers in self._readers.values() for parked in readers]
        return min(times, default=None)

    def shard_stats(self, now: int) -> list[r.Stats]:
        """The counters of each shard over all tenants: for operators and metrics, never for a tenant."""
        return [looking.stats_of(shard.scope, now) for shard in self.shards]

    def close(self) -> None:
        for shard in self.shards:
            shard.close()

    # --- events ----------------------------------------------------------------------------------

    def _read_events(self, tenant: str, command: c.ReadEvents, now: int) -> "r.Events | Parked":
        if type(command.shard) is not int or not 0 <= command.shard < len(self.shards):
            raise errors.InvalidRequest(f"no shard {checks.short(command.shard)}: they are 0 to {len(self.shards) - 1}")
        if command.queue is not None:
            checks.name(command.queue)
        checks.count(command.limit, "limit", self.limits.events_max)
        checks.number(command.after, "after", 0, 2**53 - 1)
        checks.count(command.wait_ms, "wait_ms", self.limits.wait_ms_max, 0)
        self.advance(now)
        page = self._page(tenant, command, command.after)
        if page.events or not command.wait_ms:
            return page
        parked = Parked(tenant, command, now + command.wait_ms)
        self._readers.setdefault((command.shard, tenant), {})[parked] = page.next_after
        return parked

    def _page(self, tenant: str, command: c.ReadEvents, after: int) -> r.Events:
        """The tenant's events after a position: whole records, until the limit is reached."""
        number = command.shard
        found: list[Any] = []
        while len(found) < command.limit:
            records = self.journal.read(number, after, command.limit)
            if not records:
                break
            for sequence, record in records:
                after = sequence
                if record.tenant == tenant and command.queue in (None, getattr(record, "queue", None)):  # type: ignore[attr-defined]
                    events = events_of(number, sequence, record)
                    found += [event for event in events if command.kinds is None or event.kind in command.kinds]
                if len(found) >= command.limit:
                    break
        return r.Events(found, after, self.journal.lowest(number))

    def _wake_readers(self, place: tuple[int, str]) -> None:
        """Something happened to a tenant in a shard: look on from where each of its readers has looked."""
        for parked, after in list(self._readers.get(place, {}).items()):
            assert type(parked.command) is c.ReadEvents
            if parked.done:
                self._leave(place, parked)
                continue
            page = self._page(parked.tenant, parked.command, after)
            if page.events:
                self._leave(place, parked)
                self._answer_reader(parked, page)
            else:
                self._readers[place][parked] = page.next_after

    def _leave(self, place: tuple[int, str], parked: Parked) -> None:
        del self._readers[place][parked]
        if not self._readers[place]:
            del self._readers[place]

    def _answer_reader(self, parked: Parked, page: r.Events) -> None:
        parked.done = True
        self._answer(parked, page)
