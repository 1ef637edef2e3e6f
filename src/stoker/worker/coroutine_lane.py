"""The lane of coroutines: `async` handlers on the worker's event loop.

A slot is a task that runs one job after another, because a task for each job would cost more than most short jobs do.
That is safe because a slot ends as soon as it is no longer clean: when its task was cancelled, or when a handler
changed context variables. Further slots open only when all open ones are waiting, so thousands of jobs that never wait
need one task.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any

from stoker.worker.context import Context, Current, current, is_still
from stoker.worker.errors import SoftTimeout
from stoker.worker.exceptions import ended_by, unwanted
from stoker.worker.handler import Handler
from stoker.worker.injection import WorkerScope
from stoker.worker.lane import (
    STILL_S,
    STUCK_LOOKS,
    JobChunk,
    JobsCompleted,
    JobsHandedBack,
    LaneFlow,
    LaneHost,
    ahead,
    room_for,
)
from stoker.worker.middleware import AsyncCall, async_call

log = logging.getLogger("stoker.worker")

TURN_S = 0.005
"""After this much work the event loop gets a turn, however many jobs are waiting."""
OOPS_MS = 1_000
CLOSE_S = 1.0
"""How long `close` waits for handlers that catch their cancellation; after that they are abandoned."""

Key = tuple[int, int]
"""Token and job id: the same job may come again while a lost delivery of it still runs."""


class FinishedTask:
    """The jobs of one chunk that completed in this turn of the loop."""

    __slots__ = ("ids", "jobs", "results", "seconds", "spent")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.results: list[bytes | None] = []
        self.spent: list[float] = []
        """Seconds for each of the ids."""
        self.jobs = 0
        self.seconds = 0.0


class TaskSlot:
    """A task and the job that it runs."""

    __slots__ = ("chunk", "is_broken_off", "is_struck", "job", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.chunk: JobChunk | None = None
        self.job = 0
        self.is_struck = False
        """The soft timeout of its job has passed; the task is about to be cancelled for it."""
        self.is_broken_off = False


class CoroutineLane:
    """A number of slots, and the jobs that wait for one."""

    def __init__(self, slots: int, scope: WorkerScope, *, prefetch: int | None = None) -> None:
        self.slots = slots
        self._scope = scope
        self._prefetch = prefetch
        self._host: LaneHost | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._line: deque[tuple[JobChunk, int, bytes]] = deque()
        self._open: set[TaskSlot] = set()
        self._jobs: dict[Key, TaskSlot] = {}
        """The running jobs."""
        self._calls: dict[str, AsyncCall] = {}
        self._finished: dict[JobChunk, FinishedTask] = {}
        self._is_noted = False
        self._is_looking = False
        """Whether a call of `_open_more` is scheduled."""
        self._is_yielding = False
        """Whether a slot only waits for its next turn."""
        self._ramp = 1
        self._watch: asyncio.TimerHandle | None = None
        self._seen = self._still = 0
        """How many jobs had begun at the last look, and for how many looks in a row none has."""
        self._begun = 0
        self._flow = LaneFlow()

    @property
    def running(self) -> int:
        return len(self._jobs)

    def room(self, pace_s: float | None) -> int:
        extra = ahead(1, pace_s, self._prefetch)
        if self._prefetch is None:
            extra = min(extra, self._flow.ahead(self._begun))
        return room_for(self.slots, len(self._jobs) + len(self._line), extra)

    async def start(self, host: LaneHost) -> None:
        self._host, self._loop = host, asyncio.get_running_loop()

    def submit(self, chunk: JobChunk) -> None:
        self._line.extend((chunk, job, payload) for job, payload in zip(chunk.ids, chunk.payloads, strict=True))
        if not self._open:
            self._open_slots(1)
        self._look_soon()  # after the slot has taken its job, so that a single job needs no second one

    def interrupt(self, chunk: JobChunk, job: int) -> None:
        slot = self._jobs.get((chunk.token, job))
        if slot is not None and slot.task is not None:
            slot.task.cancel()  # a slot that waits its turn sees the flag by itself

    def hand_back(self) -> None:
        assert self._host is not None
        waiting: dict[JobChunk, list[int]] = {}
        while self._line:
            chunk, job, _ = self._line.popleft()
            waiting.setdefault(chunk, []).append(job)
        for chunk, ids in waiting.items():
            self._host.settle(JobsHandedBack(chunk, ids))

    def break_off(self) -> None:
        self.hand_back()
        for slot in list(self._jobs.values()):
            slot.is_broken_off = True
            if slot.task is not None:
                slot.task.cancel()

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self.break_off()
        tasks = [slot.task for slot in self._open if slot.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

    # --- opening slots ---------------------------------------------------------------------------

    def _open_slots(self, count: int) -> None:
        assert self._loop is not None
        for _ in range(min(count, len(self._line), self.slots - len(self._open))):
            slot = TaskSlot()
            self._open.add(slot)
            slot.task = self._loop.create_task(self._work(slot))

    def _look_soon(self) -> None:
        if not self._is_looking:
            assert self._loop is not None
            self._is_looking = True
            self._loop.call_soon(self._open_more)

    def _open_more(self) -> None:
        """All slots wait and jobs are left: open twice as many slots as the last time."""
        self._is_looking = False
        if self._line and self._watch is None and self._prefetch is None:
            self._keep_watch()
        if not self._line:
            self._ramp = 1
        elif not self._is_yielding and len(self._open) < self.slots:
            self._open_slots(self._ramp)
            self._ramp *= 2
            self._look_soon()

    # --- stuck jobs ------------------------------------------------------------------------------

    def _keep_watch(self) -> None:
        assert self._loop is not None
        self._watch = self._loop.call_later(STILL_S, self._look)

    def _look(self) -> None:
        """Hand back jobs that were fetched ahead and have not begun: the jobs before them turned out to be long."""
        self._watch = None
        if not self._line:
            return
        self._still = self._still + 1 if self._begun == self._seen else 0
        self._seen = self._begun
        if self._still < STUCK_LOOKS:
            self._keep_watch()
            return
        assert self._host is not None
        for queue in {chunk.queue for chunk, _, _ in self._line}:
            self._host.measured(queue, 1, STILL_S * STUCK_LOOKS)  # so that they are not fetched again
        self.hand_back()

    # --- working ---------------------------------------------------------------------------------

    async def _work(self, slot: TaskSlot) -> None:
        """Run one job after another. This is the hot path: a job costs two microseconds besides its handler."""
        try:
            turn_until = time.perf_counter() + TURN_S
            while self._line and await self._next(slot):
                if time.perf_counter() < turn_until:
                    continue
                if self._is_yielding:
                    break  # another slot goes on
                self._is_yielding = True
                await asyncio.sleep(0)
                self._is_yielding = False
                turn_until = time.perf_counter() + TURN_S
        except Exception:
            self._went_wrong(slot)
        finally:
            self._open.discard(slot)
            if self._line:
                self._look_soon()

    def _went_wrong(self, slot: TaskSlot) -> None:
        """An error of the lane, not of the handler: release the job and keep the lane alive."""
        log.exception("a slot of the worker failed while it ran job %s", slot.job)
        if slot.chunk is not None and self._jobs.pop((slot.chunk.token, slot.job), None) is not None:
            assert self._host is not None
            self._host.settle(JobsHandedBack(slot.chunk, (slot.job,), OOPS_MS))

    async def _next(self, slot: TaskSlot) -> bool:
        """Run the first job in line. Returns whether the slot is still clean. Never raises."""
        assert self._host is not None
        chunk, job, payload = self._line.popleft()
        self._begun += 1
        if self._line and not self._is_looking:
            self._look_soon()
        if chunk.flags and job in chunk.flags:
            self._host.settle(unwanted(chunk, job))
            return True
        handler, key = chunk.handler, (chunk.token, job)
        self._jobs[key] = slot
        slot.chunk, slot.job = chunk, job
        here = Current(chunk, job, self._host)
        current.set(here)
        clean = copy_context()
        noted = None
        began = time.perf_counter()
        try:
            args, kwargs = handler.decode(payload, chunk.options.codec)
            if handler.is_bare and not handler.soft_timeout_ms:
                value = await handler.function(*args, **kwargs)
            else:
                value = await self._called(slot, here.get(), args, kwargs)
            result = None if value is None else handler.encode(value)
            noted = self._note(chunk)
            noted.ids.append(job)
            noted.results.append(result)
            noted.spent.append(time.perf_counter() - began)
            if here.context is not None:
                here.context.forget_checkpoint()
        except BaseException as error:
            self._raised(slot, chunk, job, error, time.perf_counter() - began)
        noted = noted or self._note(chunk)
        noted.jobs += 1
        noted.seconds += time.perf_counter() - began
        del self._jobs[key]
        assert slot.task is not None
        return not slot.task.cancelling() and is_still(clean)

    def _called(self, slot: TaskSlot, ctx: Context, args: Any, kwargs: Any) -> Awaitable[Any]:
        """Call a handler that has a context, dependencies or middleware."""
        handler = ctx.handler
        call = self._calls.get(handler.name)
        if call is None:
            call = self._calls[handler.name] = async_call(handler, self._scope)
        work: Any = call(ctx, args, kwargs)
        return self._with_soft_timeout(slot, handler, work) if handler.soft_timeout_ms else work

    def _raised(self, slot: TaskSlot, chunk: JobChunk, job: int, error: BaseException, seconds: float) -> None:
        assert self._host is not None
        if slot.is_broken_off and isinstance(error, asyncio.CancelledError):
            self._host.settle(JobsHandedBack(chunk, (job,)))
        else:
            self._host.settle(ended_by(chunk, job, error, seconds))

    # --- telling ---------------------------------------------------------------------------------

    def _note(self, chunk: JobChunk) -> FinishedTask:
        noted = self._finished.get(chunk)
        if noted is None:
            noted = self._finished[chunk] = FinishedTask()
            if not self._is_noted:
                assert self._loop is not None
                self._is_noted = True
                self._loop.call_soon(self._tell)
        return noted

    def _tell(self) -> None:
        """Settle everything that this turn has completed."""
        assert self._host is not None
        self._is_noted = False
        finished, self._finished = self._finished, {}
        for chunk, noted in finished.items():
            if noted.ids:
                has_results = noted.results.count(None) < len(noted.results)
                is_whole = not has_results and len(noted.ids) == len(chunk.ids)
                ids = chunk.ids if is_whole else noted.ids
                self._host.settle(JobsCompleted(chunk, ids, noted.results if has_results else None, noted.spent))
            self._host.measured(chunk.queue, noted.jobs, noted.seconds)

    # --- soft timeouts ---------------------------------------------------------------------------

    async def _with_soft_timeout(self, slot: TaskSlot, handler: Handler, work: Coroutine[Any, Any, Any]) -> Any:
        assert self._loop is not None
        timer = self._loop.call_later(handler.soft_timeout_ms / 1_000, self._strike, slot)
        try:
            return await interruptible(work, lambda: self._is_struck(slot))
        finally:
            timer.cancel()
            slot.is_struck = False

    def _strike(self, slot: TaskSlot) -> None:
        if slot.task is not None:
            slot.is_struck = True
            slot.task.cancel()

    def _is_struck(self, slot: TaskSlot) -> bool:
        """Whether the soft timeout cancelled the task. If so, undo it; it is raised as `SoftTimeout`."""
        is_struck, slot.is_struck = slot.is_struck, False
        if is_struck and slot.task is not None:
            slot.task.uncancel()
        return is_struck


@coroutine
def interruptible(work: Coroutine[Any, Any, Any], is_struck: Callable[[], bool]) -> Generator[Any, Any, Any]:
    """Run a coroutine inside this task; where the soft timeout cancelled the task, raise `SoftTimeout` in it.

    A handler can catch it, save its state, and raise or return as with any exception.
    """
    raised: BaseException | None = None
    while True:
        try:
            waiting_for = work.send(None) if raised is None else work.throw(raised)
        except StopIteration as end:
            return end.value
        raised = None
        try:
            yield waiting_for
        except asyncio.CancelledError as error:
            raised = SoftTimeout("its soft timeout has passed") if is_struck() else error
        except BaseException as error:
            raised = error
