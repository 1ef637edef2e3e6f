"""The reader of an inbox: pushes every committed row once, to any broker.

    claim:   rows get a batch name, in one transaction
    push:    each queue's rows are one PushBatch, with that name as its request key, flushed to disk
    settle:  pushed rows are deleted and refused ones keep the error, in one transaction for each queue

A reader may die between any two of these. A minute later any reader sends the same rows under the same name, and the
queue gives the first answer again. So rows keep their name until their outcome is known. A definite refusal takes the
name off only where nothing can have been sent before.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from uuid import uuid4

import msgspec
import psycopg

from stoker.inbox.checking import InboxRow, problem_of
from stoker.inbox.position import FULL_LOOK_S, Position
from stoker.inbox.schema import connect, friendly
from stoker.inbox.table import RESEND_S, ROWS_MAX, InboxSending, InboxStatus, InboxTable, Place
from stoker.model import commands as c
from stoker.model import errors
from stoker.model.options import DAY_MS
from stoker.model.replies import PushedBatch

log = logging.getLogger("stoker.inbox")

POLL_S = 0.1
OURS_S = RESEND_S / 2
"""How long after taking a batch a reader may send it: well before another one does."""
PAUSE_S, PAUSE_S_MAX = 0.2, 5.0
"""After trouble with the queue or the database; doubled each time."""
HOLD_S = 10.0
"""How long a queue waits whose rows alone were refused for now."""
ERROR_CHARS = 2_000

Push = Callable[[str, c.PushBatch], Awaitable[PushedBatch]]
"""Carries out a push for a tenant."""


def seconds() -> float:
    """A clock that goes on while the machine sleeps: a batch may have been sent again in the meantime."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class InboxTotals(msgspec.Struct):
    """What a reader has done with rows since it started."""

    pushed: int = 0
    refused: int = 0
    """Set aside, because the queue refused them for good or nothing can be made of them."""
    set_aside: int = 0
    """Set aside, because it is no longer certain whether they were pushed."""


class QueueTrouble(Exception):
    """The queue takes nothing at the moment."""


