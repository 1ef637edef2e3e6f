"""How a call waits in Redis, and what this client knows of the time of a tenant."""

import time
from functools import partial
from typing import Any

import msgspec

from stoker.brokers.redis.calls import (
    ListWait,
    LogRead,
    ScriptCall,
    ScriptReply,
)
from stoker.brokers.redis.greeting import meaning
from stoker.brokers.redis.history import LogPage
from stoker.brokers.redis.links import (
    BlockingRedisLink,
    RedisNode,
    RedisRefusal,
    Words,
)
from stoker.brokers.redis.operations import Operations, ParkStep, PassStep
from stoker.brokers.redis.routing import RedisServers
from stoker.brokers.redis.scripts import script
from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.brokers.redis.waiting import NEVER, ListWaiter, StreamWaiter, Ticket, wake_key
from stoker.brokers.remote.retrying import Patience
from stoker.engine import pulling
from stoker.engine.shard import Shard
from stoker.model import commands as c


class SeenTenant:
    """What this client knows of a tenant."""

    def __init__(self, prefix: str) -> None:
        self.keys = prefix + "n", prefix + "void"
        """The keys that every script declares."""
        self.sequence, self.record = 0, 0
        """The highest numbers that it has seen."""
        self.now, self.heard_at, self.head = 0, 0.0, -1
        """The tenant's time when it was last told, when that was by this machine's clock, and the next deadline."""

    def hear(self, now: int, head: int) -> None:
        if now > self.now:
            self.now, self.heard_at, self.head = now, time.monotonic(), head
        elif now == self.now and head >= 0:
            self.head = head if self.head < 0 else min(head, self.head)

    def local(self, at: int) -> float:
        """A time of the tenant by this machine's clock, just after it has come."""
        return NEVER if at < 0 else self.heard_at + (at - self.now + 1) / 1_000


