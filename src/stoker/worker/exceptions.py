"""Turns an exception of a handler into the settlement of its job. Retry policies are applied only here."""

import asyncio
import logging

from stoker.worker.errors import JobCancelled
from stoker.worker.lane import Dropped, JobChunk, JobFailure, Settlement
from stoker.worker.outcomes import RETRY, Failure, Outcome, Verdict

log = logging.getLogger("stoker.worker")

CANCELLED = Verdict("cancel", None, "cancelled")


def ended_by(chunk: JobChunk, job: int, error: BaseException, seconds: float | None = None) -> Settlement:
    """The settlement of a job whose handler raised. A job that this worker no longer owns is dropped."""
    flag = chunk.flags.get(job)
    if flag in ("lost", "timeout"):
        return Dropped(chunk, (job,))
    if flag == "cancelled" and isinstance(error, asyncio.CancelledError | JobCancelled):
        return cancelled(chunk, job)
    is_told = isinstance(error, Outcome)  # an outcome has no traceback worth keeping
    verdict = decided(chunk, error)
    return JobFailure(chunk, job, Failure.of(error, with_stack=not is_told), verdict, seconds)


def decided(chunk: JobChunk, error: BaseException) -> Verdict:
    """The verdict of the handler's policy. A policy that raises falls back to the job's backoff."""
    try:
        return chunk.handler.retry.decide(error, chunk.attempt)
    except Exception:
        log.exception("the retry policy of %s raised an exception: the job is retried by its backoff", chunk.name)
        return RETRY


def cancelled(chunk: JobChunk, job: int) -> Settlement:
    return JobFailure(chunk, job, Failure(f"job {job} was cancelled", "JobCancelled"), CANCELLED)


def unwanted(chunk: JobChunk, job: int) -> Settlement:
    """The settlement of a flagged job that has not begun, or did not end by itself."""
    return cancelled(chunk, job) if chunk.flags.get(job) == "cancelled" else Dropped(chunk, (job,))
