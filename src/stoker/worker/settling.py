"""Tells the queue how jobs ended: many in one command, in the background, until it is confirmed.

Lanes put their settlements here from any thread. One task of the event loop turns them into as few commands as possible
and sends them side by side. A command without an answer is sent again; the token of the delivery keeps it from taking
effect twice. Settlements that the queue refuses because the lease is lost are counted and logged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from stoker.model import commands as c
from stoker.model.errors import Closed, DiskFull, Forbidden, LostLease, Refused, StokerError, Unauthenticated
from stoker.model.reasons import Reason
from stoker.worker.held_jobs import HeldJobs
from stoker.worker.joblog import JobLog
from stoker.worker.lane import Dropped, JobFailure, Settlement
from stoker.worker.outcomes import class_of
from stoker.worker.settle_commands import JobReport, SettleCommand, coalesced, halves, sendings_of

log = logging.getLogger("stoker.worker")

IN_FLIGHT_MAX = 16
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0

Execute = Callable[[c.Command[Any]], Awaitable[Any]]


class Settler:
    """Carries settlements from the lanes to the queue."""

    def __init__(self, execute: Execute, held_jobs: HeldJobs, freed: Callable[[], None], said: JobLog) -> None:
        self._execute = execute
        self._held_jobs = held_jobs
        self._said = said
        self._freed = freed
        """Called when handlers have finished jobs."""
        self._loop = asyncio.get_running_loop()
        self._come: deque[Settlement | JobReport] = deque()
        self._is_woken = False
        self._work = asyncio.Event()
        self._flight = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: list[Settlement] = []
        self._reports: list[JobReport] = []
        self._pump: asyncio.Task[None] | None = None

    # --- from any thread -------------------------------------------------------------------------

    def put(self, item: Settlement | JobReport) -> None:
        self._come.append(item)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                pass  # the loop is closed: the lease will expire

    # --- on the loop -----------------------------------------------------------------------------

    def start(self) -> None:
        self._pump = self._loop.create_task(self._run())

    def _take(self) -> None:
        """Enter new settlements in the books; the first one for a job counts."""
        self._is_woken = False  # before looking: anything that comes later wakes the task again
        come = self._come
        while come:
            item = come.popleft()
            if type(item) is JobReport:
                self._reports.append(item)
                continue
            news = self._held_jobs.ended(item)  # type: ignore[arg-type]
            if news is not None:
                self._ready.append(news)
        if self._ready or self._reports:
            self._work.set()
        self._freed()

    @property
    def is_idle(self) -> bool:
        return not (self._come or self._ready or self._reports or self._tasks)

    async def close(self) -> None:
        """Stop sending; unconfirmed jobs are left to their leases."""
        for task in [*self._tasks, *([self._pump] if self._pump else ())]:
            task.cancel()
        await asyncio.gather(*self._tasks, *([self._pump] if self._pump else ()), return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            reports, self._reports = self._reports, []
            ready, self._ready = self._ready, []
            later = [report for report in reports if type(report.command) is c.KvDelete]
            if len(reports) > len(later):
                await self._send_reports(coalesced(reports))
            settling = []
            self._said.settled(ready)
            for sending in self._sendings(ready):
                await self._flight.acquire()
                settling.append(self._spawn(self._settle(sending)))
            for failed in ready:
                if type(failed) is JobFailure and failed.verdict.kind == "cancel":
                    await self._flight.acquire()
                    self._spawn(self._cancel(failed))
                elif type(failed) is Dropped:
                    self._held_jobs.lost += len(failed.ids)
                    self._held_jobs.settled(failed.chunk, len(failed.ids))
            if later:
                self._spawn(self._forget(later, settling))

    def _sendings(self, ready: list[Settlement]) -> list[SettleCommand]:
        """The commands for these settlements. One invalid settlement must not cost the others theirs."""
        try:
            return sendings_of(ready)
        except Exception:
            log.exception("a lane produced a settlement that cannot be sent")
        if len(ready) > 1:
            return [sending for item in ready for sending in self._sendings([item])]
        self._held_jobs.settled(ready[0].chunk, 1)  # its lease will expire
        return []

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._gone)
        return task

    async def _forget(self, reports: list[JobReport], settling: list["asyncio.Task[None]"]) -> None:
        """Delete the checkpoints of completed jobs, once that is confirmed: the next worker may need those of a lost
        job.
        """
        await asyncio.gather(*settling, return_exceptions=True)
        for report in reports:
            if report.job not in report.chunk.flags:
                await self._report(report)

    def _gone(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("settling failed: %s", task.exception(), exc_info=task.exception())
        self._freed()

    async def _send_reports(self, reports: list[JobReport]) -> None:
        """Send all reports in order; the settlements that came with them wait."""
        sent = [self._loop.create_task(self._report(report)) for report in reports]
        self._tasks.update(sent)
        try:
            await asyncio.gather(*sent)
        finally:
            self._tasks.difference_update(sent)

    async def _report(self, report: JobReport) -> None:
        """Send one report. Best effort: it is tried once."""
        try:
            await self._execute(report.command)
        except LostLease:
            report.chunk.flags.setdefault(report.job, "lost")
        except StokerError as error:
            log.info("%s of job %s was not saved: %s", type(report.command).__name__, report.job, error)
        except Exception:
            log.exception("%s of job %s was not saved", type(report.command).__name__, report.job)

    # --- settling --------------------------------------------------------------------------------

    async def _settle(self, sending: SettleCommand) -> None:
        refused: Mapping[int, str] = {}
        try:
            try:
                refused = (await self._insist(sending.command)).refused
            except (Refused, DiskFull) as error:
                refused = await self._apart(sending, sending.command, error)
            self._count(sending, len(refused))
        except StokerError as error:
            log.error("%s was given up: %s", type(sending.command).__name__, error)
        except Exception:
            log.exception("%s was given up", type(sending.command).__name__)
        finally:
            self._flight.release()
        if refused:
            self._lost(sending, refused)
        for chunk, jobs in sending.chunks:
            self._held_jobs.settled(chunk, jobs)

    async def _insist(self, command: c.Command[Any]) -> Any:
        """Send a command until it is answered. Only the end of the worker stops this."""
        pause = PAUSE_S
        while True:
            try:
                return await self._execute(command)
            except (Refused, Closed):
                raise
            except StokerError as error:
                if isinstance(error, DiskFull) and type(command) is c.Ack and len(command.ids) > 1:
                    raise  # a server with a full disk accepts small results, one by one
                log.warning("%s is tried again: %s", type(command).__name__, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_S_MAX)

    async def _apart(self, sending: SettleCommand, command: Any, error: StokerError) -> dict[int, str]:
        """Split a refused command into halves: one job spoils it for all, perhaps with a result that is too large, or
        there are too many.

        Returns the refusals of single jobs. A job that cannot be settled at all is left to its lease.
        """
        if len(command.ids) > 1:
            refused: dict[int, str] = {}
            for half in halves(command):
                try:
                    refused.update((await self._insist(half)).refused)
                except (Refused, DiskFull) as why:
                    refused.update(await self._apart(sending, half, why))
            return refused
        job = command.ids[0]
        if type(command) is c.Ack and not isinstance(error, Unauthenticated | Forbidden):
            self._said.refused_result(sending.chunk_of(job), job, error.message)
            kind, reason = class_of(error), Reason.INVALID_RESULT
            failed = c.Fail(command.ids, command.tokens, error.message, kind, retry=False, reason=reason)
            reply = await self._insist(failed)
            return dict(reply.refused)
        log.error("job %s cannot be settled, its lease will expire: %s", job, error)
        return {}

    async def _cancel(self, failed: JobFailure) -> None:
        """Cancel a job for its handler, after making sure that this worker still owns it."""
        chunk, job = failed.chunk, failed.id
        reason = failed.verdict.reason or failed.failure.error
        try:
            if chunk.flags.get(job) != "cancelled":
                held = await self._insist(c.Extend((job,), chunk.token))
                if not held.refused:
                    await self._insist(c.Cancel(job))
            reply = await self._insist(c.Fail((job,), chunk.token, reason, failed.failure.error_class, ""))
            if reply.refused:
                self._lost(SettleCommand(c.Fail((job,)), ((chunk, 1),)), reply.refused)
        except Exception as error:
            log.error("job %s cannot be cancelled, its lease will expire: %s", job, error)
        finally:
            self._flight.release()
        self._held_jobs.settled(chunk, 1)
        self._held_jobs.done += 1

    def _lost(self, sending: SettleCommand, refused: Mapping[int, str]) -> None:
        """The leases had expired: these jobs will run again, whatever they did."""
        self._held_jobs.lost += len(refused)
        code = next(iter(refused.values()))
        for chunk in dict.fromkeys(chunk for chunk, _ in sending.chunks):
            lost = [job for job in refused if job in chunk.over and job in chunk.ids]
            for job in lost:
                chunk.flags.setdefault(job, "lost")
            if lost:
                self._said.settled_too_late(chunk, lost, code)

    def _count(self, sending: SettleCommand, refused: int) -> None:
        jobs = sum(jobs for _, jobs in sending.chunks) - refused
        if type(sending.command) is c.Release:
            self._held_jobs.released += jobs
        else:
            self._held_jobs.done += jobs
            if type(sending.command) is c.Fail:
                self._held_jobs.failed += jobs
