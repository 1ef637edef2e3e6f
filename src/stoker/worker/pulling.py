"""Pulls jobs, only as many as there is room for. Pulls wait at the queue, so a job that comes to an idle worker starts
one round trip later.

One pull is under way at a time, over all queues with room. It is broken off when a queue that it does not name gets
room, through a finished job or a token of its rate limit; jobs that it would have brought go back. A queue that cannot
be reached is tried again with growing pauses.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from stoker.model import commands as c
from stoker.model.errors import Closed, LimitExceeded, Refused, StokerError
from stoker.model.replies import Delivery
from stoker.worker.health import Pulse
from stoker.worker.held_jobs import HeldJobs
from stoker.worker.queues import PULL_JOBS_MAX, NextPull, Roster

log = logging.getLogger("stoker.worker")

R = TypeVar("R")

UNSETTLED_MAX = 50_000
"""Jobs whose end is not confirmed; beyond this many no new jobs are pulled."""
IMPATIENT_S = 0.25
"""How long to wait for the answer of a pull that should not wait."""
WAITS_S = 0.05
"""A pull without an answer for this long is waiting for jobs, not just on its way."""
AGAIN_S = 0.005
"""Between two looks for jobs that a running handler has pushed, where no pull may wait."""
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0
BROKEN_OFF = Delivery()
"""Stands for the answer of a pull that the worker gave up."""


class FirstTask(NamedTuple):
    """Work that a worker does before its first pull. Tried again, like a pull, if the queue cannot be reached."""

    doing: str
    """A verb for the log, like `pulling`."""
    run: Callable[[], Coroutine[Any, Any, None]]


class Puller:
    """The pulls of one worker."""

    def __init__(
        self,
        execute: Callable[[c.Command[Any]], Awaitable[Any]],
        dispatch: Callable[[Delivery], None],
        roster: Roster,
        held_jobs: HeldJobs,
        worker: str,
        poll_ms: int,
    ) -> None:
        self._execute, self._dispatch = execute, dispatch
        self._roster, self._held_jobs = roster, held_jobs
        self._worker, self._poll_ms = worker, poll_ms
        self._room = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        """The task that pulls, while it waits for an answer that may be broken off."""
        self._is_broken_off = False
        self._plan: NextPull | None = None
        self._polled_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._token_timer: asyncio.TimerHandle | None = None
        """Set while a pull waits without a queue whose rate limit has no token."""
        self._jobs_max = PULL_JOBS_MAX
        self._is_over = False
        self.answered = asyncio.Event()
        """Set when the first pull was answered."""
        self.first: FirstTask | None = None
        self._gave_up = False
        """Whether the last pull was not answered in its short time."""
        self.pulse = Pulse()

    def freed(self) -> None:
        """There may be room again."""
        self._room.set()
        if self._plan is not None and self._plan.waits and len(self._plan.queues) < len(self._roster.lines):
            self.reconsider()

    def reconsider(self) -> None:
        """Break off a pull that waits without a queue that got room, or that asks for many jobs which turn out to be
        slow.

        A pull that was just sent stays: its answer is probably on the way, and its jobs would have to go back.
        """
        if self._task is None or self._plan is None or not self._is_outdated(self._plan):
            return
        age_s = time.monotonic() - self._polled_at
        if age_s >= WAITS_S:
            self._break_off()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAITS_S - age_s, self._reconsider_again)

    def _reconsider_again(self) -> None:
        self._timer = None
        self.reconsider()

    def _watch_tokens(self, plan: NextPull) -> None:
        """While a pull waits without a queue that has used up its rate, look again when the next token is there."""
        wait_s = self._roster.next_token_s() if len(plan.queues) < len(self._roster.lines) else None
        if wait_s is not None:
            self._token_timer = asyncio.get_running_loop().call_later(wait_s, self._token_came, plan)

    def _token_came(self, plan: NextPull) -> None:
        self.reconsider()
        self._watch_tokens(plan)  # timers may fire a moment early, and other queues wait for tokens, too

    def _is_outdated(self, plan: NextPull) -> bool:
        wanted = self._next(patient=True)
        if wanted is None:
            return True
        return 2 * wanted.count < plan.count or (plan.waits and not set(wanted.queues) <= set(plan.queues))

    def stop(self) -> None:
        """Pull no more."""
        self._is_over = True
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()
        self._break_off()

    def _break_off(self) -> None:
        """End what `_breakable` waits for."""
        if self._task is not None and not self._is_broken_off:
            self._is_broken_off = True
            self._task.cancel()

    async def _breakable(self, work: Awaitable[R]) -> R | None:
        """Wait for something in this task, without one of its own: None if it was broken off.

        A broker whose caller is cancelled hands back the jobs of an answer that is on its way.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        try:
            return await work
        except asyncio.CancelledError:
            if not self._is_broken_off or task.cancelling() > 1:
                raise
            return None
        finally:
            self._task = None
            if self._is_broken_off:
                self._is_broken_off = False
                task.uncancel()

    def _next(self, *, patient: bool) -> NextPull | None:
        room = UNSETTLED_MAX - self._held_jobs.unsettled
        return None if room <= 0 else self._roster.plan(self._held_jobs.running, room, patient=patient)

    async def run(self) -> None:
        """Pull until stopped. Raises errors that another try will not cure."""
        patient, pause = False, PAUSE_S
        while not self._is_over:
            self._room.clear()
            plan = self._next(patient=patient)
            if plan is None:
                patient = False
                await self._wait_for_room()
                continue
            try:
                if self.first is not None:
                    await self._do_first(self.first)
                    continue
                delivery = await self._pull(plan, 1 if self._is_hasty(plan) else self._poll_ms)
            except LimitExceeded as error:
                self._ask_for_less(plan, error)
                continue
            except StokerError as error:
                self._failed(error, pause)
                await self._nap(pause)
                pause = min(2 * pause, PAUSE_S_MAX)
                continue
            pause = PAUSE_S
            patient = not delivery.runs
            if delivery.runs:
                self._dispatch(delivery)
                await asyncio.sleep(0)  # its handlers begin, and then comes all that can wait
            self._took(plan, delivery)

    def _is_hasty(self, plan: NextPull) -> bool:
        """Whether the pull should not wait. True for the first pull, which shows whether the queue can be reached, and
        for pulls that do not name all queues with room. False after a pull that was given up: a slow server may take
        longer to answer.
        """
        return not self._gave_up and not (plan.waits and self.answered.is_set())

    async def _do_first(self, task: FirstTask) -> None:
        """Do the task once, and again only if it fails; stops when the worker stops."""

        async def done() -> bool:
            await task.run()
            return True

        if await self._breakable(done()):
            self.first = None

    async def run_until_empty(self) -> None:
        """Pull without waiting until nothing is in hand and no queue has anything."""
        if self.first is not None:
            await self._do_first(self.first)
        while not self._is_over:
            self._room.clear()
            plan = self._next(patient=True)
            if plan is None:
                await self._wait_for_room()
                continue
            is_complete = len(plan.queues) == len(self._roster.lines)
            try:
                delivery = await self._pull(plan, 0)
            except LimitExceeded as error:
                self._ask_for_less(plan, error)
                continue
            if delivery.runs:
                self._dispatch(delivery)
            self._took(plan, delivery)
            if not delivery:
                if self._held_jobs.is_empty and is_complete:
                    return
                await self._wait_for_room(AGAIN_S)

    async def _pull(self, plan: NextPull, wait_ms: int) -> Delivery:
        command = c.Pull(plan.queues, min(plan.count, self._jobs_max), wait_ms, self._worker)
        self._plan, self._polled_at = plan, time.monotonic()
        self.pulse.began()
        if wait_ms > 1:
            self._watch_tokens(plan)
        try:
            asked: Awaitable[Delivery] = self._hurried(command) if wait_ms == 1 else self._execute(command)
            delivery = await self._breakable(asked)
        except TimeoutError:
            self._gave_up = True
            return BROKEN_OFF
        finally:
            self._plan = None
            if self._token_timer is not None:
                self._token_timer.cancel()
                self._token_timer = None
        return BROKEN_OFF if delivery is None else delivery

    async def _hurried(self, command: c.Pull) -> Delivery:
        """A pull that should not wait."""
        async with asyncio.timeout(IMPATIENT_S):
            delivery: Delivery = await self._execute(command)
            return delivery

    def _took(self, plan: NextPull, delivery: Delivery) -> None:
        """Note what a pull has brought."""
        if delivery is BROKEN_OFF:
            return
        self.pulse.answered()
        self.answered.set()
        self._gave_up = False
        if not delivery.runs:
            return
        jobs: dict[str, int] = {}
        for run in delivery.runs:
            jobs[run.queue] = jobs.get(run.queue, 0) + len(run.ids)
        self._roster.delivered(plan.queues, jobs)

    async def _wait_for_room(self, wait_s: float | None = None) -> None:
        """Wait until handlers have finished something, or a rate limit lets more through."""
        try:
            async with asyncio.timeout(wait_s or self._roster.next_token_s()):
                await self._room.wait()
        except TimeoutError:
            pass

    async def _nap(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s * random.uniform(0.5, 1.0)):
                while not self._is_over:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            pass

    def _ask_for_less(self, plan: NextPull, error: LimitExceeded) -> None:
        """Ask for fewer jobs: the server's own limit is lower."""
        asked = min(plan.count, self._jobs_max)
        if asked == 1:
            raise error
        self._jobs_max = asked // 2

    def _failed(self, error: StokerError, pause_s: float) -> None:
        """A refusal of the very first pull is a mistake in the setup and is raised. Later it may be a token that
        changed, and is tried again.
        """
        self.pulse.failed(error)
        if isinstance(error, Closed) or (isinstance(error, Refused) and not self.answered.is_set()):
            raise error
        doing = "pulling" if self.first is None else self.first.doing
        log.warning("%s failed, trying again in %.1f s: %s (%s)", doing, pause_s, error, error.code)
