"""Where calls wait for Redis: all waiting calls of a process share a thread that blocks in Redis for them.

A marker in a list wakes one call, the first that came. A new pull goes behind the pulls that already wait for the same
queues, and does not look before them. A new record in a stream wakes all who read it. When a deadline
of a tenant comes, one of its waiting calls is woken: its script lets happen what is due. A marker that was popped for a
call that is gone goes to the next, or back to Redis.
"""

import bisect
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from stoker.brokers.redis.links import BlockingRedisLink, RedisNode, RedisRefusal, Words
from stoker.brokers.remote.links import LinkLost
from stoker.brokers.remote.pool import CLOSED
from stoker.model.errors import Closed, StokerError

NEVER = math.inf
UNBLOCK_S = 0.02
"""How long to wait for the end of a blocked command before it is ended again."""


def wake_key(queue: str) -> str:
    """The list with the marker of a queue."""
    return f"wake:{len(queue)}:{queue}"


class Ticket:
    """A call that waits. `after` is the number of the last record that it knows, where it waits for records."""

    def __init__(self, tenant: str, keys: Sequence[str], place: int, ends_at: float, after: int = 0) -> None:
        self.tenant, self.keys, self.place, self.ends_at, self.after = tenant, tuple(keys), place, ends_at, after
        self.found: bytes | None = None
        """What a list held."""
        self.key = ""
        """The list."""
        self.error: Exception | None = None
        self.is_woken = False
        self.looks = False
        """Whether it was woken because of the time: then it has to hand that on when it leaves."""
        self._wake: Callable[[], object] | None = None

    def when_woken(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        if self.is_woken:
            wake()

    def wake(self) -> None:
        self.is_woken = True
        if self._wake is not None:
            self._wake()


class PullLine:
    """Waiting calls in the order in which they came."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.looks_at = NEVER
        """When one of them must look by itself."""

    def add(self, ticket: Ticket) -> None:
        bisect.insort(self.tickets, ticket, key=lambda one: one.place)

    def remove(self, ticket: Ticket) -> None:
        if ticket in self.tickets:
            self.tickets.remove(ticket)


class ListWaiter:
    """The waiting calls of a process on one server, and the thread that blocks for them."""

    def __init__(
        self,
        node: RedisNode,
        connect: Callable[[], tuple[RedisNode, BlockingRedisLink]],
        call: Callable[[Words], Any],
        put_back: Callable[[str, bytes], Words],
        refused: Callable[[RedisNode, RedisRefusal], StokerError],
    ) -> None:
        self._node = node
        self._connect, self._call, self._put_back, self._refused = connect, call, put_back, refused
        self._lock = threading.RLock()
        self._keys: dict[str, PullLine] = {}
        self._groups: dict[tuple[str, ...], PullLine] = {}
        self._tenants: dict[str, PullLine] = {}
        self._looking: dict[tuple[str, ...], set[int]] = {}
        """By keys: the places of calls that have waited and look now. They end, or wait again."""
        self._held: list[tuple[str, bytes]] = []
        """Markers that wait for a call that looks now and came before those that wait."""
        self._back: list[tuple[str, bytes]] = []
        self._blocked: dict[str, int] = {}
        self._blocked_until = 0.0
        self._link: BlockingRedisLink | None = None
        self._id = 0
        self._poked, self._poke = socket.socketpair()
        self._thread: threading.Thread | None = None
        self._is_over = False

    # --- for callers -----------------------------------------------------------------------------

    def is_behind(self, keys: tuple[str, ...], place: int) -> bool:
        """Whether a call that came earlier waits for the same, or has waited and not ended yet."""
        with self._lock:
            group = self._groups.get(keys)
            return (group is not None and group.tickets[0].place < place) or self._is_looking(keys, place)

    def enter(self, ticket: Ticket, looks_at: float, head_at: float, *, has_looked: bool = True) -> None:
        """Wait in line. `looks_at`: when one of those who wait for the same must look. A call that `has_looked` knows
        best. `head_at`: the next deadline of the tenant."""
        with self._lock:
            if self._is_over:
                raise Closed(CLOSED)
            for line in self._lines(ticket):
                line.add(ticket)
            group = self._groups[ticket.keys]
            group.looks_at = looks_at if has_looked else min(looks_at, group.looks_at)
            self._looked(ticket)
            self._tenants[ticket.tenant].looks_at = head_at
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stoker-redis-waiting", daemon=True)
                self._thread.start()
            if self._is_news(ticket):
                self._poke_thread()

    def leave(self, ticket: Ticket, *, took: bool = False) -> None:
        """The call waits no more. Unless it `took` what it found, another gets that."""
        with self._lock:
            self._remove(ticket)
            self._looking.setdefault(ticket.keys, set()).add(ticket.place)
            if ticket.found is not None and not took:
                self._hand_out(ticket.key, ticket.found)
                ticket.found = None

    def hand_on(self, ticket: Ticket, tick: str, *, has_failed: bool) -> None:
        """The call has ended, and does not keep the time any more: another does, here or in another process. If it was
        woken and has failed, it may not have looked: then another looks."""
        with self._lock:
            self._looked(ticket)
            group, tenant = self._groups.get(ticket.keys), self._tenants.get(ticket.tenant)
            if (ticket.looks or (has_failed and ticket.is_woken)) and group is not None:
                group.looks_at = 0
                self._poke_thread()
            if tenant is not None and not tenant.tickets and tenant.looks_at < NEVER:
                del self._tenants[ticket.tenant]
                self._back.append((tick, b"1"))
                self._poke_thread()

    def may_take_at(self, keys: frozenset[str], at: float) -> None:
        """A pull has taken all that a rate allows, and more is ready: one of those who wait looks at that time."""
        with self._lock:
            for group, line in self._groups.items():
                if at < line.looks_at and not keys.isdisjoint(group):
                    line.looks_at = at
                    self._poke_thread()

    def keeps_time(self, tenant: str) -> bool:
        line = self._tenants.get(tenant)
        return line is not None and bool(line.tickets)

    def head_at(self, tenant: str, at: float) -> None:
        """A script has told when the next deadline of the tenant comes."""
        line = self._tenants.get(tenant)
        if line is None or line.looks_at == at:
            return
        with self._lock:
            line.looks_at = at
            if line.tickets and at < self._blocked_until:
                self._poke_thread()

    def close(self) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            self._fail(Closed(CLOSED))
            self._poke_thread()
            if self._link is not None:
                self._link.shut()
        if self._thread is None:
            self._drop()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def forget(self) -> None:
        """In a forked process: the thread is the parent's."""
        if self._link is not None:
            self._link.forget()
        self._poked.close()
        self._poke.close()

    # --- lines -----------------------------------------------------------------------------------

    def _lines(self, ticket: Ticket) -> "chain[PullLine]":
        return chain(
            (self._keys.setdefault(key, PullLine()) for key in ticket.keys),
            (self._groups.setdefault(ticket.keys, PullLine()), self._tenants.setdefault(ticket.tenant, PullLine())),
        )

    def _remove(self, ticket: Ticket) -> None:
        for line in self._lines(ticket):
            line.remove(ticket)
        for key in ticket.keys:
            if not self._keys[key].tickets:
                del self._keys[key]
        if not self._groups[ticket.keys].tickets:
            del self._groups[ticket.keys]

    def _is_looking(self, keys: tuple[str, ...], before: int) -> bool:
        """Whether a call that came before this place looks now for the same."""
        return any(place < before for place in self._looking.get(keys, ()))

    def _looked(self, ticket: Ticket) -> None:
        """The call waits again, or has ended: markers that waited for it go on."""
        places = self._looking.get(ticket.keys)
        if places is None:
            return
        places.discard(ticket.place)
        if not places:
            del self._looking[ticket.keys]
        held, self._held = self._held, []
        for key, found in held:
            self._hand_out(key, found)

    def _wake(self, ticket: Ticket, *, looks: bool = False) -> None:
        ticket.looks = looks
        self._remove(ticket)
        self._looking.setdefault(ticket.keys, set()).add(ticket.place)
        ticket.wake()

    def _wake_due(self, now: float) -> None:
        for line in (*self._tenants.values(), *self._groups.values()):
            if line.looks_at <= now and line.tickets:
                line.looks_at = NEVER
                self._wake(line.tickets[0], looks=True)

    def _next_at(self) -> float:
        lines = chain(self._tenants.values(), self._groups.values())
        return min((line.looks_at for line in lines if line.tickets), default=NEVER)

    def _hand_out(self, key: str, found: bytes) -> None:
        line = self._keys.get(key)
        if line is None:
            self._back.append((key, found))
            self._poke_thread()
            return
        ticket = line.tickets[0]
        if self._is_looking(ticket.keys, ticket.place):
            self._held.append((key, found))
            return
        ticket.key, ticket.found = key, found
        self._wake(ticket)

    def _fail(self, error: Exception) -> None:
        for ticket in [ticket for line in self._tenants.values() for ticket in line.tickets]:
            ticket.error = error
            self._wake(ticket)

    # --- the thread ------------------------------------------------------------------------------

    def _poke_thread(self) -> None:
        try:
            self._poke.send(b"\0")
        except OSError:
            pass

    def _is_news(self, ticket: Ticket) -> bool:
        """Whether the thread blocks without the keys of this call, or for too long."""
        covered = all(key in self._blocked and self._blocked[key] <= ticket.after for key in ticket.keys)
        return not covered or self._next_at() < self._blocked_until

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            self._drop()

    def _turn(self) -> bool:
        with self._lock:
            if self._is_over:
                return False
            self._wake_due(time.monotonic())
            back, self._back = self._back, []
            self._blocked = {key: min(one.after for one in line.tickets) for key, line in self._keys.items()}
            self._blocked_until = self._next_at() if self._blocked else 0.0
        try:
            for key, found in back:
                self._call(self._put_back(key, found))
            if not self._blocked:
                self._rest()
                return True
            found_now = self._block(self._ready_link(), self._blocked, self._blocked_until)
        except RedisRefusal as refusal:
            self._break_off(self._refused(self._node, refusal))
        except (LinkLost, StokerError, OSError) as error:
            self._break_off(error)
        else:
            with self._lock:
                self._blocked = {}
                if found_now is not None:
                    self._deliver(found_now)
        return True

    def _break_off(self, error: Exception) -> None:
        """Redis is away: all who wait are told, and come back when it is there again."""
        with self._lock:
            self._blocked = {}
            self._fail(error if isinstance(error, StokerError) else LinkLost(str(error), sent=False))
            if self._link is not None:
                self._link.close()
                self._link = None

    def _rest(self) -> None:
        select.select([self._poked], [], [])
        self._poked.recv(4_096)

    def _ready_link(self) -> BlockingRedisLink:
        link = self._link
        if link is None or not link.is_alive:
            if link is not None:
                link.close()
            self._node, link = self._connect()
            self._id = link.call(("CLIENT", "ID"))
            with self._lock:
                self._link = link
                if self._is_over:
                    raise Closed(CLOSED)
        return link

    def _block(self, link: BlockingRedisLink, keys: dict[str, int], until: float) -> Any:
        link.send(self._words(keys, until - time.monotonic()))
        both: list[Any] = [link, self._poked]
        while link not in select.select(both, [], [])[0]:
            self._poked.recv(4_096)
            with self._lock:
                is_old = bool(self._back) or self._is_over or self._next_at() < self._blocked_until
                is_old = is_old or any(
                    self._blocked.get(key, NEVER) > min(one.after for one in line.tickets)
                    for key, line in self._keys.items()
                )
            if is_old:
                self._unblock(link)
        return link.receive()

    def _unblock(self, link: BlockingRedisLink) -> None:
        """End the blocked command. It may not have reached Redis yet: then again."""
        while not self._is_over and not link.is_readable(0):
            self._call(("CLIENT", "UNBLOCK", self._id))
            if link.is_readable(UNBLOCK_S):
                return

    def _words(self, keys: dict[str, int], timeout_s: float) -> Words:
        seconds = 0 if timeout_s == NEVER else max(0.001, timeout_s)
        return ("BLPOP", *keys, f"{seconds:.3f}")

    def _deliver(self, found: Any) -> None:
        key, value = found
        self._hand_out(key.decode(), value)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._poked.close()
        self._poke.close()


class StreamWaiter(ListWaiter):
    """The same for those who wait for new records of a log."""

    def _words(self, keys: dict[str, int], timeout_s: float) -> Words:
        ms = 0 if timeout_s == NEVER else max(1, math.ceil(timeout_s * 1_000))
        return ("XREAD", "COUNT", 1, "BLOCK", ms, "STREAMS", *keys, *(f"{after}-0" for after in keys.values()))

    def _deliver(self, found: Any) -> None:
        for key, records in found:
            number = int(records[-1][0].partition(b"-")[0])
            line = self._keys.get(key.decode())
            for ticket in [one for one in line.tickets if one.after < number] if line is not None else ():
                self._wake(ticket)
