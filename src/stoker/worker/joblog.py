"""The worker's log lines about jobs: always what went wrong; with `every`, one line for each job.

Every line carries the job's fields (`job_id`, `job_name`, `queue`, `attempt`, `worker`) and times, so that JSON lines
can be searched. Nothing is decided here.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

from stoker.model.replies import cause_of
from stoker.worker.lane import Dropped, JobChunk, JobFailure, JobsCompleted, JobsHandedBack, Settlement
from stoker.worker.log_fields import fields_of, together
from stoker.worker.outcomes import Failure, Verdict

log = logging.getLogger("stoker.worker")

LINES_MAX = 20
"""Lines of one kind at the same moment, unless every job is logged: thousands of jobs may end alike."""

WORDS = {"snooze": "snoozed", "cancel": "cancelled by its handler"}


class JobLog:
    """The lines of one worker."""

    def __init__(self, worker: str, *, every: bool = False) -> None:
        self._worker = worker
        self._every = every

    # --- how jobs ended --------------------------------------------------------------------------

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """Log a lane's settlements: failures always, with one line for all that failed alike."""
        failed: dict[tuple[Failure, Verdict], list[JobFailure]] = {}
        for one in settlements:
            if type(one) is JobFailure and one.verdict.kind in ("retry", "dead"):
                failed.setdefault((one.failure, one.verdict), []).append(one)
            elif self._every:
                self._tell_end(one)
        for alike in failed.values():
            for group in [[one] for one in alike] if self._every else [alike]:
                self._tell_failed(group)

    def _tell_end(self, one: Settlement) -> None:
        if type(one) is JobsCompleted:
            seconds: Sequence[float | None] = one.seconds or [None] * len(one.ids)
            for job, spent in zip(one.ids, seconds, strict=True):
                self._say(logging.INFO, one.chunk, job, f"completed{lasting(spent)}", spent)
        elif type(one) is JobFailure:
            reason = f": {one.verdict.reason}" if one.verdict.reason else ""
            self._say(logging.INFO, one.chunk, one.id, f"was {WORDS[one.verdict.kind]}{reason}", one.seconds)
        elif type(one) is JobsHandedBack:
            for job in one.ids:
                self._say(logging.INFO, one.chunk, job, "was handed back")
        else:
            assert type(one) is Dropped
            for job in one.ids:
                self._say(logging.INFO, one.chunk, job, "was dropped: it no longer belongs to this worker")

    def _tell_failed(self, alike: list[JobFailure]) -> None:
        """The line has no traceback; the job keeps it."""
        first = alike[0]
        others = "" if len(alike) == 1 else f" and {len(alike) - 1} other{'s' if len(alike) > 2 else ''}"
        cause = cause_of(first.failure.error_class, first.verdict.reason or first.failure.error)
        most = first.chunk.options.max_attempts
        attempt = f"{first.chunk.attempt} of {most}" if most else str(first.chunk.attempt)
        extra = self._fields(first.chunk, first.id, first.seconds) | {"error_class": first.failure.error_class}
        if others:
            extra |= together([one.id for one in alike])
        text = "job %s (%s)%s failed in attempt %s: %s"
        log.warning(text, first.id, first.chunk.name, others, attempt, cause, extra=extra)

    # --- faults ----------------------------------------------------------------------------------

    def timed_out(self, chunk: JobChunk, jobs: Sequence[int]) -> None:
        limit = chunk.options.timeout_ms / 1_000
        self._say_of_all(
            chunk, jobs, f"exceeded its timeout of {limit:g} s: the queue has counted the attempt as failed"
        )

    def refused_result(self, chunk: JobChunk, job: int, why: str) -> None:
        self._say(logging.WARNING, chunk, job, f"failed because the queue refuses its result: {why}")

    def lease_lost(self, chunk: JobChunk, job: int) -> None:
        self._say(logging.WARNING, chunk, job, "lost its lease while it was running: its handler is told to stop")

    def settled_too_late(self, chunk: JobChunk, jobs: Sequence[int], code: str) -> None:
        self._say_of_all(chunk, jobs, f"was lost before it was settled ({code}): it will run again")

    def broken_off(self, chunk: JobChunk, jobs: Sequence[int]) -> None:
        self._say_of_all(chunk, jobs, "is not finished when the worker stops, and is handed back")

    # --- lines -----------------------------------------------------------------------------------

    def _say_of_all(self, chunk: JobChunk, jobs: Sequence[int], what: str) -> None:
        shown = jobs if self._every else jobs[:LINES_MAX]
        for job in shown:
            self._say(logging.WARNING, chunk, job, what)
        if len(shown) < len(jobs):
            extra = self._fields(chunk, jobs[0], None) | together(jobs)
            log.warning("and %d more jobs (%s) %s", len(jobs) - len(shown), chunk.name, what, extra=extra)

    def _say(self, level: int, chunk: JobChunk, job: int, what: str, seconds: float | None = None) -> None:
        if log.isEnabledFor(level):
            log.log(level, "job %s (%s) %s", job, chunk.name, what, extra=self._fields(chunk, job, seconds))

    def _fields(self, chunk: JobChunk, job: int, seconds: float | None) -> dict[str, Any]:
        """The fields, with times in milliseconds: in the handler, in this worker, and since the push."""
        times: dict[str, Any] = {} if seconds is None else {"duration_ms": round(seconds * 1_000, 3)}
        held_ms = (time.monotonic() - chunk.received_at) * 1_000
        times["held_ms"] = round(held_ms, 3)
        times["since_push_ms"] = max(0, round(time.time() * 1_000 - chunk.pushed_at))
        return fields_of(chunk, job, self._worker) | times


def lasting(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f" in {seconds * 1_000:.3g} ms" if seconds < 1 else f" in {seconds:.3g} s"
