"""Tells the queue how jobs ended: many in one command, in the background, until it is confirmed.

Lanes leave their settlements here from any thread. One task of the event loop turns all that has come into as few
commands as possible and sends them side by side. A command that nobody answers is sent again: the token of the
delivery sees to it that nothing happens twice. What the queue refuses because the lease is lost is counted and told.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from stoker.model import commands as c
from stoker.model.errors import Closed, DiskFull, Forbidden, LostLease, Refused, StokerError, Unauthenticated
from stoker.model.states import Reason
from stoker.worker.books import Books
from stoker.worker.joblog import JobLog
from stoker.worker.lane import Dropped, Failed, Settlement
from stoker.worker.outcomes import class_of
from stoker.worker.sendings import Report, Sending, coalesced, halves, sendings_of

log = logging.getLogger("stoker.worker")

IN_FLIGHT_MAX = 16
PAUSE_S, PAUSE_S_MAX = 0.1, 5.0

Execute = Callable[[c.Command[Any]], Awaitable[Any]]


class Settler:
    """The way of settlements from the lanes to the queue."""

    def __init__(self, execute: Execute, books: Books, freed: Callable[[], None], said: JobLog) -> None:
        self._execute = execute
        self._books = books
        self._said = said
        self._freed = freed
        """Called when handlers are done with jobs."""
        self._loop = asyncio.get_running_loop()
        self._come: deque[Settlement | Report] = deque()
        self._is_woken = False
        self._work = asyncio.Event()
        self._flight = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready: list[Settlement] = []
        self._reports: list[Report] = []
        self._pump: asyncio.Task[None] | None = None

    # --- from any thread -------------------------------------------------------------------------

    def put(self, item: Settlement | Report) -> None:
        self._come.append(item)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                pass  # the loop is closed: the job's lease will run out

    # --- on the loop -----------------------------------------------------------------------------

    def start(self) -> None:
        self._pump = self._loop.create_task(self._run())

    def _take(self) -> None:
        """Enter in the books what has come; who said something first is believed."""
        self._is_woken = False  # before looking: what comes later wakes us again
        come = self._come
        while come:
            item = come.popleft()
            if type(item) is Report:
                self._reports.append(item)
                continue
            news = self._books.ended(item)  # type: ignore[arg-type]
            if news is not None:
                self._ready.append(news)
        if self._ready or self._reports:
            self._work.set()
        self._freed()

    @property
    def is_idle(self) -> bool:
        return not (self._come or self._ready or self._reports or self._tasks)

    async def close(self) -> None:
        """Stop sending; whatever is not confirmed is left to its lease."""
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
                if type(failed) is Failed and failed.verdict.kind == "cancel":
                    await self._flight.acquire()
                    self._spawn(self._cancel(failed))
                elif type(failed) is Dropped:
                    self._books.lost += len(failed.ids)
                    self._books.settled(failed.chunk, len(failed.ids))
            if later:
                self._spawn(self._forget(later, settling))

    def _sendings(self, ready: list[Settlement]) -> list[Sending]:
        """A lane that says something that makes no sense must not cost the others their settlements."""
        try:
            return sendings_of(ready)
        except Exception:
            log.exception("a lane settled jobs in a way that cannot be told")
        if len(ready) > 1:
            return [sending for item in ready for sending in self._sendings([item])]
        self._books.settled(ready[0].chunk, 1)  # left to its lease
        return []

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._gone)
        return task

    async def _forget(self, reports: list[Report], settling: list["asyncio.Task[None]"]) -> None:
        """Checkpoints of jobs that are completed, once that is certain: another worker may need those of a lost one."""
        await asyncio.gather(*settling, return_exceptions=True)
        for report in reports:
            if report.job not in report.chunk.flags:
                await self._report(report)

    def _gone(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("settling failed: %s", task.exception(), exc_info=task.exception())
        self._freed()

    async def _send_reports(self, reports: list[Report]) -> None:
        """All at once, in order; the settlements that came with them wait."""
        sent = [self._loop.create_task(self._report(report)) for report in reports]
        self._tasks.update(sent)
        try:
            await asyncio.gather(*sent)
        finally:
            self._tasks.difference_update(sent)

    async def _report(self, report: Report) -> None:
        """What is said about a job is worth a try, and no more."""
        try:
            await self._execute(report.command)
        except LostLease:
            report.chunk.flags.setdefault(report.job, "lost")
        except StokerError as error:
            log.info("%s of job %s was not kept: %s", type(report.command).__name__, report.job, error)
        except Exception:
            log.exception("%s of job %s was not kept", type(report.command).__name__, report.job)

    # --- settling --------------------------------------------------------------------------------

    async def _settle(self, sending: Sending) -> None:
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
            self._books.settled(chunk, jobs)

    async def _insist(self, command: c.Command[Any]) -> Any:
        """Until somebody answers. Only the end of the worker ends this."""
        pause = PAUSE_S
        while True:
            try:
                return await self._execute(command)
            except (Refused, Closed):
                raise
            except StokerError as error:
                if isinstance(error, DiskFull) and type(command) is c.Ack and len(command.ids) > 1:
                    raise  # a server whose disk is full takes small results, one by one
                log.warning("%s is tried again: %s", type(command).__name__, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_S_MAX)

    async def _apart(self, sending: Sending, command: Any, error: StokerError) -> dict[int, str]:
        """One of the jobs spoils it for all, perhaps by a result that is too large, or they are too many: by halves.

        Gives what was refused for single jobs; what cannot be settled at all is left to its lease.
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
        log.error("job %s cannot be settled and is left to its lease: %s", job, error)
        return {}

    async def _cancel(self, failed: Failed) -> None:
        """The handler says that the job need not be done. First make sure that it is ours to say so."""
        chunk, job = failed.chunk, failed.id
        reason = failed.verdict.reason or failed.failure.error
        try:
            if chunk.flags.get(job) != "cancelled":
                held = await self._insist(c.Extend((job,), chunk.token))
                if not held.refused:
                    await self._insist(c.Cancel(job))
            reply = await self._insist(c.Fail((job,), chunk.token, reason, failed.failure.error_class, ""))
            if reply.refused:
                self._lost(Sending(c.Fail((job,)), ((chunk, 1),)), reply.refused)
        except Exception as error:
            log.error("job %s cannot be cancelled and is left to its lease: %s", job, error)
        finally:
            self._flight.release()
        self._books.settled(chunk, 1)
        self._books.done += 1

    def _lost(self, sending: Sending, refused: Mapping[int, str]) -> None:
        """The leases ran out before: whatever these jobs did, somebody else will do it again."""
        self._books.lost += len(refused)
        code = next(iter(refused.values()))
        for chunk in dict.fromkeys(chunk for chunk, _ in sending.chunks):
            lost = [job for job in refused if job in chunk.over and job in chunk.ids]
            for job in lost:
                chunk.flags.setdefault(job, "lost")
            if lost:
                self._said.settled_too_late(chunk, lost, code)

    def _count(self, sending: Sending, refused: int) -> None:
        jobs = sum(jobs for _, jobs in sending.chunks) - refused
        if type(sending.command) is c.Release:
            self._books.released += jobs
        else:
            self._books.done += jobs
            if type(sending.command) is c.Fail:
                self._books.failed += jobs
