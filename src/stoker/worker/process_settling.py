"""Makes settlements for the jobs of a child process, from what the child said or from how it died.

Pure values; the lane passes them on.
"""

from collections.abc import Iterator, Sequence

from stoker.worker.exceptions import unwanted
from stoker.worker.lane import Dropped, JobChunk, JobFailure, JobsCompleted, JobsHandedBack, Settlement
from stoker.worker.outcomes import RETRY, Failure, Verdict
from stoker.worker.process_backlog import InHand
from stoker.worker.process_frames import Ending
from stoker.worker.process_handle import how_it_died

CRASHED = "WorkerCrashed"


def completed(run: list[tuple[InHand, bytes | None, float]]) -> Settlement:
    """Completed jobs of one chunk, with their results and seconds."""
    results = [result for _, result, _ in run]
    has_results = any(result is not None for result in results)
    seconds = [spent for _, _, spent in run]
    return JobsCompleted(run[0][0].chunk, [held.job for held, _, _ in run], results if has_results else None, seconds)


def raised(held: InHand, ending: Ending, seconds: float) -> Settlement:
    if held.chunk.flags.get(held.job) in ("lost", "timeout"):
        return Dropped(held.chunk, (held.job,))
    failure = Failure(ending.error, ending.error_class, ending.stack)
    verdict = Verdict(ending.kind, ending.after_ms, ending.reason)  # type: ignore[arg-type]
    return JobFailure(held.chunk, held.job, failure, verdict, seconds)


def orphaned(held: InHand, was_running: bool, code: int) -> Iterator[Settlement]:
    """The settlement of a job whose process died. It costs an attempt only if this job was running."""
    if not was_running or held.job in held.chunk.flags:
        yield from unfinished(held.chunk, (held.job,))
        return
    text = f"the process that ran job {held.job} died: {how_it_died(code)}"
    yield JobFailure(held.chunk, held.job, Failure(text, CRASHED), RETRY)


def unfinished(chunk: JobChunk, ids: Sequence[int]) -> Iterator[Settlement]:
    """Settlements of jobs that did not end by themselves: by their flag, else handed back."""
    flagged = [job for job in ids if job in chunk.flags] if chunk.flags else []
    for job in flagged:
        yield unwanted(chunk, job)
    rest = [job for job in ids if job not in chunk.flags] if flagged else ids
    if rest:
        yield JobsHandedBack(chunk, rest, 0)
