"""Errors that an app raises for its callers: a branch of the tree in `model/errors.py`.

    StokerError
    `-- AppError
        |-- JobFailed           job_failed           the awaited job failed, was cancelled or expired
        |-- ResultTimeout       result_timeout       the job had not ended when the time was over
        |-- UnknownJob          unknown_job          the app has no job of that name
        |-- BadSchedule         bad_schedule         a schedule is declared wrongly
        `-- CannotLoad          cannot_load          `module:app` does not name an app

None of them is sent over the wire. Arguments and results that do not fit raise `BadArguments` and `BadResult`, and
functions that cannot be jobs raise `BadHandler`: see `worker/errors.py`.
"""

from stoker.model.errors import StokerError
from stoker.model.replies import cause_of
from stoker.model.states import State


class AppError(StokerError):
    code = "app"


class JobFailed(AppError):
    """The job failed for good, was cancelled or expired. The handler's exception is given as text."""

    code = "job_failed"

    def __init__(
        self,
        job: int,
        state: State,
        reason: str,
        *,
        error: str = "",
        error_class: str = "",
        attempts: int = 0,
        stack: str = "",
        name: str | None = None,
    ) -> None:
        self.job = job
        self.state = state
        """`failed`, `cancelled` or `expired`."""
        self.reason = reason
        """Why it ended: one of the reasons in docs/states.md."""
        self.error = error
        """The text of the last exception, or empty."""
        self.error_class = error_class
        """Its class, as `module.Class`, or empty."""
        self.attempts = attempts
        self.stack = stack
        """The last traceback, or empty."""
        self.name = name
        super().__init__(self._told())

    def _told(self) -> str:
        what = f"job {self.job}" if self.name is None else f"job {self.job} ({self.name})"
        cause = cause_of(self.error_class, self.error)
        tries = f" after {self.attempts} attempt{'' if self.attempts == 1 else 's'}" if self.attempts else ""
        told = f"{what} {'is' if self.state is State.EXPIRED else 'was' if self.state is State.CANCELLED else 'has'}"
        return f"{told} {self.state}{tries} ({self.reason})" + (f": {cause}" if cause else "")

    def __reduce__(self) -> tuple[object, ...]:
        return _job_failed, ((self.job, self.state, self.reason), self._details())

    def _details(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("error", "error_class", "attempts", "stack", "name")}


def _job_failed(place: tuple[int, State, str], details: dict[str, object]) -> JobFailed:
    """Rebuilds the error when it is unpickled."""
    return JobFailed(*place, **details)  # type: ignore[arg-type]


class ResultTimeout(AppError, TimeoutError):
    """The job has not ended yet; asking again later is fine."""

    code = "result_timeout"
    retryable = True


class UnknownJob(AppError, LookupError):
    code = "unknown_job"


class BadSchedule(AppError):
    code = "bad_schedule"


class CannotLoad(AppError):
    code = "cannot_load"

    def __init__(self, message: str = "", *, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace
        """The traceback of the user's own code, as Python writes it; empty if none of it ran."""
