"""The lane of threads: plain handlers, each call in a thread of a pool.

Short jobs are handed over many at a time: a thread draws from a portion until it is empty, and settles its jobs
together. Threads share portions: while one is stuck in a job, others draw from the same portion, and when all are
stuck, jobs that have not begun are handed back. The event loop watches this; threads only draw, call and note.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from stoker.brokers.remote.retrying import be_patient
from stoker.worker.context import Current, current, is_still
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
from stoker.worker.middleware import Call, plain_call

log = logging.getLogger("stoker.worker")

TINY_S = 0.000_2
"""Shorter jobs wait for nothing: a second thread would only get in the way of the first."""
SHARE_S = 0.02
"""How much work of such jobs one thread should have; for more, another one is woken."""
HANDOVER_S = 0.001
"""How long the event loop of an idle worker stands back for the thread that begins a job. Both need the interpreter's
lock; the loop, which goes on to send the next pull, would keep it for longer than the thread takes to wake up.
"""
TELL_S = 0.005
"""How long a thread may delay reporting what it has done."""


class Portion:
    """Jobs of a chunk that any thread may draw from."""

    __slots__ = ("chunk", "items", "seen", "still")

    def __init__(self, chunk: JobChunk) -> None:
        self.chunk = chunk
        self.items: deque[tuple[int, bytes]] = deque(zip(chunk.ids, chunk.payloads, strict=True))
        self.seen = len(self.items)
        """Jobs left at the last look."""
        self.still = 0
        """Looks in a row in which no thread drew from it."""


class Drawing:
    """What one thread did with a portion. The thread appends, the event loop may read."""

    __slots__ = ("chunk", "current", "done", "results", "spent", "told")

    def __init__(self, chunk: JobChunk, host: LaneHost) -> None:
        self.chunk = chunk
        self.current = Current(chunk, 0, host)
        self.done: list[int] = []
        self.results: list[bytes | None] = []
        """At least as long as `done`, like `spent`."""
        self.spent: list[float] = []
        """Seconds for each finished job."""
        self.told = 0
        """How many of `done` have been settled. Settling one twice does no harm."""

    def tell(self, host: LaneHost) -> bool:
        """Settle what is done and not yet reported, if there is anything."""
        told, total = self.told, len(self.done)
        if told == total:
            return False
        self.told = total
        is_whole = not told and total == len(self.chunk.ids)  # drawn by one thread, and so in order
        ids = self.chunk.ids if is_whole else self.done[told:total]
        host.settle(JobsCompleted(self.chunk, ids, shown(self.results[told:total]), self.spent[told:total]))
        return True


class PoolThread:
    """A thread and its current work. The thread writes `drawing`, the event loop `is_left`."""

    __slots__ = ("drawing", "is_left", "thread")

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.drawing: Drawing | None = None
        """None while it has nothing to do."""
        self.is_left = False
        """The lane no longer waits for its job; the thread ends when it comes back."""

    @property
    def is_busy(self) -> bool:
        return self.drawing is not None


class ThreadLane:
    """A number of threads, the portions that they draw from, and a watch."""

    def __init__(self, slots: int, scope: WorkerScope, *, prefetch: int | None = None) -> None:
        self.slots = slots
        self._scope = scope
        self._prefetch = prefetch
        self._host: LaneHost | None = None
        self._tickets: SimpleQueue[Portion | None] = SimpleQueue()
        """Wakes a thread to draw from the portion; None ends a thread."""
        self._seats: list[PoolThread] = []
        self._portions: list[Portion] = []
        self._calls: dict[str, Call] = {}
        self._handover = threading.Lock()
        """Held while the event loop waits for a thread to begin."""
        self._watch: asyncio.TimerHandle | None = None
        self._taken = 0
        """Jobs that were submitted and not handed back."""
        self._flow = LaneFlow()
        self._pace: dict[str, float] = {}
        """Seconds a job, by handler."""

    @property
    def running(self) -> int:
        return sum(seat.is_busy and not seat.is_left for seat in self._seats)

    @property
    def _waiting(self) -> int:
        return sum(len(portion.items) for portion in self._portions)

    def room(self, pace_s: float | None) -> int:
        waiting, extra = self._waiting, ahead(1, pace_s, self._prefetch)
        if self._prefetch is None:
            extra = min(extra, self._flow.ahead(self._taken - waiting))
        return room_for(self.slots, self.running + waiting, extra)

    async def start(self, host: LaneHost) -> None:
        self._host = host

    def submit(self, chunk: JobChunk) -> None:
        portion, is_idle = Portion(chunk), not self.running
        self._taken += len(chunk.ids)
        self._portions = [known for known in self._portions if known.items]
        self._portions.append(portion)
        is_handed_over = is_idle and len(chunk.ids) == 1 and self._handover.acquire(blocking=False)
        self._wake(portion, self._threads_for(chunk))
        if is_handed_over:
            self._stand_back()
        if self._watch is None:  # after the job has begun, which does not need it
            self._watch = asyncio.get_running_loop().call_later(STILL_S, self._look)

    def interrupt(self, chunk: JobChunk, job: int) -> None:
        """A thread cannot be stopped. The handler sees the flag in its context; a thread that stays away for long is
        replaced.
        """
        assert self._host is not None
        if chunk.flags.get(job) != "timeout":
            return
        for seat in self._seats:
            now = seat.drawing
            if now is not None and now.current.job == job and now.chunk is chunk and self._has_spare():
                seat.is_left = True
                self._host.settle(unwanted(chunk, job))

    def hand_back(self) -> None:
        for portion in self._portions:
            self._hand_back(portion)

    def break_off(self) -> None:
        """Running jobs are released, too; what their threads report later is ignored."""
        assert self._host is not None
        self.hand_back()
        self._tell_done()
        for seat in self._seats:
            now = seat.drawing
            if now is not None and now.current.job:
                self._host.settle(JobsHandedBack(now.chunk, (now.current.job,)))

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for _ in self._seats:
            self._tickets.put(None)
        for seat in self._seats:
            if seat.thread is not None and not seat.is_busy:
                await asyncio.to_thread(seat.thread.join, CLOSE_S)

    # --- on the event loop -----------------------------------------------------------------------

    def _threads_for(self, chunk: JobChunk) -> int:
        """How many threads to wake for a new portion: one for each job, or fewer where jobs are short.

        Busy threads come by themselves when they are done; if they take long, `_look` wakes others.
        """
        pace = self._pace.get(chunk.name)
        if pace is None or pace > TINY_S:
            return len(chunk.ids)
        return math.ceil(self._waiting * pace / SHARE_S) - self.running

    def _wake(self, portion: Portion, threads: int) -> None:
        self._seats = [seat for seat in self._seats if seat.is_busy or not seat.is_left]
        seated = sum(not seat.is_left for seat in self._seats)
        idle = seated - self.running - self._tickets.qsize()
        for _ in range(min(threads - max(idle, 0), self.slots - seated)):
            self._seat()
        for _ in range(min(threads, self.slots)):
            self._tickets.put(portion)

    def _stand_back(self) -> None:
        """Let the thread that was woken begin its job before the event loop goes on."""
        if self._handover.acquire(timeout=HANDOVER_S):
            self._end_handover()

    def _end_handover(self) -> None:
        """By a thread that begins, or by the event loop itself: whichever comes first."""
        with suppress(RuntimeError):
            self._handover.release()

    def _seat(self) -> None:
        seat = PoolThread()
        seat.thread = threading.Thread(target=self._work, args=(seat,), name="stoker-worker", daemon=True)
        self._seats.append(seat)
        seat.thread.start()

    def _has_spare(self) -> bool:
        """Idle threads cost memory: there are never more of them than slots."""
        return sum(seat.is_left for seat in self._seats) < self.slots

    def _look(self) -> None:
        """Wake more threads for a portion that does not move, and hand back one that has not moved for long."""
        self._watch = None
        self._portions = [portion for portion in self._portions if portion.items]
        for portion in self._portions:
            left = len(portion.items)
            portion.still = portion.still + 1 if left == portion.seen else 0
            portion.seen = left
            if portion.still and self.running < self.slots:
                self._wake(portion, self.slots - self.running)
            elif portion.still > STUCK_LOOKS and self._prefetch is None:
                self._measured(portion.chunk, 1, STILL_S * STUCK_LOOKS)  # so that they are not fetched again
                self._hand_back(portion)
        self._tell_done()
        if self._portions:
            self._watch = asyncio.get_running_loop().call_later(STILL_S, self._look)

    def _tell_done(self) -> None:
        """Settle the jobs that threads finished before the one that they are in."""
        assert self._host is not None
        for seat in self._seats:
            now = seat.drawing
            if now is not None:
                now.tell(self._host)

    def _hand_back(self, portion: Portion) -> None:
        assert self._host is not None
        taken = []
        while portion.items:
            try:
                taken.append(portion.items.pop()[0])
            except IndexError:
                break
        if taken:
            self._taken -= len(taken)
            self._host.settle(JobsHandedBack(portion.chunk, taken[::-1]))

    # --- in the threads --------------------------------------------------------------------------

    def _work(self, seat: PoolThread) -> None:
        be_patient()
        while (portion := self._tickets.get()) is not None:
            more: Portion | None = portion
            while more is not None and not seat.is_left:
                if more.items:
                    self._draw_in_context(seat, more)
                more = next((other for other in self._portions if other.items), None)
            if seat.is_left:
                return

    def _draw_in_context(self, seat: PoolThread, portion: Portion) -> None:
        """Draw in clean context variables. The thread survives any error."""
        try:
            copy_context().run(self._draw, seat, portion)
        except BaseException:
            log.exception("a thread of the worker failed while it worked on %r", portion.chunk)
            drawing, seat.drawing = seat.drawing, None
            if drawing is not None and self._host is not None:
                drawing.tell(self._host)
                self._host.settle(JobsHandedBack(portion.chunk, (drawing.current.job,), OOPS_MS))

    def _draw(self, seat: PoolThread, portion: Portion) -> None:
        """Work through a portion, together with other threads, or until a handler changes context variables.

        This is the hot path: besides decoding and calling, a job costs less than a microsecond here.
        """
        assert self._host is not None
        host, chunk, handler = self._host, portion.chunk, portion.chunk.handler
        drawing = Drawing(chunk, host)
        here, done, results, spent = drawing.current, drawing.done, drawing.results, drawing.spent
        draw, flags, codec, clock = portion.items.popleft, chunk.flags, chunk.options.codec, time.perf_counter
        decode, encode, function = handler.decode, handler.encode, handler.function
        call = None if handler.is_bare else self._call_of(handler)
        current.set(here)
        clean = copy_context()
        seat.drawing = drawing
        if self._handover.locked():
            self._end_handover()
        began = told_at = now = clock()
        drawn = 0
        while not seat.is_left:
            try:
                here.job, payload = draw()
            except IndexError:
                break  # another thread drew the last one
            drawn += 1
            if flags and here.job in flags:
                host.settle(unwanted(chunk, here.job))
                continue
            try:
                args, kwargs = decode(payload, codec)
                value: Any = function(*args, **kwargs) if call is None else call(here.get(), args, kwargs)
                results.append(None if value is None else encode(value))
                spent.append(clock() - now)
                done.append(here.job)
                if here.context is not None:
                    here.context.forget_checkpoint()
            except BaseException as error:
                host.settle(ended_by(chunk, here.job, error, clock() - now))
            here.context = None
            now = clock()
            if now - told_at > TELL_S:
                told_at = now
                drawing.tell(host)
            if not is_still(clean):
                break
        seat.drawing = None
        if not drawing.tell(host):
            self._say_free(host)
        if drawn and not seat.is_left:
            self._measured(chunk, drawn, clock() - began)

    def _say_free(self, host: LaneHost) -> None:
        """The last job was settled while this thread still counted as busy, so the puller may wait for room."""
        with suppress(RuntimeError):  # the loop is closed: nothing is pulled any more
            host.loop.call_soon_threadsafe(host.roomier)

    def _measured(self, chunk: JobChunk, jobs: int, seconds: float) -> None:
        assert self._host is not None
        pace, known = seconds / jobs, self._pace.get(chunk.name)
        self._pace[chunk.name] = pace if known is None else known + min(0.5, jobs / 20) * (pace - known)
        self._host.measured(chunk.queue, jobs, seconds)

    def _call_of(self, handler: Handler) -> Call:
        call = self._calls.get(handler.name)
        if call is None:
            assert self._host is not None
            host = self._host
            call = self._calls[handler.name] = plain_call(handler, self._scope, lambda: host.loop)
        return call


CLOSE_S = 1.0
OOPS_MS = 1_000


def shown(results: list[bytes | None]) -> list[bytes | None] | None:
    """None where there is no result at all, which is cheaper to send."""
    return None if results.count(None) == len(results) else results
