"""The lane of a batch handler: it collects jobs across pulls until there are enough for one call, or time is up.

The worker renews the leases of collected jobs like those of running ones. A call takes one slot: a task, a thread or a
child process. While all slots are taken, the next call keeps growing.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

from stoker.worker.batches import BatchContext, Ending, Merged, call_together
from stoker.worker.context import Context, Current, current
from stoker.worker.errors import BadHandler, SoftTimeout
from stoker.worker.exceptions import ended_by, unwanted
from stoker.worker.handler import Batch, Handler
from stoker.worker.injection import WorkerScope
from stoker.worker.lane import JobChunk, JobsCompleted, JobsHandedBack, LaneHost, ahead, room_for
from stoker.worker.middleware import async_call, plain_call
from stoker.worker.process_backlog import ChunkPart
from stoker.worker.process_lane import ProcessLane

CLOSE_S = 1.0


class BatchCall:
    """One call of the handler, while it runs."""

    __slots__ = ("is_left", "task", "tasks")

    def __init__(self, tasks: list[ChunkPart]) -> None:
        self.tasks = tasks
        self.task: asyncio.Task[None] | None = None
        self.is_left = False
        """The lane has given the call up: its outcome is ignored."""

    @property
    def jobs(self) -> int:
        return sum(len(task.ids) for task in self.tasks)

    def has(self, chunk: JobChunk, job: int) -> bool:
        return any(task.chunk is chunk and job in task.ids for task in self.tasks)

    def is_unwanted(self) -> bool:
        """Whether no job in it is wanted any more."""
        return all(job in task.chunk.flags for task in self.tasks for job in task.ids)


class BatchLane:
    """The jobs of one batch handler; `slots` is how many calls run at the same time."""

    def __init__(
        self,
        handler: Handler,
        slots: int,
        scope: WorkerScope,
        *,
        prefetch: int | None = None,
        processes: ProcessLane | None = None,
    ) -> None:
        if handler.batch is None:
            raise BadHandler(
                f"{handler.name} is not a batch handler: expected a Batch, for example batch=Batch(size=100)"
            )
        if handler.kind == "process" and processes is None:
            raise BadHandler(f"{handler.name} runs in processes, but this worker has no process lane")
        self._handler, self._batch = handler, handler.batch
        self._scope = scope
        self._prefetch = prefetch
        self._processes = processes
        self._calls_max = slots
        self._host: LaneHost | None = None
        self._collected: deque[tuple[ChunkPart, float]] = deque()
        """Each job with the time until which it may wait."""
        self._collected_jobs = 0
        self._calls: set[BatchCall] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._crew = Crew(slots)
        self._is_handing_back = False

    @property
    def slots(self) -> int:
        return self._calls_max * self._batch.size

    @property
    def running(self) -> int:
        return sum(call.jobs for call in self._calls)

    def room(self, pace_s: float | None) -> int:
        return room_for(self.slots, self.running + self._collected_jobs, ahead(1, pace_s, self._prefetch))

    async def start(self, host: LaneHost) -> None:
        self._host = host

    def submit(self, chunk: JobChunk) -> None:
        until = time.monotonic() + self._batch.max_wait_ms / 1_000
        self._collected.append((ChunkPart(chunk, chunk.ids, chunk.payloads), until))
        self._collected_jobs += len(chunk.ids)
        self._pump()

    def interrupt(self, chunk: JobChunk, job: int) -> None:
        """A call is stopped when none of its jobs is wanted any more; a job that is still being collected leaves at
        once.
        """
        assert self._host is not None
        for task, _ in self._collected:
            if task.chunk is chunk and job in task.ids:
                task.remove(job)
                self._collected_jobs -= 1
                self._host.settle(unwanted(chunk, job))
                self._collected = deque(item for item in self._collected if item[0].ids)
                return
        for call in self._calls:
            if call.has(chunk, job):
                if self._processes is not None and self._handler.kind == "process":
                    self._processes.interrupt(chunk, job)
                elif call.task is not None and call.is_unwanted():
                    call.task.cancel()

    def hand_back(self) -> None:
        assert self._host is not None
        self._is_handing_back = True
        for task, _ in self._collected:
            self._host.settle(JobsHandedBack(task.chunk, task.ids))
        self._collected.clear()
        self._collected_jobs = 0

    def break_off(self) -> None:
        assert self._host is not None
        self.hand_back()
        for call in list(self._calls):
            call.is_left = True
            if call.task is not None:
                call.task.cancel()
            if self._handler.kind != "process":  # the process lane is told the same and stops its own
                for task in call.tasks:
                    self._host.settle(JobsHandedBack(task.chunk, task.ids))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = [call.task for call in self._calls if call.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        self._crew.close()

    # --- collecting ------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin calls while there is a free slot and enough jobs for one; else look again when the wait is over."""
        while self._collected and len(self._calls) < self._calls_max and not self._is_handing_back:
            wait_s = self._collected[0][1] - time.monotonic()
            if wait_s > 0 and not self._is_enough():
                self._look_again(wait_s)
                return
            self._begin(self._cut())

    def _is_enough(self) -> bool:
        if self._collected_jobs >= self._batch.size:
            return True
        most = self._batch.bytes_max
        return bool(most) and sum(len(payload) for task, _ in self._collected for payload in task.payloads) >= most

    def _cut(self) -> list[ChunkPart]:
        """Cut off the next call: up to the batch's size and bytes, but at least one job."""
        tasks: list[ChunkPart] = []
        jobs, size = self._batch.size, 0
        while jobs and self._collected:
            task, until = self._collected.popleft()
            count = min(jobs, len(task.ids))
            if self._batch.bytes_max:
                count, size = fitting(task.payloads[:count], size, self._batch, is_first=not tasks)
            if not count:
                self._collected.appendleft((task, until))
                break
            head, rest = task.split(count)
            tasks.append(head)
            jobs -= count
            if rest is not None:
                self._collected.appendleft((rest, until))
                break
        self._collected_jobs -= sum(len(task.ids) for task in tasks)
        return tasks

    def _look_again(self, after_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(after_s, self._pump)

    # --- calling ---------------------------------------------------------------------------------

    def _begin(self, tasks: list[ChunkPart]) -> None:
        call = BatchCall(tasks)
        self._calls.add(call)
        if self._handler.kind == "process":
            assert self._processes is not None
            self._processes.submit_together(tasks, lambda: self._over(call))
        elif self._handler.kind == "async":
            call.task = asyncio.get_running_loop().create_task(self._run_async(call))
        else:
            loop = asyncio.get_running_loop()
            self._crew.do(lambda: self._run_plain(call, loop))

    def _over(self, call: BatchCall) -> None:
        self._calls.discard(call)
        self._pump()

    async def _run_async(self, call: BatchCall) -> None:
        began = time.monotonic()
        handler, here = self._handler, self._current(call, began)
        current.set(here)
        merged = Merged(handler, payloads_of(call.tasks))
        limit = asyncio.timeout(handler.soft_timeout_ms / 1_000 if handler.soft_timeout_ms else None)
        try:
            if merged.good:
                async with limit:
                    value = await self._async_call(here, merged.args, merged.kwargs)
                merged.returned(value)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                error = SoftTimeout(f"the handler runs for more than {handler.soft_timeout_ms} ms")
            merged.raised(error)
        except asyncio.CancelledError as error:
            self._settle_cancelled(call, error)
            self._over(call)
            return
        self._settle(call, here, merged.endings, time.monotonic() - began)
        self._over(call)

    def _async_call(self, here: Current, args: list[list[Any]], kwargs: dict[str, list[Any]]) -> Any:
        handler = self._handler
        if handler.is_bare:
            return handler.function(*args, **kwargs)
        return async_call(handler, self._scope)(here.get(), args, kwargs)

    def _plain_call(self, here: Current, args: list[list[Any]], kwargs: dict[str, list[Any]]) -> Any:
        handler, host = self._handler, here.host
        if handler.is_bare:
            return handler.function(*args, **kwargs)
        return plain_call(handler, self._scope, lambda: host.loop)(here.get(), args, kwargs)

    def _run_plain(self, call: BatchCall, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in a thread of the crew."""
        began = time.monotonic()
        here = self._current(call, began)
        current.set(here)
        endings = call_together(
            self._handler, payloads_of(call.tasks), lambda args, kwargs: self._plain_call(here, args, kwargs)
        )
        if not call.is_left:
            self._settle(call, here, endings, time.monotonic() - began)
        try:
            loop.call_soon_threadsafe(self._over, call)
        except RuntimeError:
            pass  # the worker has ended meanwhile

    def _current(self, call: BatchCall, began: float) -> Current:
        """What `current_job()` finds during the call. Contexts of single jobs are made only for handlers that can ask
        for them.
        """
        assert self._host is not None
        host, first = self._host, call.tasks[0]
        here = Current(first.chunk, first.ids[0], host)
        here.together = [job for task in call.tasks for job in task.ids]
        if not self._handler.is_bare:
            jobs = [Context(task.chunk, job, host, began) for task in call.tasks for job in task.ids]
            here.context = BatchContext(jobs, host, began)
        return here

    # --- settling --------------------------------------------------------------------------------

    def _settle(self, call: BatchCall, here: Current, endings: list[Ending], seconds: float) -> None:
        assert self._host is not None
        at = 0
        contexts: Sequence[Context] = here.context.jobs if isinstance(here.context, BatchContext) else ()
        for context, ending in zip(contexts, endings, strict=False):
            if not isinstance(ending, Exception):
                context.forget_checkpoint()
        for task in call.tasks:
            self._settle_task(task, endings[at : at + len(task.ids)], seconds)
            at += len(task.ids)
        self._host.measured(call.tasks[0].chunk.queue, at, seconds)

    def _settle_task(self, task: ChunkPart, endings: list[Ending], seconds: float) -> None:
        assert self._host is not None
        if endings.count(None) == len(endings):
            self._host.settle(JobsCompleted(task.chunk, task.ids, None, [seconds] * len(task.ids)))
            return
        done: list[int] = []
        results: list[bytes | None] = []
        for job, ending in zip(task.ids, endings, strict=True):
            if isinstance(ending, Exception):
                self._host.settle(ended_by(task.chunk, job, ending, seconds))
            else:
                done.append(job)
                results.append(ending)
        if done:
            has_results = results.count(None) < len(results)
            self._host.settle(JobsCompleted(task.chunk, done, results if has_results else None, [seconds] * len(done)))

    def _settle_cancelled(self, call: BatchCall, error: asyncio.CancelledError) -> None:
        """The call was stopped because none of its jobs is wanted, or because the worker stops."""
        assert self._host is not None
        if call.is_left:
            return
        for task in call.tasks:
            for job in task.ids:
                if job in task.chunk.flags:
                    self._host.settle(unwanted(task.chunk, job))
                else:
                    self._host.settle(ended_by(task.chunk, job, error))


def payloads_of(tasks: list[ChunkPart]) -> list[tuple[Sequence[bytes], Any]]:
    return [(task.payloads, task.chunk.options.codec) for task in tasks]


def fitting(payloads: Sequence[bytes], size: int, batch: Batch, *, is_first: bool) -> tuple[int, int]:
    """How many more payloads fit into a call that has `size` bytes, and its bytes with them."""
    for count, payload in enumerate(payloads):
        if size + len(payload) > batch.bytes_max and not (is_first and count == 0):
            return count, size
        size += len(payload)
    return len(payloads), size


class Crew:
    """Threads for calls. They are daemons, so that a handler that never returns cannot keep the process alive."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads: list[Thread] = []
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._unfinished = 0

    def do(self, work: Callable[[], None]) -> None:
        if len(self._threads) < self._most:
            thread = Thread(target=self._run, name="stoker-batch", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(work)

    def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
