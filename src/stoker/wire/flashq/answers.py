"""What all answers have in common: `ok` and `success`, errors with the words that flashQ's clients look for, ids."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from stoker.model import commands as c
from stoker.model import errors
from stoker.model.errors import StokerError
from stoker.wire.flashq.context import RequestContext

Answer = dict[str, Any]
Plan = Generator[c.Command[Any], Any, Answer]
"""Yields the commands to carry out one after another, is sent their replies (or thrown their errors), and returns the
answer. What it raises is answered with `failure`."""


NOTHING: tuple[c.Command[Any], ...] = ()
"""What a plan yields that needs no engine."""


class Duplicate(errors.Refused):
    """A push met a key that is taken: an error for clients of flashQ, for whom it always was one."""

    code = "duplicate"


class TimedOut(errors.Refused):
    """Something did not happen in the time that the client wanted to wait for it."""

    code = "timeout"


class JobFailedAnswer(errors.Refused):
    """The job that the client waited for has ended without success."""

    code = "job_failed"


WORDS: dict[str, tuple[str, str]] = {
    "not_found": ("not found", "Job not found"),
    "invalid": ("invalid", "Invalid request"),
    "limit_exceeded": ("limit", "Limit exceeded"),
    "unauthenticated": ("authentication", "Authentication required"),
    "forbidden": ("forbidden", "Forbidden"),
    "quota_exceeded": ("limit", "Rate limit or quota exceeded"),
    "busy": ("too many requests", "Too many requests"),
    "duplicate": ("duplicate", "Duplicate job"),
    "timeout": ("timeout", "Timeout"),
}
"""By code: the word that must be in the text, and what is put before a text that does not have it."""


def failure(error: StokerError) -> Answer:
    """The answer to a request that was refused or could not be carried out."""
    answer: Answer = {
        "ok": False,
        "success": False,
        "error": worded(error.code, error.message),
        "code": error.code,
    }
    if error.retryable:
        answer["retryable"] = True
    return answer


def worded(code: str, text: str) -> str:
    """A text with the word that clients tell this kind of error by."""
    if code == "not_found" and text.startswith("job ") and "job not found" not in text:
        return f"Job not found: {text}"
    word, phrase = WORDS.get(code, ("", ""))
    return text if word in text.lower() else f"{phrase}: {text}"


SETTLING: dict[str, str] = {
    "not_found": "Job not found: {id} never existed, is forgotten, or belongs to another tenant",
    "lost_lease": "lost lease: this delivery of job {id} is over; another worker may have it by now",
    "wrong_state": "job {id} is not active: pull it first, and settle it only once",
}


def refused(job_id: int, code: str) -> StokerError:
    """The error for a single job that a command for many did not take."""
    kind = errors.BY_CODE.get(code, errors.Refused)
    return kind(SETTLING.get(code, "job {id} was refused").format(id=job_id))


def failed_items(items: Mapping[int, str], by: str = "id") -> list[Answer]:
    """What became of those that a command for many did not take."""
    return [{by: key, "code": code, "error": refused(key, code).message} for key, code in items.items()]


def ids_of(ids: Sequence[int], context: RequestContext) -> list[int] | list[list[int]]:
    """Ids as a list, or as `[[first, count, step], ...]` if the client asked for that."""
    if not context.ranges:
        return ids if type(ids) is list else list(ids)
    return runs_of(ids)


def runs_of(ids: Sequence[int]) -> list[list[int]]:
    """Ids as `[first, count, step]`."""
    if type(ids) is range:
        return [[ids.start, len(ids), ids.step]] if ids else []
    found: list[list[int]] = []
    for job_id in ids:
        if found:
            first, count, step = last = found[-1]
            if count == 1 or job_id == first + count * step:
                last[1], last[2] = count + 1, job_id - first if count == 1 else step
                continue
        found.append([job_id, 1, 0])
    return found


def done(**fields: Any) -> Answer:
    return {"ok": True, "success": True, **fields}


class Picks:
    """An answer that is some fields of the reply, by their own names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, request: Any, reply: Any, context: RequestContext) -> Answer:
        answer: Answer = {"ok": True, "success": True}
        for name in self.names:
            answer[name] = getattr(reply, name)
        return answer


accepted = Picks("level")
"""It was done, and there is nothing more to say."""
touched = Picks("count", "level")
"""The answer with the number of jobs that were changed."""