class Reader:
    """Reads one inbox until it is told to stop. Any number of readers may share an inbox.

    `tenants` are those that rows may name; empty means all. `request_ttl_ms` is how long the queue remembers a
    request, as in its settings.
    """

    def __init__(self, url: str, push: Push, *, tenants: Collection[str] = (), request_ttl_ms: int = DAY_MS) -> None:
        self._url, self._push = url, push
        self._tenants = frozenset(tenants)
        self._stale_s = request_ttl_ms / 2_000
        self._clock = seconds
        self._position = Position()
        self._full_at = 0.0
        """When the whole table is looked at again."""
        self._upkeep_at = 0.0
        """When batches that were left behind are looked for again."""
        self._has_more = False
        """Whether the last batch was full."""
        self._is_weak = False
        """Whether the queue was seen to give a level below `fsync`."""
        self._held: dict[Place, float] = {}
        """Until when a queue's rows are left alone."""
        self._allowed: dict[Place, int] = {}
        """How many rows of a queue go into a batch, where a larger batch was refused as a whole."""
        self._stopping = asyncio.Event()
        self._pause_s = PAUSE_S
        self.totals = InboxTotals()
        self.status: InboxStatus | None = None
        """As of the last full look; None while the database does not answer."""

    def stop(self) -> None:
        """Finish what is being pushed, and return from `run`."""
        self._stopping.set()

    async def run(self) -> None:
        """Read until `stop`. Trouble with the database or the queue is logged, and tried again."""
        while not self._stopping.is_set():
            try:
                async with await connect(self._url) as connection:
                    log.info("reading the inbox")
                    await self._read(InboxTable(connection))
            except (psycopg.Error, OSError) as error:
                said = friendly(error) if isinstance(error, psycopg.Error) else error
                log.warning("the inbox cannot be read, trying again: %s", said)
            except errors.StokerError as error:
                log.error("the inbox cannot be read, trying again: %s", error.message)
            else:
                return
            self.status = None
            await self._pause()

    async def _read(self, table: InboxTable) -> None:
        self._full_at = 0.0
        while not self._stopping.is_set():
            began = self._clock()
            try:
                await self.read_once(table)
                self._pause_s = PAUSE_S
            except QueueTrouble as trouble:
                log.warning("the queue takes no rows of the inbox, trying again: %s", trouble)
                self._full_at = 0.0
                await self._pause()
                continue
            if not self._has_more:  # rows that come meanwhile go together: each push waits for a disk
                await self._wait(max(0.0, began + POLL_S - self._clock()))

    async def _pause(self) -> None:
        await self._wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    async def _wait(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._stopping.wait()
        except TimeoutError:
            pass

    # --- one round ---------------------------------------------------------------------------------

    async def read_once(self, table: InboxTable) -> int:
        """Push what is there, one batch at most, and what others left behind. Returns how many rows there were."""
        now = self._clock()
        if now >= self._upkeep_at:
            self._upkeep_at = now + FULL_LOOK_S
            await self._look_after(table, now)
        is_full_look = now >= self._full_at
        after = 0 if is_full_look else self._position.floor
        look = await table.look(after)
        self._position.looked(look, now)
        if is_full_look:
            self._full_at = now + FULL_LOOK_S
        self._has_more = False
        if not look.has_rows:
            self._position.claimed(None)
            return 0
        batch, taken = f"inbox-{uuid4().hex}", self._clock()
        sendings, last_id, bad = await table.claim(batch, after, list(self._held), self._sorted)
        self._position.claimed(last_id)
        self._has_more = last_id is not None
        if is_full_look and self._has_more:
            self._full_at = now
        for id, problem in bad.items():
            log.error("row %d of the inbox was set aside: %s", id, problem)
        self.totals.refused += len(bad)
        await self._send_all(table, sendings, taken)
        return len(bad) + sum(len(sending.rows) for sending in sendings)

    async def _look_after(self, table: InboxTable, now: float) -> None:
        """Send what other readers left behind, and count."""
        self._held = {place: until for place, until in self._held.items() if until > now}
        self.status = await table.status()
        for batch in await table.old_batches():
            taken = self._clock()
            await self._send_all(table, await table.take(batch), taken)

    def _sorted(self, rows: list[InboxRow]) -> tuple[list[InboxRow], Mapping[int, str]]:
        """The rows to name, and those that are nonsense. Rows beyond what their queue takes at once are left."""
        named, bad, counts = list[InboxRow](), dict[int, str](), dict[Place, int]()
        for row in rows:
            problem = problem_of(row, self._tenants)
            if problem is not None:
                bad[row.id] = text_of(f"invalid: {problem}")
                continue
            place = (row.tenant, row.queue)
            counts[place] = counts.get(place, 0) + 1
            if counts[place] <= self._allowed.get(place, ROWS_MAX):
                named.append(row)
        return named, bad

    async def _send_all(self, table: InboxTable, sendings: list[InboxSending], taken: float) -> None:
        """Send the queues' rows one after another. After trouble, rows that were not sent lose their name."""
        left = list(sendings)
        try:
            while left:
                await self._send(table, left[0], taken)
                left.pop(0)
        except QueueTrouble:
            for sending in left[1:]:
                if sending.is_first:
                    await table.release(sending)
            raise

    async def _send(self, table: InboxTable, sending: InboxSending, taken: float) -> None:
        if not sending.is_first:
            problem = self._resend_problem(sending)
            if problem is not None:
                await self._set_aside(table, sending, problem)
                return
        if self._clock() - taken > OURS_S:
            return  # this reader was held up, and another one may be sending it
        tenant, queue = sending.place
        payloads, each = [row.payload for row in sending.rows], [row.options for row in sending.rows]
        command = c.PushBatch(queue, payloads, each=each, request_key=sending.batch, durability="fsync")
        try:
            reply = await self._push(tenant, command)
        except errors.StokerError as error:
            await self._not_pushed(table, sending, error)
        else:
            await self._pushed(table, sending, reply)

    def _resend_problem(self, sending: InboxSending) -> str | None:
        """Why a batch that may have been sent before must not be sent again."""
        if sending.age_s > self._stale_s:
            return "the batch is so old that the queue may have forgotten whether it was pushed"
        problems = {row.id: problem_of(row, self._tenants) for row in sending.rows}
        return next((f"row {id}: {problem}" for id, problem in problems.items() if problem is not None), None)

    # --- outcomes ------------------------------------------------------------------------------------

    async def _pushed(self, table: InboxTable, sending: InboxSending, reply: PushedBatch) -> None:
        if len(reply.ids) != len(sending.rows):
            await self._set_aside(
                table, sending, f"the batch was pushed with {len(reply.ids)} rows, and now has {len(sending.rows)}"
            )
            return
        refused: dict[int, str | None] = {}
        for number, refusal in reply.refused.items():
            row, kind = sending.rows[number], errors.BY_CODE.get(refusal.code, errors.Refused)
            refused[row.id] = None if is_for_now(kind) else text_of(f"{refusal.code}: {refusal.message}")
        if reply.level != "fsync" and not self._is_weak:
            self._is_weak = True
            log.warning("the queue answers with level %s: what it loses with that level is lost for good", reply.level)
        await table.settle(sending, refused)
        if None in refused.values():
            self._held[sending.place] = self._clock() + HOLD_S
        for id, problem in refused.items():
            if problem is not None:
                self.totals.refused += 1
                log.error("row %d of the inbox was set aside, the queue refused it: %s", id, problem)
        self.totals.pushed += len(sending.rows) - len(refused)
        if sending.place in self._allowed:  # a larger batch may do by now; rows that did not fit lie behind the floor
            self._allow(sending.place, len(sending.rows) + max(1, len(sending.rows) // 10))
            self._full_at = 0.0

    async def _not_pushed(self, table: InboxTable, sending: InboxSending, error: errors.StokerError) -> None:
        """The whole batch was refused, or its outcome is not known."""
        said = f"{error.code}: {error.message}"
        if isinstance(error, errors.Unknown):
            raise QueueTrouble(said) from error
        if not sending.is_first:
            if not is_for_now(type(error)):
                await self._set_aside(table, sending, said)
            elif is_trouble(type(error)):
                raise QueueTrouble(said) from error
            return
        if len(sending.rows) == 1 and not is_for_now(type(error)):
            await table.settle(sending, {sending.rows[0].id: text_of(said)})
            self.totals.refused += 1
            log.error("row %d of the inbox was set aside, the queue refused it: %s", sending.rows[0].id, said)
            return
        await table.release(sending)
        if is_trouble(type(error)):
            raise QueueTrouble(said) from error
        log.warning("%d rows for %s/%s wait: %s", len(sending.rows), *sending.place, said)
        self._allow(sending.place, len(sending.rows) // 2)
        if is_for_now(type(error)):
            self._held[sending.place] = self._clock() + HOLD_S
        else:
            self._full_at = 0.0  # smaller batches may do: try at once

    def _allow(self, place: Place, rows: int) -> None:
        self._allowed[place] = max(1, rows)
        if rows >= ROWS_MAX:
            del self._allowed[place]

    async def _set_aside(self, table: InboxTable, sending: InboxSending, problem: str) -> None:
        """Leave rows to people: pushing them could be a second time, and dropping them a loss."""
        await table.settle(sending, dict.fromkeys(sending.ids, text_of(f"unknown: {problem}; look for the job first")))
        self.totals.set_aside += len(sending.rows)
        log.error("%d rows for %s/%s were set aside: %s", len(sending.rows), *sending.place, problem)


def is_for_now(kind: type[errors.StokerError]) -> bool:
    """Whether the same rows may be accepted later."""
    return is_trouble(kind) or issubclass(kind, errors.QuotaExceeded | errors.Forbidden)


def is_trouble(kind: type[errors.StokerError]) -> bool:
    """Whether the queue takes nothing at all at the moment, whatever the rows are."""
    return issubclass(kind, errors.Unavailable | errors.Unknown | errors.Unauthenticated)


def text_of(problem: str) -> str:
    """As PostgreSQL can store it."""
    return problem.replace("\0", "\\0")[:ERROR_CHARS]
