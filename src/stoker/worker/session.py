"""One run of a worker on one event loop: it pulls, lets lanes work, settles, renews leases, and ends in good order.

Lanes and contexts see it as their `Host`. `worker.py` has its configuration and its stopping.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from stoker.brokers.contract import Broker
from stoker.model import commands as c
from stoker.model.replies import Delivery, Run
from stoker.worker.handler import Handler
from stoker.worker.handler_lookup import HandlerLookup
from stoker.worker.held_jobs import HeldJobs
from stoker.worker.injection import WorkerScope
from stoker.worker.joblog import JobLog
from stoker.worker.lane import JobChunk, JobFailure, JobsHandedBack, Lane, Settlement
from stoker.worker.leases import LeaseKeeper
from stoker.worker.log_fields import fields_of
from stoker.worker.outcomes import DEAD, Failure
from stoker.worker.pace import HandlerRateLimit
from stoker.worker.pulling import FirstTask, Puller
from stoker.worker.queues import QueueLine, QueueSettings, Roster
from stoker.worker.settle_commands import JobReport
from stoker.worker.settling import Settler

log = logging.getLogger("stoker.worker")

R = TypeVar("R")

TIMEOUT_GRACE_S = 0.1
"""The worker counts a job as timed out this much later than the queue, whose clock decides."""
SETTLE_S = 5.0
"""How long an ending worker waits for its last settlements to be confirmed."""
OOPS_MS = 1_000


class WorkerRun:
    """A worker at work."""

    def __init__(
        self,
        broker: Broker,
        tenant: str,
        directory: HandlerLookup,
        lanes: Mapping[str, Lane],
        lane_of: Mapping[str, Lane],
        queues: Mapping[str, QueueSettings],
        scope: WorkerScope,
        worker: str,
        poll_ms: int,
        first: FirstTask | None = None,
        *,
        log_jobs: bool = False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.stopping = False
        self.worker = worker
        self._said = JobLog(worker, every=log_jobs)
        self._broker, self._tenant = broker, tenant
        self._directory, self._lanes, self._lane_of = directory, lanes, lane_of
        self._scope = scope
        self.held_jobs = HeldJobs()
        self._buckets = {
            handler.name: HandlerRateLimit(handler.rate) for handler in directory.handlers if handler.rate is not None
        }
        self._roster = Roster(self._line(name, settings) for name, settings in queues.items())
        self._settler = Settler(self.execute_async, self.held_jobs, self._freed, self._said)
        self._keeper = LeaseKeeper(self.execute, self.held_jobs.chunks, self._flagged, self._said.lease_lost)
        pull = partial(broker.execute_async, tenant)
        self._puller = Puller(pull, self._dispatch, self._roster, self.held_jobs, worker, poll_ms)
        self._puller.first = first
        self._moved = asyncio.Event()
        """Set when something was settled or confirmed."""
        self._is_hurrying = False
        self._started: list[Lane] = []

    def _line(self, name: str, settings: QueueSettings) -> QueueLine:
        own = self._directory.of_queue(name) or self._directory.handlers
        lanes = tuple({id(lane): lane for lane in (self._lane_of[handler.name] for handler in own)}.values())
        buckets = tuple(self._buckets[handler.name] for handler in own if handler.name in self._buckets)
        return QueueLine(name, settings, lanes, buckets)

    @property
    def answered(self) -> asyncio.Event:
        """Set when the first pull was answered."""
        return self._puller.answered

    @property
    def pulse(self) -> Any:
        return self._puller.pulse

    @property
    def running(self) -> int:
        return self.held_jobs.held

    @property
    def slots(self) -> int:
        return sum(lane.slots for lane in self._lanes.values())

    # --- for lanes and contexts (any thread) -----------------------------------------------------

    def settle(self, settlement: Settlement) -> None:
        self._settler.put(settlement)

    def measured(self, queue: str, jobs: int, seconds: float) -> None:
        line = self._roster.lines.get(queue)
        if line is not None and line.pace.measured(jobs, seconds):
            self.loop.call_soon_threadsafe(self._puller.reconsider)

    def roomier(self) -> None:
        self._freed()

    def report(self, chunk: JobChunk, job: int, command: c.Command[Any]) -> None:
        self._settler.put(JobReport(chunk, job, command))

    def renew(self, chunk: JobChunk) -> None:
        self._keeper.renew(chunk)

    def execute(self, command: c.Command[R]) -> R:
        return self._broker.execute(self._tenant, command)

    async def execute_async(self, command: c.Command[R]) -> R:
        return await self._broker.execute_async(self._tenant, command)

    # --- its life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises `BadHandler` if a lane cannot start."""
        for lane in self._lanes.values():
            await lane.start(self)
            self._started.append(lane)
        self._settler.start()
        self._keeper.start()

    async def run(self, drain_s: float) -> bool:
        """Run until told to stop. Returns whether all begun jobs were finished."""
        await self._puller.run()
        return await self._drain(drain_s)

    async def run_until_idle(self) -> None:
        """Run until nothing is ready and everything is settled, including jobs that became ready meanwhile."""
        while not self._is_hurrying:
            settled = self.held_jobs.done + self.held_jobs.released
            await self._puller.run_until_empty()
            await self._until_quiet()
            if settled == self.held_jobs.done + self.held_jobs.released:
                return

    def stop(self) -> None:
        """Pull no more, hand back jobs that have not begun, and let the rest finish."""
        self.stopping = True
        self._puller.stop()
        for lane in self._started:
            lane.hand_back()

    def stop_now(self) -> None:
        """Hand back running jobs, too."""
        self._is_hurrying = True
        self.stop()
        self._moved.set()

    async def _drain(self, drain_s: float) -> bool:
        """Wait for running jobs. Cancellations and renewals go on as usual."""
        for lane in self._started:
            lane.hand_back()
        try:
            async with asyncio.timeout(drain_s):
                await self._until_quiet(or_hurried=True)
        except TimeoutError:
            pass
        left = self.held_jobs.held
        if left:
            self._tell_broken_off(left)
        await self._break_off()
        return not left

    def _tell_broken_off(self, left: int) -> None:
        log.warning("%d jobs are not finished and are handed back", left, extra={"worker": self.worker})
        for chunk in self.held_jobs.chunks():
            running = [job for job in chunk.ids if job not in chunk.over]
            if running:
                self._said.broken_off(chunk, running)

    async def _break_off(self) -> None:
        if self.held_jobs.held:
            for lane in self._started:
                lane.break_off()
        try:
            async with asyncio.timeout(SETTLE_S):
                await self._until_quiet()
        except TimeoutError:
            log.warning("%d deliveries could not be settled: their leases will expire", len(self.held_jobs.chunks()))

    async def _until_quiet(self, *, or_hurried: bool = False) -> None:
        """Wait until everything is settled and confirmed, or with `or_hurried`, until `stop_now`."""
        while not (self.held_jobs.is_empty and self._settler.is_idle):
            if or_hurried and self._is_hurrying:
                return
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Let go of everything. Jobs that are still in hand after an interruption are handed back first."""
        self.stopping = True
        self._puller.stop()
        if self._started and not self.held_jobs.is_empty:
            await self._break_off()
        self._keeper.stop()
        for lane in self._started:
            try:
                await lane.close()
            except Exception:
                log.exception("a lane did not close cleanly")
        await self._settler.close()
        try:
            await self._scope.close()
        except Exception:
            log.exception("the cleanup of a worker dependency failed")

    # --- deliveries ------------------------------------------------------------------------------

    def _dispatch(self, delivery: Delivery) -> None:
        now = time.monotonic()
        for run in delivery.runs:
            handler = self._directory.find(run)
            chunk = self._chunk(handler or UNKNOWN_HANDLER, run, delivery.token, now)
            try:
                if self.stopping:  # the answer was on its way when the worker was stopped
                    self.settle(JobsHandedBack(chunk, chunk.ids))
                elif handler is None:
                    self._send_away(chunk, run)
                else:
                    self._submit(chunk)
            except Exception:
                log.exception("%r could not be submitted and is handed back", chunk)
                self.settle(JobsHandedBack(chunk, chunk.ids, OOPS_MS))
            self._keeper.took(chunk)  # it can wait: a plain handler has begun meanwhile

    def _submit(self, chunk: JobChunk) -> None:
        name = chunk.handler.name
        lane = chunk.lane = self._lane_of[name]
        if name in self._buckets:
            self._buckets[name].take(len(chunk.ids))
        if chunk.options.timeout_ms:
            delay_s = chunk.options.timeout_ms / 1_000 + TIMEOUT_GRACE_S
            chunk.timer = self.loop.call_later(delay_s, self._timed_out, chunk)
        lane.submit(chunk)

    def _chunk(self, handler: Handler, run: Run, token: int, now: float) -> JobChunk:
        chunk = JobChunk(handler, token, run.queue, run.ids, run.payloads, run.options, run.attempt, run.pushed_at, now)
        self.held_jobs.took(chunk)
        return chunk

    def _send_away(self, chunk: JobChunk, run: Run) -> None:
        """Settle jobs that have no handler here."""
        sent = [self._directory.send_away(run, job) for job in run.ids]
        jobs = f"job {run.ids[0]}" if len(run.ids) == 1 else f"{len(run.ids)} jobs, {run.ids[0]} first,"
        extra = fields_of(chunk, run.ids[0], self.worker)
        log.warning("%s of queue %s cannot run here: %s", jobs, run.queue, sent[0].error, extra=extra)
        for job, one in zip(run.ids, sent, strict=True):
            if one.delay_ms is not None:
                self.settle(JobsHandedBack(chunk, (job,), one.delay_ms, one.error.message))
            else:
                self.settle(JobFailure(chunk, job, Failure.of(one.error, with_stack=False), DEAD))

    # --- jobs in hand ----------------------------------------------------------------------------

    def _freed(self) -> None:
        self._puller.freed()
        self._moved.set()

    def _flagged(self, chunk: JobChunk, job: int) -> None:
        """Called by the thread that renews leases."""
        try:
            self.loop.call_soon_threadsafe(self._interrupt, chunk, (job,))
        except RuntimeError:
            pass  # the loop is closed: nothing runs there any more

    def _interrupt(self, chunk: JobChunk, jobs: Sequence[int]) -> None:
        for job in jobs:
            if job not in chunk.over and chunk.lane is not None:
                chunk.lane.interrupt(chunk, job)

    def _timed_out(self, chunk: JobChunk) -> None:
        """The queue has given these deliveries up; another worker may have the jobs.

        This is final: a thread that did not stop when its job was cancelled or lost is replaced now.
        """
        late = [job for job in chunk.ids if job not in chunk.over]
        chunk.flags.update(dict.fromkeys(late, "timeout"))
        self._said.timed_out(chunk, late)
        self._interrupt(chunk, late)


def _never_called() -> None:
    raise AssertionError("this handler is never called")


UNKNOWN_HANDLER = Handler(name="", function=_never_called)
"""Stands in for the missing handler of unknown jobs."""
