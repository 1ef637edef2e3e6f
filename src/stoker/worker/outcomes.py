"""How a delivery can end: what handlers raise to say so, and what a policy decides about any other exception.

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
from stoker.model.states import Reason
from stoker.model.units import Duration, duration_ms
from stoker.worker.errors import BadArguments, BadHandler, BadResult, UnknownHandler

VerdictKind = Literal["retry", "dead", "cancel", "snooze"]

HOPELESS = (BadArguments, BadResult, UnknownHandler)
"""Errors that a second try would only repeat."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a job whose handler raised. `after_ms` None leaves the delay to the job's backoff."""

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
    """The attempt failed; try again `after` that long, or by the job's backoff where nothing is said."""

    def __init__(self, after: Duration | None = None, reason: str = "") -> None:
        super().__init__(Verdict("retry", None if after is None else duration_ms(after), reason))


class Cancel(Outcome):
    """The job need not be done any more: it ends as cancelled."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(Verdict("cancel", None, reason))


class Dead(Outcome):
    """Trying again will not help: the job becomes a dead letter at once."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(Verdict("dead", None, reason))


def _outcome(kind: type[Outcome], verdict: Verdict) -> Outcome:
    """The same again, in another process."""
    made = kind.__new__(kind)
    Outcome.__init__(made, verdict)
    return made


Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
"""Classes of exceptions: one, or several."""


def kinds_of(given: Any, name: str) -> tuple[type[BaseException], ...]:
    """Raises `BadHandler` when a policy is made, and not when a job has failed."""
    several = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    for one in several:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise BadHandler(
                f"RetryPolicy({name}=...): {one!r} is no exception class: expected one, or a tuple of them"
            )
    return several


RETRY = Verdict("retry")
DEAD = Verdict("dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What becomes of a job by the class of its exception. How often it is tried at most is the job's own option.

    The first that fits decides: an `Outcome` itself, `dead_on`, `cancel_on`, `retry_on` (empty: every exception), and
    whatever is left is dead. Each is a class, or several. `delay` is a duration, or a function of exception and attempt
    that gives one, None for the job's backoff, or a `Verdict`.
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
        """`attempt` counts from 1. A policy whose own function fails lets the job be tried by its backoff."""
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
    """An exception as data: what is kept of it is text, bounded, and can be shown in any language."""

    error: str
    error_class: str
    stack: str = ""

    @property
    def final_reason(self) -> Reason:
        """Why such a failure is the last one, where no retry can help."""
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
"""By class, as `class_of` names it: that name is what comes from child processes and Spark's executors."""


def text_of(error: BaseException) -> str:
    """Its message; an exception whose own `str` fails must not cost the job its ending."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return written(text or type(error).__qualname__)[: DEFAULT_LIMITS.error_chars_max]


def written(text: str) -> str:
    """As it can be sent: names of files may hold what is no character, and errors repeat them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def stack_of(error: BaseException) -> str:
    """From the handler on; the end of it, where it is too long: the place of the error stands there."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("stoker.worker."):
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace or error.__traceback__, limit=-40))
    except Exception:
        return ""
    return written(text)[-DEFAULT_LIMITS.stack_chars_max :]
