"""Renews the leases of everything in hand, in one call, from a thread of its own with a connection of its own.

A handler that keeps the interpreter or the event loop busy must not cost its own lease, nor another's: so this starts
at a third of the lease, needs nothing of the loop, and has two more tries. The answer says which jobs were cancelled
and which are lost; those are flagged here and interrupted by their lanes.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from stoker.model import commands as c
from stoker.model.errors import Closed, LimitExceeded, StokerError
from stoker.worker.lane import Chunk, Flag

log = logging.getLogger("stoker.worker")

IDS_MAX = 5_000
AGAIN_S = 0.5
"""After a renewal that failed."""
IDLE_S = 3_600.0


class LeaseKeeper:
    """A thread that wakes when the first lease is a third over."""

    def __init__(
        self,
        execute: Callable[[c.Command[Any]], Any],
        chunks: Callable[[], Iterable[Chunk]],
        flagged: Callable[[Chunk, int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._execute, self._chunks, self._flagged, self._clock = execute, chunks, flagged, clock
        self._wake = threading.Event()
        self._next_at = 0.0
        self._ids_max = IDS_MAX
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="stoker-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def took(self, chunk: Chunk) -> None:
        """There is a new one, which may have to be renewed before the others."""
        if chunk.renew_at < self._next_at:
            self._wake.set()

    def renew(self, chunk: Chunk) -> None:
        """Soon, whatever its time is."""
        chunk.renew_at = self._clock()
        self._wake.set()

    def stop(self) -> None:
        """It may be in the middle of a call: nobody waits for that."""
        self._is_over = True
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_over:
            self._wake.clear()
            self._next_at = IDLE_S + self._clock()  # whoever comes while we look around wakes us
            try:
                self.renew_due()
            except Exception:
                log.exception("renewing leases failed")
                self._next_at = self._clock() + AGAIN_S
            self._wake.wait(max(0.0, self._next_at - self._clock()))

    def renew_due(self) -> None:
        """Renew what is due, and with it what will be soon: one call does it for all."""
        now = self._clock()
        held = [chunk for chunk in self._chunks() if chunk.left]
        if any(chunk.renew_at <= now for chunk in held):
            due = [chunk for chunk in held if chunk.renew_at <= now + chunk.lease_ms / 6_000]
            self._renew(due)
        self._next_at = min([self._next_at, *(chunk.renew_at for chunk in self._chunks() if chunk.left)])

    def _renew(self, due: list[Chunk]) -> None:
        where: dict[tuple[int, int], Chunk] = {}
        for chunk in due:
            running = [job for job in chunk.ids if job not in chunk.over] if chunk.over else chunk.ids
            where.update(((job, chunk.token), chunk) for job in running)
        pairs = list(where)
        began = self._clock()
        try:
            self._extend_all(pairs, where)
        except Closed:
            self._is_over = True
            return
        except StokerError as error:
            log.warning("leases could not be renewed, which is tried again: %s", error)
            for chunk in due:
                chunk.renew_at = self._clock() + min(AGAIN_S, chunk.lease_ms / 6_000)
            return
        for chunk in due:
            chunk.renew_at = began + chunk.lease_ms / 3_000

    def _extend_all(self, pairs: list[tuple[int, int]], where: dict[tuple[int, int], Chunk]) -> None:
        at = 0
        while at < len(pairs):
            try:
                self._extend(pairs[at : at + self._ids_max], where)
            except LimitExceeded:
                if self._ids_max == 1:
                    raise
                self._ids_max //= 2  # the server has limits of its own
            else:
                at += self._ids_max

    def _extend(self, pairs: list[tuple[int, int]], where: dict[tuple[int, int], Chunk]) -> None:
        reply = self._execute(c.Extend([job for job, _ in pairs], [token for _, token in pairs]))
        if not reply.refused and not reply.cancelled:
            return
        cancelled = frozenset(reply.cancelled)
        for job, token in pairs:
            chunk = where[job, token]
            if job in chunk.over:
                continue  # it was settled meanwhile: that is why it was refused
            if job in reply.refused:
                self._flag(chunk, job, "lost")
            elif job in cancelled:
                self._flag(chunk, job, "cancelled")

    def _flag(self, chunk: Chunk, job: int, flag: Flag) -> None:
        if chunk.flags.get(job) in (flag, "lost", "timeout"):
            return
        chunk.flags[job] = flag
        if flag == "lost":
            log.warning("the lease of job %s is lost: its handler is told to stop", job)
        self._flagged(chunk, job)
