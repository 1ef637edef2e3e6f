"""From an exception of a handler to the settlement of its job. The one place that knows who may be retried."""

import asyncio
import logging

from stoker.worker.errors import JobCancelled
from stoker.worker.lane import Chunk, Dropped, Failed, Settlement
from stoker.worker.outcomes import RETRY, Failure, Outcome, Verdict

log = logging.getLogger("stoker.worker")

CANCELLED = Verdict("cancel", None, "cancelled")


def ended_by(chunk: Chunk, job: int, error: BaseException, seconds: float | None = None) -> Settlement:
    """What becomes of a job whose handler raised. A job that nobody may settle any more is dropped."""
    flag = chunk.flags.get(job)
    if flag in ("lost", "timeout"):
        return Dropped(chunk, (job,))
    if flag == "cancelled" and isinstance(error, asyncio.CancelledError | JobCancelled):
        return cancelled(chunk, job)
    is_told = isinstance(error, Outcome)  # where it was raised is no news
    verdict = decided(chunk, error)
    return Failed(chunk, job, Failure.of(error, with_stack=not is_told), verdict, seconds)


def decided(chunk: Chunk, error: BaseException) -> Verdict:
    """What the policy of the handler says; one that is broken must not cost the job its end."""
    try:
        return chunk.handler.retry.decide(error, chunk.attempt)
    except Exception:
        log.exception("the retry policy of %s failed: the job is left to its backoff", chunk.name)
        return RETRY


def cancelled(chunk: Chunk, job: int) -> Settlement:
    return Failed(chunk, job, Failure(f"job {job} was cancelled", "JobCancelled"), CANCELLED)


def unwanted(chunk: Chunk, job: int) -> Settlement:
    """Of a job that is flagged and has not begun, or did not end by itself."""
    return cancelled(chunk, job) if chunk.flags.get(job) == "cancelled" else Dropped(chunk, (job,))
