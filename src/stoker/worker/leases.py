"""Renews the leases of all jobs in hand with one call, from its own thread over its own connection.

A handler that keeps the interpreter or the event loop busy must not lose its lease, nor cost another job its lease. So
renewal starts at a third of the lease, needs nothing from the loop, and leaves time for two more tries. The answer
names jobs that were cancelled or lost; they are flagged here and interrupted by their lanes.

A third of a lease is too long to wait for a cancel. So jobs in hand are also looked at every `LOOK_S`. A look gets the
same answer, renews nothing and costs the queue no write. Jobs shorter than that are never looked at.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from stoker.brokers.remote.retrying import be_patient
from stoker.model import commands as c
from stoker.model.errors import Closed, LimitExceeded, StokerError
from stoker.worker.lane import Flag, JobChunk

log = logging.getLogger("stoker.worker")

IDS_MAX = 5_000
AGAIN_S = 0.5
"""Pause after a renewal that failed."""
LOOK_S = 1.0
"""Between two looks for cancelled and lost jobs. Younger jobs are not looked at."""
LOOKS_MAX = 500
"""Jobs looked at in a second; a worker with more of them looks less often. Each costs the queue some microseconds, and
there may be a thousand workers.
"""
IDLE_S = 3_600.0


Running: TypeAlias = dict[tuple[int, int], JobChunk]
"""Unfinished jobs by job and token, with their chunk."""


def running(chunks: Iterable[JobChunk]) -> Running:
    where: Running = {}
    for chunk in chunks:
        ids = [job for job in chunk.ids if job not in chunk.over] if chunk.over else chunk.ids
        where.update(((job, chunk.token), chunk) for job in ids)
    return where


class LeaseKeeper:
    """A thread that wakes when a third of the first lease is over."""

    def __init__(
        self,
        execute: Callable[[c.Command[Any]], Any],
        chunks: Callable[[], Iterable[JobChunk]],
        flagged: Callable[[JobChunk, int], None],
        lost: Callable[[JobChunk, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._execute, self._chunks, self._clock = execute, chunks, clock
        self._flagged, self._lost = flagged, lost
        self._wake = threading.Event()
        self._next_at = 0.0
        self._look_at = clock() + LOOK_S
        self._ids_max = IDS_MAX
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="stoker-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def took(self, chunk: JobChunk) -> None:
        """Note a new chunk, which may need renewal before the others."""
        if self._due_at(chunk) < self._next_at:
            self._wake.set()

    def renew(self, chunk: JobChunk) -> None:
        """Renew this chunk soon, whatever its time is."""
        chunk.renew_at = self._clock()
        self._wake.set()

    def stop(self) -> None:
        """Stop, without waiting for a call that is under way."""
        self._is_over = True
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        be_patient()
        while not self._is_over:
            self._wake.clear()
            self._next_at = IDLE_S + self._clock()  # a chunk that comes during the look wakes the thread again
            try:
                self.renew_due()
            except Exception:
                log.exception("renewing leases failed")
                self._next_at = self._clock() + AGAIN_S
            self._wake.wait(max(0.0, self._next_at - self._clock()))

    def renew_due(self) -> None:
        """Renew the leases that are due, and those that will be soon, with one call."""
        now = self._clock()
        held = dict.fromkeys(chunk for chunk in self._chunks() if chunk.left)
        if any(chunk.renew_at <= now for chunk in held):
            due = [chunk for chunk in held if chunk.renew_at <= now + chunk.lease_ms / 6_000]
            self._renew(due)
            for chunk in due:
                del held[chunk]  # a renewal also looks for cancellations
        if now >= self._look_at:
            jobs = running(chunk for chunk in held if now >= chunk.received_at + LOOK_S)
            self._look_at = now + max(LOOK_S, len(jobs) / LOOKS_MAX)
            self._look(jobs)
        self._next_at = min([self._next_at, *(self._due_at(chunk) for chunk in self._chunks() if chunk.left)])

    def _due_at(self, chunk: JobChunk) -> float:
        """When the chunk needs its next renewal or look."""
        return min(chunk.renew_at, max(self._look_at, chunk.received_at + LOOK_S))

    def _look(self, jobs: Running) -> None:
        """Ask which jobs were cancelled. A failed look is only logged: the next one comes soon."""
        if not jobs:
            return
        try:
            self._extend_all(jobs, renew=False)
        except Closed:
            self._is_over = True
        except StokerError as error:
            log.debug("could not ask the queue which running jobs were cancelled: %s", error)

    def _renew(self, due: list[JobChunk]) -> None:
        began = self._clock()
        try:
            self._extend_all(running(due), renew=True)
        except Closed:
            self._is_over = True
            return
        except StokerError as error:
            log.warning("leases could not be renewed, trying again: %s", error)
            for chunk in due:
                chunk.renew_at = self._clock() + min(AGAIN_S, chunk.lease_ms / 6_000)
            return
        for chunk in due:
            chunk.renew_at = began + chunk.lease_ms / 3_000

    def _extend_all(self, where: Running, *, renew: bool) -> None:
        pairs = list(where)
        at = 0
        while at < len(pairs):
            try:
                self._extend(pairs[at : at + self._ids_max], where, renew)
            except LimitExceeded:
                if self._ids_max == 1:
                    raise
                self._ids_max //= 2  # the server's own limit is lower
            else:
                at += self._ids_max

    def _extend(self, pairs: list[tuple[int, int]], where: Running, renew: bool) -> None:
        reply = self._execute(c.Extend([job for job, _ in pairs], [token for _, token in pairs], renew=renew))
        if not reply.refused and not reply.cancelled:
            return
        cancelled = frozenset(reply.cancelled)
        for job, token in pairs:
            chunk = where[job, token]
            if job in chunk.over:
                continue  # it was settled meanwhile, which is why it was refused
            if job in reply.refused:
                self._flag(chunk, job, "lost")
            elif job in cancelled:
                self._flag(chunk, job, "cancelled")

    def _flag(self, chunk: JobChunk, job: int, flag: Flag) -> None:
        if chunk.flags.get(job) in (flag, "lost", "timeout"):
            return
        chunk.flags[job] = flag
        if flag == "lost":
            self._lost(chunk, job)
        self._flagged(chunk, job)
