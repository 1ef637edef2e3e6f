"""How a delivery can end: what handlers raise to decide it, and what a policy decides about other exceptions.

    raise Snooze("30s")          later again; this attempt does not count
    raise Retry("5m")            this attempt failed; the next one in five minutes
    raise Cancel("not needed")   the job ends as cancelled
    raise Dead("bad address")    the job becomes a dead letter at once

Durations are text ("30s", "1h30m"), seconds or a timedelta. Nothing here talks to a queue.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from stoker.model.limits import DEFAULT_LIMITS
from stoker.model.reasons import Reason
from stoker.model.units import Duration, duration_ms
from stoker.worker.errors import BadArguments, BadHandler, BadResult, UnknownHandler

VerdictKind = Literal["retry", "dead", "cancel", "snooze"]

HOPELESS = (BadArguments, BadResult, UnknownHandler)
"""Errors that a retry would only repeat."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a job whose handler raised. `after_ms=None` leaves the delay to the job's backoff."""

    kind: VerdictKind
    after_ms: int | None = None
    reason: str = ""


class Outcome(Exception):
    """Raised by a handler to decide how its delivery ends."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = replace(verdict, reason=written(verdict.reason))

    def __reduce__(self) -> tuple[object, ...]:
        return (_outcome, (type(self), self.verdict))


class Snooze(Outcome):
    """Hand the job back for later. The attempt is not counted."""

    def __init__(self, after: Duration, reason: str = "") -> None:
        super().__init__(Verdict("snooze", duration_ms(after), reason))


class Retry(Outcome):
    """The attempt failed; try again `after` this time, by default after the job's backoff."""

    def __init__(self, after: Duration | None = None, reason: str = "") -> None:
        super().__init__(Verdict("retry", None if after is None else duration_ms(after), reason))


class Cancel(Outcome):
    """The job is no longer needed: it ends as cancelled."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(Verdict("cancel", None, reason))


class Dead(Outcome):
    """A retry will not help: the job becomes a dead letter at once."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(Verdict("dead", None, reason))


def _outcome(kind: type[Outcome], verdict: Verdict) -> Outcome:
    """Rebuilds an outcome when it is unpickled."""
    made = kind.__new__(kind)
    Outcome.__init__(made, verdict)
    return made


Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
"""One exception class, or several."""


def kinds_of(given: Any, name: str) -> tuple[type[BaseException], ...]:
    """Raises `BadHandler` when the policy is made, not later when a job fails."""
    several = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    for one in several:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise BadHandler(
                f"RetryPolicy({name}=...): {one!r} is not an exception class: expected one, or a tuple of them"
            )
    return several


RETRY = Verdict("retry")
DEAD = Verdict("dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Decides about a job by the class of its exception. How many attempts it has is the job's own option.

    The first match decides: an `Outcome`, then `dead_on`, `cancel_on`, `retry_on` (empty means every exception);
    anything else is dead. Each is one class or several. `delay` is a duration, or a function of exception and attempt
    that returns one, None for the job's backoff, or a `Verdict`.
    """

    retry_on: Kinds = ()
    dead_on: Kinds = ()
    cancel_on: Kinds = ()
    delay: Duration | Callable[[BaseException, int], Duration | Verdict | None] | None = None

    def __post_init__(self) -> None:
        for name in ("retry_on", "dead_on", "cancel_on"):
            object.__setattr__(self, name, kinds_of(getattr(self, name), name))
        if self.delay is None or callable(self.delay):
            return
        try:
            duration_ms(self.delay)
        except ValueError as error:
            raise BadHandler(
                f"RetryPolicy(delay={self.delay!r}): {error}, or a function of exception and attempt"
            ) from None

    def decide(self, error: BaseException, attempt: int) -> Verdict:
        """`attempt` counts from 1. If the policy's own function fails, the job is retried by its backoff."""
        if isinstance(error, Outcome):
            return error.verdict
        if isinstance(error, (self.dead_on, HOPELESS)):
            return DEAD
        if isinstance(error, self.cancel_on):
            return Verdict("cancel", None, text_of(error))
        if self.retry_on and not isinstance(error, self.retry_on):
            return DEAD
        if self.delay is None:
            return RETRY
        try:
            wanted = self.delay(error, attempt) if callable(self.delay) else self.delay
            if isinstance(wanted, Verdict):
                return wanted
            return RETRY if wanted is None else Verdict("retry", duration_ms(wanted))
        except Exception:
            return RETRY


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as data: bounded text that can be shown in any language."""

    error: str
    error_class: str
    stack: str = ""

    @property
    def final_reason(self) -> Reason:
        """The dead-letter reason of a failure that no retry can help."""
        return FINAL_REASONS.get(self.error_class, Reason.EXPLICIT_FAIL)

    @classmethod
    def of(cls, error: BaseException, *, with_stack: bool = True) -> "Failure":
        return cls(text_of(error), class_of(error), stack_of(error) if with_stack else "")


def class_of(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


FINAL_REASONS = {
    f"{BadArguments.__module__}.{BadArguments.__qualname__}": Reason.INVALID_ARGUMENTS,
    f"{BadResult.__module__}.{BadResult.__qualname__}": Reason.INVALID_RESULT,
}
"""By class name as `class_of` writes it, which is all that comes from child processes and Spark's executors."""


def text_of(error: BaseException) -> str:
    """The message. An exception whose own `str` raises must not keep the job from ending."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return written(text or type(error).__qualname__)[: DEFAULT_LIMITS.error_chars_max]


def written(text: str) -> str:
    """The text as valid UTF-8: file names may contain invalid bytes, and errors quote them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def stack_of(error: BaseException) -> str:
    """The traceback from the handler on. If it is too long, its end is kept, where the error is."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("stoker.worker."):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace or error.__traceback__, limit=-40))
    except Exception:
        return ""
    return written(text)[-DEFAULT_LIMITS.stack_chars_max :]
