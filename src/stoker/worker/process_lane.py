"""The lane of processes: handlers in child processes, for work that keeps a core busy.

A child gets its jobs in pieces, short jobs together, and always has the next piece before it finishes the last. A
handler that breaks its process costs that job an attempt and nothing else: the child is replaced, its other jobs are
handed back, and the worker goes on. A job that must stop is stopped by ending its process.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from stoker.model.errors import StokerError
from stoker.wire import native
from stoker.worker.errors import BadHandler
from stoker.worker.handler import Handler
from stoker.worker.lane import (
    STILL_S,
    STUCK_LOOKS,
    JobChunk,
    JobsCompleted,
    JobsHandedBack,
    LaneHost,
    Settlement,
    ahead,
    room_for,
)
from stoker.worker.pace import JobDuration
from stoker.worker.process_backlog import Backlog, ChildPiece, ChunkPart, InHand, tasks_of
from stoker.worker.process_frames import (
    ChildReady,
    Ending,
    FromChild,
    HostAnswer,
    JobsDone,
    Said,
    TakenBack,
    command_in,
)
from stoker.worker.process_handle import Child, how_it_died
from stoker.worker.process_imports import setup_of
from stoker.worker.process_settling import completed, orphaned, raised, unfinished
from stoker.worker.recycling import Recycling

log = logging.getLogger("stoker.worker")

PIECE_S = 0.05
"""A piece is what a child does in this time; the next piece waits beside it."""
PIECE_JOBS_MAX = 500
SHORT_S = 0.05
"""Longer jobs wait in the worker until a child is free; shorter ones may wait in a child."""
NUDGE_LOOKS = 2
"""After this many looks without movement a child is asked for its results, and for jobs that another child could run.
"""
START_S = 60.0
"""How long a child may take for its imports."""
KILL_GRACE_S = 2.0
"""Between the exception in a handler that should stop and killing its process."""
RESTART_S = (0.1, 10.0)
"""The first pause after a child that could not start, and the longest."""


class ProcessLane:
    """A number of child processes, and the jobs that wait for one."""

    def __init__(
        self,
        processes: int,
        handlers: Iterable[Handler],
        *,
        prefetch: int | None = None,
        recycling: Recycling | None = None,
        kill_grace_s: float = KILL_GRACE_S,
    ) -> None:
        self._processes = processes
        self._setup = setup_of(handlers)
        self._prefetch = prefetch
        self._recycling = recycling or Recycling()
        self._kill_grace_s = kill_grace_s
        self._host: LaneHost | None = None
        self._children: list[Child] = []
        self._backlog = Backlog()
        self._pace: dict[str, JobDuration] = {}
        """By handler."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed_starts = 0
        self._is_handing_back = False
        self._is_closing = False
        self._watch: asyncio.TimerHandle | None = None

    # --- what the worker asks --------------------------------------------------------------------

    @property
    def slots(self) -> int:
        return self._processes

    @property
    def running(self) -> int:
        return sum(bool(child.in_hand) for child in self._children)

    def room(self, pace_s: float | None) -> int:
        able = sum(child.is_able for child in self._children)
        in_hand = self._backlog.jobs + sum(len(child.in_hand) for child in self._children)
        # Running in a child, waiting in a child, and the same again on the way: short jobs come many at a time.
        return room_for(able, in_hand, ahead(4 * able, pace_s, self._prefetch)) if able else 0

    async def start(self, host: LaneHost) -> None:
        """Start all children and wait until they have imported the handlers. Raises `BadHandler` if they cannot."""
        self._host = host
        self._setup = msgspec.structs.replace(self._setup, worker=host.worker)
        self._children = [Child(self, self._setup) for _ in range(self._processes)]
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            for child in self._children:
                await child.start()
            async with asyncio.timeout(START_S):
                await self._started
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise BadHandler(
                    f"process workers were not ready after {START_S:g} s: importing the modules of the handlers must "
                    "not wait for anything"
                ) from None
            raise

    def submit(self, chunk: JobChunk) -> None:
        self._wait_in_line(ChildPiece([ChunkPart(chunk, chunk.ids, chunk.payloads)]))

    def submit_together(self, tasks: list[ChunkPart], done: Callable[[], None]) -> None:
        """Run these jobs of one handler in one call; `done` is called after it."""
        self._wait_in_line(ChildPiece(tasks, together=True, done=done))

    def interrupt(self, chunk: JobChunk, job: int) -> None:
        if self._backlog.remove(chunk, job):
            self._settle(unfinished(chunk, (job,)))
            return
        for child in self._children:
            if number := child.number_of(chunk, job):
                if number in child.waiting_numbers():
                    child.take([number])
                if child.is_unwanted(number):
                    self._stop_running(child, child.first_called_with(number))
                return

    def hand_back(self) -> None:
        self._is_handing_back = True
        for task in self._backlog.empty():
            self._settle(unfinished(task.chunk, task.ids))
        for child in self._children:
            if child.board is not None:
                child.board.is_stopping = True
            child.take(child.waiting_numbers())

    def break_off(self) -> None:
        self.hand_back()
        for child in self._children:
            held = child.empty()
            for one in held.values():
                self._settle(unfinished(one.chunk, (one.job,)))
            if held:
                child.kill()

    async def close(self) -> None:
        self._is_closing = True
        if self._watch is not None:
            self._watch.cancel()
        children, self._children = self._children, []
        for child in children:
            child.retire()
        for child in children:
            if child.process is None:
                continue
            try:
                async with asyncio.timeout(self._kill_grace_s):
                    await child.reap()
            except TimeoutError:
                child.kill()
                await child.reap()
            child.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- handing out -----------------------------------------------------------------------------

    def _wait_in_line(self, piece: ChildPiece, *, first: bool = False) -> None:
        self._backlog.add(piece, first=first)
        self._feed()

    def _feed(self) -> None:
        """Give work to the child that has least, while any child may have more."""
        able = [child for child in self._children if child.is_able]
        while self._backlog and able:
            child = min(able, key=lambda one: len(one.in_hand))
            name = self._backlog.handler
            jobs, pace_s = self._piece_jobs(name, len(able)), self._pace_of(name)
            if child.in_hand and (pace_s is None or pace_s > SHORT_S or len(child.in_hand) > jobs):
                break
            child.give(self._backlog.next(jobs))
        if self._watch is None and self._has_waiting():
            self._watch = asyncio.get_running_loop().call_later(STILL_S, self._look)

    def _piece_jobs(self, handler: str, children: int) -> int:
        """Jobs for one piece: a fair share at most, so that no child idles while another has too much."""
        pace_s = self._pace_of(handler)
        if pace_s is None:
            return 1
        return max(1, min(int(PIECE_S / max(pace_s, 1e-7)), PIECE_JOBS_MAX, math.ceil(self._backlog.jobs / children)))

    def _pace_of(self, handler: str) -> float | None:
        pace = self._pace.get(handler)
        return None if pace is None else pace.seconds

    # --- stuck jobs ------------------------------------------------------------------------------

    def _has_waiting(self) -> bool:
        return bool(self._backlog) or any(len(child.in_hand) > 1 for child in self._children)

    def _look(self) -> None:
        """Move jobs that wait in a child behind a long one to another child; if all are stuck, to the queue."""
        self._watch = None
        able = [child for child in self._children if child.is_able]
        idle = [child for child in able if not child.in_hand]
        busy = [child for child in able if child.in_hand and child.look()]
        for child in busy:
            if child.still == NUDGE_LOOKS or (idle and child.still > NUDGE_LOOKS):
                child.take(child.waiting_numbers() if idle else [])
        stuck = [child for child in busy if child.still > STUCK_LOOKS]
        if stuck and len(stuck) == len(able) and self._prefetch is None:
            self._give_back(stuck)
        if self._has_waiting() and not self._is_closing:
            self._watch = asyncio.get_running_loop().call_later(STILL_S, self._look)

    def _give_back(self, stuck: list[Child]) -> None:
        """Release jobs that were fetched ahead because jobs were short, which is no longer true."""
        for child in stuck:
            first = next(iter(child.in_hand.values()))
            self._measured(first.chunk, 1, STILL_S * STUCK_LOOKS)  # so that they are not fetched again
            numbers = child.waiting_numbers()
            child.giving_back.update(numbers)
            child.take(numbers)
        for task in self._backlog.empty():
            self._settle(unfinished(task.chunk, task.ids))

    # --- messages from children ------------------------------------------------------------------

    def heard(self, child: Child, message: FromChild) -> None:
        if isinstance(message, JobsDone):
            self._ended(child, message)
        elif isinstance(message, Said):
            self._said(child, message)
        elif isinstance(message, TakenBack):
            self._taken(child, message)
        else:
            self._is_there(child, message)

    def _is_there(self, child: Child, ready: ChildReady) -> None:
        if ready.broken:
            reasons = "; ".join(f"{name}: {why}" for name, why in ready.broken.items())
            child.problem = f"process workers cannot import their handlers: {reasons}"
            child.kill()
            return
        child.is_ready = True
        self._failed_starts = 0
        if all(one.is_ready for one in self._children) and not self._started.done():
            self._started.set_result(None)
        self._feed()
        if self._host is not None:
            self._host.roomier()

    def _ended(self, child: Child, ended: JobsDone) -> None:
        outcomes = ended.outcomes
        run: list[tuple[InHand, bytes | None, float]] = []
        counted: InHand | None = None
        for number, (outcome, seconds) in enumerate(zip(outcomes, ended.spent, strict=True), ended.first):
            held = child.take_out(number)
            if held is None:
                continue  # settled before, when the worker broke off
            counted = held
            if run and (isinstance(outcome, Ending) or held.chunk is not run[0][0].chunk):
                self._settle([completed(run)])
                run = []
            if isinstance(outcome, Ending):
                self._settle([raised(held, outcome, seconds)])
            else:
                run.append((held, outcome, seconds))
        if run:
            self._settle([completed(run)])
        if counted is not None:
            self._measured(counted.chunk, len(outcomes), spent_in(counted, ended))
        child.jobs += len(outcomes)
        self._look_at(child)
        self._feed()

    def _measured(self, chunk: JobChunk, jobs: int, spent_s: float) -> None:
        assert self._host is not None
        self._host.measured(chunk.queue, jobs, spent_s)
        self._pace.setdefault(chunk.name, JobDuration()).measured(jobs, spent_s)

    def _taken(self, child: Child, taken: TakenBack) -> None:
        again: dict[ChildPiece, list[InHand]] = {}
        for number in taken.numbers:
            held = child.take_out(number)
            if held is None:
                continue
            if self._is_handing_back or number in child.giving_back or held.job in held.chunk.flags:
                self._settle(unfinished(held.chunk, (held.job,)))
            else:
                again.setdefault(held.piece, []).append(held)
        for piece, some in reversed(again.items()):
            tasks = tasks_of(some)
            for one in (
                [ChildPiece(tasks, True)] if piece.together else [ChildPiece([task]) for task in reversed(tasks)]
            ):
                self._wait_in_line(one, first=True)
        self._look_at(child)
        self._feed()

    def _said(self, child: Child, said: Said) -> None:
        assert self._host is not None
        if said.question:
            self._background(self._answer(child, said))
            return
        held = next((held for held in child.in_hand.values() if held.job == said.job), None)
        if held is None:
            return  # settled before
        if said.request:
            self._host.report(held.chunk, held.job, command_in(said))
        else:
            self._host.renew(held.chunk)

    async def _answer(self, child: Child, said: Said) -> None:
        assert self._host is not None
        try:
            reply = await self._host.execute_async(command_in(said))
            child.send(HostAnswer(said.question, native.answered(reply, None, "msgpack")))
        except StokerError as error:
            child.send(HostAnswer(said.question, native.refused(error, None, "msgpack")))

    # --- children that end -----------------------------------------------------------------------

    def _look_at(self, child: Child) -> None:
        """Replace a child that reached a recycling limit: it ends when it has nothing left, and another starts
        meanwhile.
        """
        if not child.is_retiring and (reason := self._recycling.reason(child.jobs, child.pid)):
            log.info("process worker %s is replaced after %s", child.pid, reason)
            child.is_retiring = True
            self._replace()
        if child.is_retiring and not child.in_hand:
            child.retire()

    def died(self, child: Child) -> None:
        if child in self._children:
            self._background(self._bury(child))

    async def _bury(self, child: Child) -> None:
        """Settle the jobs of a child that is gone, and start another one."""
        child.make_sure()
        code = await child.reap()
        if child not in self._children:
            return
        self._children.remove(child)
        culprit, held = child.culprit(), child.empty()
        unsaid = [held.pop(number) for number in list(held) if number <= child.ended]
        is_expected = child.is_retiring or child.interrupted or child.killed_for is not None
        child.close()
        if not child.is_ready:
            self._cannot_start(child.problem or f"a process worker ended before it was ready: {how_it_died(code)}")
        elif not child.is_retiring:
            if not is_expected:
                log.error("a process worker died: %s; it is being replaced", how_it_died(code))
            self._replace()
        for one in unsaid:
            self._settle([JobsCompleted(one.chunk, [one.job])])
        for one in held.values():
            was_running = culprit is not None and (one is culprit or one.is_called_with(culprit))
            self._settle(orphaned(one, was_running, code))
        self._feed()

    def _cannot_start(self, why: str) -> None:
        """A child cannot start: fatal when the worker starts, tried again later, because a deploy may be under way."""
        if not self._started.done():
            self._started.set_exception(BadHandler(why))
        if self._is_closing or self._started.exception() is not None:
            return
        pause = min(RESTART_S[0] * 2**self._failed_starts, RESTART_S[1])
        self._failed_starts += 1
        log.error("%s; trying again in %g s", why, pause)
        if not any(one.is_ready for one in self._children):
            for task in self._backlog.empty():
                self._settle([JobsHandedBack(task.chunk, task.ids, 1_000)])
        self._replace(pause)

    def _replace(self, pause_s: float = 0.0) -> None:
        if not (self._is_closing or self._is_handing_back):
            self._background(self._start_another(pause_s))

    async def _start_another(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        child = Child(self, self._setup)
        self._children.append(child)
        try:
            await child.start()
            if child.board is not None and self._is_handing_back:
                child.board.is_stopping = True
        except OSError as error:
            child.close()
            self._children.remove(child)
            self._cannot_start(f"a process worker cannot be started: {error}")

    # --- jobs that must stop ---------------------------------------------------------------------

    def _stop_running(self, child: Child, number: int) -> None:
        """Raise an exception in its handler and leave time to clean up; then kill the process."""
        if number == child.running:
            child.interrupt(number)
        asyncio.get_running_loop().call_later(self._kill_grace_s, self._kill_if_still, child, number)

    def _kill_if_still(self, child: Child, number: int) -> None:
        if not child.is_gone and number in child.in_hand and child.running == number:
            child.kill(number)

    def _settle(self, settlements: Iterable[Settlement]) -> None:
        assert self._host is not None
        for one in settlements:
            self._host.settle(one)

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def spent_in(held: InHand, ended: JobsDone) -> float:
    """The seconds that a child was busy with a job; jobs of one call share them."""
    return max(ended.spent) if held.piece.together else sum(ended.spent)
