"""The lane of coroutines: `async` handlers as tasks on the worker's event loop.

A job is a task of its own, with a context of its own; what it comes to is noted by the task itself, so that thousands
of short jobs cost one settlement a turn of the loop. Jobs that wait for a slot are only entries in a line.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

from stoker.worker.calling import AsyncCall, async_call
from stoker.worker.context import Current, current
from stoker.worker.ending import ended_by, unwanted
from stoker.worker.errors import SoftTimeout
from stoker.worker.handler import Handler
from stoker.worker.injection import WorkerScope
from stoker.worker.lane import STUCK_S, Chunk, Done, Host, Released, ahead, room_for

Key = tuple[int, int]
"""Token and id: the same job may come again while a lost delivery of it is still running."""


class Finished:
    """What a turn of the loop completed of one chunk."""

    __slots__ = ("ids", "results")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.results: list[bytes | None] = []


class CoroutineLane:
    """Some slots, the tasks in them, and the jobs that wait for one."""

    def __init__(self, slots: int, scope: WorkerScope, *, prefetch: int | None = None) -> None:
        self.slots = slots
        self._scope = scope
        self._prefetch = prefetch
        self._host: Host | None = None
        self._line: deque[tuple[Chunk, int, bytes]] = deque()
        self._tasks: dict[Key, tuple[Chunk, asyncio.Task[None]]] = {}
        self._calls: dict[str, AsyncCall] = {}
        self._finished: dict[Chunk, Finished] = {}
        self._spent: dict[str, tuple[int, float]] = {}
        self._soft: set[Key] = set()
        """Those that are being interrupted by their soft timeout."""
        self._broken_off: set[Key] = set()
        self._is_noted = False
        self._watch: asyncio.TimerHandle | None = None
        self._seen = 0
        """How many jobs had begun at the last look."""
        self._begun = 0

    @property
    def running(self) -> int:
        return len(self._tasks)

    def room(self, pace_s: float | None) -> int:
        return room_for(self.slots, len(self._tasks) + len(self._line), ahead(1, pace_s, self._prefetch))

    async def start(self, host: Host) -> None:
        self._host = host

    def submit(self, chunk: Chunk) -> None:
        self._line.extend((chunk, job, payload) for job, payload in zip(chunk.ids, chunk.payloads, strict=True))
        self._fill()
        if self._line and self._watch is None and self._prefetch is None:
            self._keep_watch()

    def interrupt(self, chunk: Chunk, job: int) -> None:
        self._cancel((chunk.token, job), chunk)  # one that waits in line is looked at when its turn comes

    def hand_back(self) -> None:
        assert self._host is not None
        line, self._line = self._line, deque()
        for chunk, ids in by_chunk(line).items():
            self._host.settle(Released(chunk, ids))

    def break_off(self) -> None:
        self.hand_back()
        for key, (chunk, _) in list(self._tasks.items()):
            self._broken_off.add(key)
            self._cancel(key, chunk)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self.break_off()
        tasks = [task for _, task in self._tasks.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)

    # --- running ---------------------------------------------------------------------------------

    def _fill(self) -> None:
        """A task for each free slot and waiting job."""
        line, tasks, loop = self._line, self._tasks, asyncio.get_running_loop()
        while line and len(tasks) < self.slots:
            chunk, job, payload = line.popleft()
            self._begun += 1
            if chunk.flags and job in chunk.flags:
                self._settle(unwanted(chunk, job))
                continue
            tasks[(chunk.token, job)] = chunk, loop.create_task(self._one(chunk, job, payload))

    def _keep_watch(self) -> None:
        self._seen = self._begun
        self._watch = asyncio.get_running_loop().call_later(STUCK_S, self._look)

    def _look(self) -> None:
        """Hand back what was fetched ahead and has not moved: the jobs before it turned out to be long."""
        self._watch = None
        if not self._line:
            return
        if self._begun == self._seen:
            assert self._host is not None
            for queue in {chunk.queue for chunk, _, _ in self._line}:
                self._host.measured(queue, 1, STUCK_S)  # so that they are not fetched again
            self.hand_back()
        else:
            self._keep_watch()

    async def _one(self, chunk: Chunk, job: int, payload: bytes) -> None:
        """One job from its payload to its end. Nothing that is raised here leaves."""
        handler, key = chunk.handler, (chunk.token, job)
        assert self._host is not None
        here = Current(chunk, job, self._host)
        current.set(here)
        timer = self._soft_timer(handler, key) if handler.soft_timeout_ms else None
        began = time.perf_counter()
        try:
            args, kwargs = handler.decode(payload, chunk.options.codec)
            if handler.is_bare:
                work = handler.function(*args, **kwargs)
            else:
                work = self._call_of(handler)(here.get(), args, kwargs)
            if timer is not None:
                work = interruptible(work, lambda: self._is_struck(key))
            value = await work
            result = None if value is None else handler.encode(value)
        except BaseException as error:
            self._raised(chunk, job, error)
        else:
            noted = self._finished.get(chunk)
            if noted is None:
                noted = self._finished[chunk] = Finished()
            noted.ids.append(job)
            noted.results.append(result)
            if here.context is not None:
                here.context.forget_checkpoint()
        if timer is not None:
            timer.cancel()
            self._soft.discard(key)
        del self._tasks[key]
        jobs, seconds = self._spent.get(chunk.queue, (0, 0.0))
        self._spent[chunk.queue] = jobs + 1, seconds + time.perf_counter() - began
        if not self._is_noted:
            self._is_noted = True
            asyncio.get_running_loop().call_soon(self._tell)
        if self._line:
            self._fill()

    def _raised(self, chunk: Chunk, job: int, error: BaseException) -> None:
        key = chunk.token, job
        if key in self._broken_off and isinstance(error, asyncio.CancelledError):
            self._settle(Released(chunk, (job,)))
        else:
            self._settle(ended_by(chunk, job, error))
        self._broken_off.discard(key)

    def _cancel(self, key: Key, chunk: Chunk) -> None:
        if key not in self._tasks:
            return
        task = self._tasks[key][1]

        def gone(_: "asyncio.Task[None]") -> None:
            """A task that is cancelled before its first step never runs, and tells nothing."""
            if self._tasks.get(key, (None, None))[1] is task:
                del self._tasks[key]
                self._raised(chunk, key[1], asyncio.CancelledError())
                self._fill()

        task.add_done_callback(gone)
        task.cancel()

    def _call_of(self, handler: Handler) -> AsyncCall:
        call = self._calls.get(handler.name)
        if call is None:
            call = self._calls[handler.name] = async_call(handler, self._scope)
        return call

    def _settle(self, settlement: Any) -> None:
        assert self._host is not None
        self._host.settle(settlement)

    def _tell(self) -> None:
        """Everything that this turn completed."""
        assert self._host is not None
        self._is_noted = False
        finished, self._finished = self._finished, {}
        spent, self._spent = self._spent, {}
        for chunk, noted in finished.items():
            is_whole = len(noted.ids) == len(chunk.ids)
            in_order = is_whole and noted.results.count(None) == len(noted.results)
            if in_order:
                self._host.settle(Done(chunk, chunk.ids))
            else:
                has_results = noted.results.count(None) < len(noted.results)
                self._host.settle(Done(chunk, noted.ids, noted.results if has_results else None))
        for queue, (jobs, seconds) in spent.items():
            self._host.measured(queue, jobs, seconds)

    # --- soft timeouts ---------------------------------------------------------------------------

    def _soft_timer(self, handler: Handler, key: Key) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(handler.soft_timeout_ms / 1_000, self._strike, key)

    def _strike(self, key: Key) -> None:
        if key in self._tasks:
            self._soft.add(key)
            self._tasks[key][1].cancel()

    def _is_struck(self, key: Key) -> bool:
        """Whether it is the soft timeout that cancelled the task: then that is undone, and raised as what it is."""
        if key not in self._soft:
            return False
        self._soft.discard(key)
        self._tasks[key][1].uncancel()
        return True


CLOSE_S = 1.0
"""For tasks that catch their cancellation: whoever is not done by then is left behind."""


@coroutine
def interruptible(work: Coroutine[Any, Any, Any], is_struck: Callable[[], bool]) -> Generator[Any, Any, Any]:
    """Run a coroutine inside this task, with `SoftTimeout` raised in it where the task was cancelled for that.

    A handler can catch it, save what it has, and raise or return, as with any exception.
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


def by_chunk(line: deque[tuple[Chunk, int, bytes]]) -> dict[Chunk, list[int]]:
    found: dict[Chunk, list[int]] = {}
    for chunk, job, _ in line:
        found.setdefault(chunk, []).append(job)
    return found
