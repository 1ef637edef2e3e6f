"""One hook at work: reads its tenant's log from its position, posts matching events, and notes its progress.

First attempts are made in the order of the log, one at a time. An event that fails waits for its next attempt while
later ones go on; when many wait, no new one is begun. Progress is noted in batches: after a crash the events of the
last batch are posted again, with the same ids. A slow receiver delays only its own hook.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from stoker.brokers.contract import End
from stoker.model.errors import Closed, StokerError
from stoker.model.events import Event
from stoker.server.config.tree import WebhookSettings
from stoker.server.dispatcher import Dispatcher
from stoker.server.reader import WHOLE, EventReader, MissedEvents, after, event_at
from stoker.server.webhooks.bodies import body_of, delivery_id
from stoker.server.webhooks.circuit import Circuit, delay_s
from stoker.server.webhooks.hooks import Hook, Status
from stoker.server.webhooks.posting import PostOutcome
from stoker.server.webhooks.store import HookProgress, HookRetry, HookStore
from stoker.server.webhooks.urls import HookUrl, parse
from stoker.webhooks import ATTEMPT, DELIVERY, EVENT, FLASHQ_SIGNATURE, SIGNATURE, sign, sign_flashq

WAITING_MAX: Final = 256
"""Failed events that wait: all of them are in the noted entry."""
NOTE_EVENTS: Final = 100
NOTE_S: Final = 1.0
"""Progress is noted after this many outcomes, or this long."""
IDLE_RECORDS: Final = 1_000
"""Progress is also noted after this many records without a matching event, so that a restart does not read them
again.
"""
STOP_S: Final = 2.0
"""How long an attempt may go on when the server stops."""
AGAIN_S: Final = 1.0

log = logging.getLogger("stoker.webhooks")


class HookTotals(msgspec.Struct):
    """Over all hooks of this process, since it started."""

    delivered: int = 0
    failed: int = 0
    given_up: int = 0
    missed: int = 0


class Post(Protocol):
    async def post(self, target: HookUrl, headers: Mapping[str, str], body: bytes) -> PostOutcome: ...


class HookDelivery:
    """The work of one hook."""

    def __init__(
        self,
        hook: Hook,
        progress: HookProgress,
        ends: Mapping[int, End],
        *,
        dispatcher: Dispatcher,
        store: HookStore,
        poster: Post,
        settings: WebhookSettings,
        totals: HookTotals,
        now: Callable[[], float] = time.time,
        tick: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        may_post: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_post` says whether this server is the one that posts."""
        self.hook = hook
        self.progress = progress
        self._target = parse(hook.url)
        self._dispatcher = dispatcher
        self._store = store
        self._poster = poster
        self._settings = settings
        self._totals = totals
        self._now = now
        self._tick = tick
        self._chance = chance
        self._may_post = may_post
        self._circuit = Circuit(settings)
        self._event: Event | None = None
        """The one whose first attempt is next, or under way."""
        self._woken = asyncio.Event()
        self._is_stopping = False
        self._unnoted = 0
        self._noting_fails = False
        self._noted_at = tick()
        self._noted_sum = self._sum()
        self._task: asyncio.Task[None] | None = None
        wanted = hook.filter
        for shard in wanted.shards(hook.tenant, dispatcher.shards):
            last = ends[shard].last  # a position that the log lost before it was flushed is not one any more
            progress.positions[shard] = min(progress.positions.get(shard, (0, WHOLE)), (last, WHOLE))
        self._reader = EventReader(dispatcher, hook.tenant, wanted, self.wake, start=progress.positions, ends=ends)
        latest = now() + settings.backoff_s_max
        for waiting in progress.waiting:
            waiting.due = min(waiting.due, latest)  # another clock may have noted it

    # --- from outside --------------------------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self, *, note: bool = True) -> None:
        """Give the current attempt a moment to end, and note the progress."""
        self._is_stopping = True
        self._woken.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=STOP_S)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._reader.close()
        if self._event is None:
            self._note_positions()
        if note and (self._unnoted or self._sum() != self._noted_sum):
            await self._note()

    def wake(self) -> None:
        """Look again for work."""
        self._woken.set()

    def status(self) -> Status:
        told = status_of(self.progress)
        positions = self.progress.positions
        behind = sum(max(0, self._reader.last(shard) - after(positions[shard])) for shard in self._reader.shards)
        return msgspec.structs.replace(
            told, circuit=self._circuit.state(self._tick()), pending=behind + len(self.progress.waiting)
        )

    # --- the loop ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                await self._step()
            except Closed:
                return
            except StokerError as error:
                log.warning("webhook %s: %s; trying again in a moment", self.hook.id, error)
                await self._pause(AGAIN_S)
            except Exception:
                log.exception("webhook %s failed with an unexpected error; trying again in a moment", self.hook.id)
                await self._pause(AGAIN_S)

    async def _step(self) -> None:
        """Do the most important thing that is pending."""
        if not self._may_post():
            await self._pause(AGAIN_S)
            return
        await self._note_if_due()
        now = self._now()
        shut_s = self._circuit.wait_s(self._tick())
        if shut_s > 0:
            self._reader.let_go()
            await self._pause(shut_s)
            return
        waiting = min(self.progress.waiting, key=lambda one: one.due, default=None)
        if waiting is not None and waiting.due <= now:
            await self._try_again(waiting)
        elif len(self.progress.waiting) >= WAITING_MAX:
            assert waiting is not None
            await self._pause(waiting.due - now)
        elif self._event is not None:
            await self._go_on(self._event)
        elif not self._take():
            await self._pause(waiting.due - now if waiting is not None else None)

    async def _pause(self, seconds: float | None) -> None:
        """Wait for news, for this long, or until progress must be noted."""
        if self._unnoted:
            seconds = min(NOTE_S, seconds) if seconds is not None else NOTE_S
        if self._is_stopping:
            return
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            pass
        if not self._is_stopping:
            self._woken.clear()

    # --- reading -------------------------------------------------------------------------------------

    def _take(self) -> bool:
        """Take what comes next in the log; false if there is nothing, and then we will be woken."""
        item = self._reader.next()
        if isinstance(item, Event):
            self._event = item
            return True
        self._note_positions()
        if item is not None:
            self._skipped(item)
        return item is not None

    def _note_positions(self) -> None:
        """Everything that was taken so far is done with."""
        reader = self._reader
        self.progress.positions = {shard: reader.positions[shard] for shard in reader.shards}

    def _skipped(self, missed: MissedEvents) -> None:
        count = missed.lowest - missed.after - 1
        self.progress.missed += count
        self._totals.missed += count
        self._unnoted += 1
        log.warning(
            "webhook %s: %d records of shard %d are no longer kept; events in them were not posted",
            self.hook.id,
            count,
            missed.shard,
        )

    async def _go_on(self, event: Event) -> None:
        """One more first attempt."""
        outcome = await self._attempt(event, 1)
        self._event = None
        self.progress.positions[event.shard] = (event.sequence, event.index)
        if not outcome.ok:
            self._failed(HookRetry(event.shard, event.sequence, event.index, 0, 0.0), outcome)

    # --- attempts ------------------------------------------------------------------------------------

    async def _try_again(self, waiting: HookRetry) -> None:
        event = await event_at(self._dispatcher, self.hook.tenant, waiting.shard, (waiting.sequence, waiting.index))
        if event is None:
            self.progress.waiting.remove(waiting)
            self._give_up(waiting, "it is no longer in the log")
            return
        outcome = await self._attempt(event, waiting.attempts + 1)
        self.progress.waiting.remove(waiting)
        if not outcome.ok:
            self._failed(waiting, outcome)

    async def _attempt(self, event: Event, number: int) -> PostOutcome:
        body = await body_of(self._dispatcher, self.hook, event, self._settings.body_bytes_max)
        headers = signed_headers(self.hook, delivery_id(self.hook, event), str(event.kind), body, self._now(), number)
        outcome = await self._poster.post(self._target, headers, body)
        self._count(outcome)
        return outcome

    def _count(self, outcome: PostOutcome) -> None:
        progress, now = self.progress, self._now()
        self._unnoted += 1
        if outcome.ok:
            progress.delivered += 1
            self._totals.delivered += 1
            progress.consecutive_failures = 0
            progress.last_success_at = round(now * 1000)
            if self._circuit.succeeded():
                log.info("webhook %s: its receiver answers again", self.hook.id)
            return
        progress.failures += 1
        self._totals.failed += 1
        progress.consecutive_failures += 1
        progress.last_failure_at = round(now * 1000)
        progress.last_error = outcome.error
        log.debug("webhook %s: an attempt failed: %s", self.hook.id, outcome.error)
        if self._circuit.failed(self._tick()):
            log.warning(
                "webhook %s: paused for %g s after %d failures in a row: %s",
                self.hook.id,
                self._settings.circuit_open_s,
                progress.consecutive_failures,
                outcome.error,
            )

    def _failed(self, waiting: HookRetry, outcome: PostOutcome) -> None:
        waiting.attempts += 1
        if waiting.attempts >= self._settings.attempts_max:
            self._give_up(waiting, outcome.error)
            return
        waiting.due = self._now() + delay_s(waiting.attempts, self._settings, self._chance)
        self.progress.waiting.append(waiting)

    def _give_up(self, waiting: HookRetry, why: str) -> None:
        self.progress.given_up += 1
        self._totals.given_up += 1
        self._unnoted += 1
        log.warning(
            "webhook %s: gave up event %d.%d.%d after %d attempts: %s",
            self.hook.id,
            waiting.shard,
            waiting.sequence,
            waiting.index,
            waiting.attempts,
            why,
        )

    # --- noting --------------------------------------------------------------------------------------

    def _sum(self) -> int:
        return sum(sequence for sequence, _ in self.progress.positions.values())

    async def _note_if_due(self) -> None:
        idle = self._sum() - self._noted_sum >= IDLE_RECORDS
        late = self._tick() - self._noted_at >= NOTE_S
        if self._unnoted >= NOTE_EVENTS or (late and (self._unnoted or idle)):
            await self._note()

    async def _note(self) -> None:
        self._unnoted, self._noted_at, self._noted_sum = 0, self._tick(), self._sum()
        try:
            await self._store.note(self.hook, self.progress)
            self._noting_fails = False
        except StokerError as error:
            self._unnoted = 1  # tried again later: a crash before that means repetitions, not losses
            if not self._noting_fails:
                log.warning("webhook %s: its progress could not be saved: %s", self.hook.id, error)
            self._noting_fails = True


def signed_headers(hook: Hook, identity: str, event: str, body: bytes, now: float, attempt: int) -> dict[str, str]:
    return {
        SIGNATURE: sign(hook.secret, body, int(now)),
        FLASHQ_SIGNATURE: sign_flashq(hook.secret, body),
        DELIVERY: identity,
        EVENT: event,
        ATTEMPT: str(attempt),
    }


def status_of(progress: HookProgress) -> Status:
    """The status according to the noted progress."""
    return Status(
        delivered=progress.delivered,
        failures=progress.failures,
        consecutive_failures=progress.consecutive_failures,
        given_up=progress.given_up,
        missed=progress.missed,
        last_success_at=progress.last_success_at,
        last_failure_at=progress.last_failure_at,
        last_error=progress.last_error,
        waiting=len(progress.waiting),
        pending=len(progress.waiting),
    )