class CallVisit:
    """One try of a command: its place in line, and how it has waited last."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.waited: tuple[ListWaiter, Ticket] | None = None


class WaitingCalls(RedisServers):
    """Calls that wait: for a marker, for the end of a job, for a new record."""

    def __init__(self, target: Target, settings: RedisSettings | None, clock: Any, patience: Patience | None) -> None:
        super().__init__(target, settings, patience)
        self.clock = clock
        """In tests time comes from here; else it is Redis' own."""
        self._checker = Shard(0, limits=self.settings.limits)
        self._tenants: dict[str, SeenTenant] = {}

    def _prefix(self, tenant: str) -> str:
        return f"{self.settings.prefix}:{{{tenant}/0}}:"

    def _waiter(self, kind: type[ListWaiter], tenant: str) -> ListWaiter:
        """One for all tenants; in a cluster one for each, because tenants are on different servers."""
        place = kind, tenant if self.settings.cluster else ""
        found = self._waiters.get(place)
        if found is None:
            with self._lock:
                self._check_open()
                found = self._waiters.get(place)
                if found is None:
                    found = self._waiters[place] = kind(
                        self._seed,
                        partial(self._connect, tenant),
                        partial(self._call_for, tenant),
                        self._put_back,
                        meaning,
                    )
        return found

    def _connect(self, tenant: str) -> tuple[RedisNode, BlockingRedisLink]:
        node = self._route(tenant)
        return node, BlockingRedisLink(self._way(node))

    def _call_for(self, tenant: str, words: Words) -> Any:
        return self.pool(self._route(tenant)).call(words)

    def _put_back(self, key: str, found: bytes) -> Words:
        return ("EVAL", script("back").text, 1, key, found)

    def _pulls_waiting(self, tenant: str) -> ListWaiter | None:
        return self._waiters.get((ListWaiter, tenant if self.settings.cluster else ""))

    def _keeps_time(self, tenant: str) -> bool:
        waiter = self._pulls_waiting(tenant)
        return waiter is not None and waiter.keeps_time(tenant)

    def _tell_chance(self, tenant: str, pull: ScriptCall, done: ScriptReply) -> None:
        """A pull has used up what a rate allows: pulls of this process that wait learn when it allows more."""
        token, chance, *_ = done.values
        waiter = self._pulls_waiting(tenant)
        if waiter is not None and chance >= 0 and token != b"0":
            prefix = self._prefix(tenant)
            keys = frozenset(prefix + wake_key(queue) for queue in pull.params["queues"])
            waiter.may_take_at(keys, self._tenants[tenant].local(chance))

    def _wait(self, tenant: str, wait: ListWait, visit: CallVisit) -> Operations[bytes | None]:
        """What was found in one of the lists."""
        prefix = self._prefix(tenant)
        keys = [prefix + key for key in wait.keys]
        if self.clock is not None:
            yield PassStep(wait.until)
            return (yield from self._exchange(tenant, ("LPOP", keys[0])))  # type: ignore[no-any-return]
        known, tick = self._tenants[tenant], prefix + "tick"
        ticket = Ticket(tenant, (*keys, tick), visit.place, known.local(wait.ends_at))
        yield from self._parked(self._waiter(ListWaiter, tenant), ticket, wait.until, visit)
        return ticket.found if ticket.key != tick else None

    def _behind_others(self, tenant: str, pull: c.Pull, visit: CallVisit) -> Operations[c.Pull]:
        """Wait behind the pulls of this process that wait for the same queues. The rest of the wait is left."""
        waiter, prefix = self._pulls_waiting(tenant), self._prefix(tenant)
        keys = (*(prefix + wake_key(queue) for queue in pull.queues), prefix + "tick")
        if waiter is None or self.clock is not None or not waiter.is_behind(keys, visit.place):
            return pull
        pulling.check_pull(self._checker, pull)
        began = time.monotonic()
        ticket = Ticket(tenant, keys, visit.place, began + pull.wait_ms / 1_000)
        yield from self._parked(waiter, ticket, None, visit)
        left_ms = pull.wait_ms - int((time.monotonic() - began) * 1_000)
        return msgspec.structs.replace(pull, wait_ms=max(0, left_ms))

    def _parked(self, waiter: ListWaiter, ticket: Ticket, until: int | None, visit: CallVisit) -> Operations[None]:
        """`until` is when the call has to look again, as a script has told it. None if it has not looked."""
        known = self._tenants[ticket.tenant]
        head = known.local(known.head)
        net = time.monotonic() + self.settings.net_ms / 1_000
        own = NEVER if until is None or until == known.head else known.local(until)
        visit.waited = waiter, ticket
        looks_at = min(net, own if own < ticket.ends_at else NEVER)
        waiter.enter(ticket, looks_at, head, has_looked=until is not None)
        took = False
        try:
            yield ParkStep(ticket)
            took = ticket.error is None
        finally:
            waiter.leave(ticket, took=took)
        if ticket.error is not None:
            raise ticket.error

    def _read(self, tenant: str, read: LogRead, visit: CallVisit) -> Operations[LogPage | None]:
        key = self._prefix(tenant) + "log"
        if not read.limit:
            if self.clock is not None:
                yield PassStep(read.wait_until)
                return None
            ticket = Ticket(tenant, (key,), visit.place, self._tenants[tenant].local(read.wait_until), read.after)
            yield from self._parked(self._waiter(StreamWaiter, tenant), ticket, read.wait_until, visit)
            return None
        try:
            found = yield from self._exchange(tenant, ("XRANGE", key, f"({read.after}-0", "+", "COUNT", read.limit))
            first = yield from self._exchange(tenant, ("XRANGE", key, "-", "+", "COUNT", 1))
            last = yield from self._exchange(tenant, ("XREVRANGE", key, "+", "-", "COUNT", 1))
        except RedisRefusal as refusal:
            raise meaning(self._route(tenant), refusal) from None
        return log_of(found, first, last)


def log_of(found: Any, first: Any, last: Any) -> LogPage:
    entries = [(number_of(place), fields_of(fields)) for place, fields in found]
    lowest = number_of(first[0][0]) if first else 1
    return LogPage(entries, lowest, number_of(last[0][0]) if last else 0)


def fields_of(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def number_of(place: bytes) -> int:
    return int(place.partition(b"-")[0])
