"""Finds the handler of a job, and decides what to do with a job that has none.

A name that this worker does not know may belong to a release that is just being deployed. Such a job goes back to the
queue with a growing delay, and fails only after it has come back for a long time.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from stoker.model.hints import did_you_mean
from stoker.model.replies import Run
from stoker.worker.errors import BadHandler, UnknownHandler
from stoker.worker.handler import Handler

STRANGERS_MAX = 10_000
"""Unknown jobs that are remembered; a forgotten one starts over."""
PAUSE_MS, PAUSE_MS_MAX = 1_000, 30_000
NAMES_TOLD = 20
"""Known names that an error lists; more would hide the one that was meant."""


def is_own(handler: Handler) -> bool:
    """Whether the handler belongs to Stoker: it is found only by name, never for a job without one."""
    return handler.name.startswith("stoker.")


def listed(names: Collection[str]) -> str:
    """Names for an error text, shortened to `NAMES_TOLD`."""
    shown = sorted(names)
    more = f" and {len(shown) - NAMES_TOLD} more" if len(shown) > NAMES_TOLD else ""
    return (", ".join(shown[:NAMES_TOLD]) or "none") + more


@dataclass(frozen=True, slots=True)
class Unhandled:
    """The decision about a job without a handler, and why: released with a delay, or failed."""

    error: UnknownHandler
    delay_ms: int | None = None
    """None fails the job."""


class HandlerLookup:
    """The handlers of a worker by name, alias and queue."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        unknown_for_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        worker: str = "this worker",
    ) -> None:
        self._worker = worker
        self._by_name: dict[str, Handler] = {}
        self._by_queue: dict[str, list[Handler]] = {}
        self._own: list[Handler] = []
        self._unknown_for_s = unknown_for_s
        self._clock = clock
        self._strangers: dict[int, tuple[float, int]] = {}
        """By job: when it first came, and how often since."""
        for handler in handlers:
            for name in (handler.name, *handler.aliases):
                if name in self._by_name:
                    raise BadHandler(f"two handlers have the name {name!r}: rename one of them")
                self._by_name[name] = handler
            if is_own(handler):
                self._own.append(handler)
            else:
                self._by_queue.setdefault(handler.queue, []).append(handler)

    @property
    def handlers(self) -> list[Handler]:
        return [*(handler for handlers in self._by_queue.values() for handler in handlers), *self._own]

    @property
    def names(self) -> list[str]:
        """Names that jobs may have here, without Stoker's own."""
        return sorted(name for name, handler in self._by_name.items() if not is_own(handler))

    def of_queue(self, queue: str) -> list[Handler]:
        return self._by_queue.get(queue, [])

    def find(self, run: Run) -> Handler | None:
        name = run.options.name
        if name is not None:
            return self._by_name.get(name)
        own = self._by_queue.get(run.queue, ())
        return own[0] if len(own) == 1 else None

    def send_away(self, run: Run, job: int) -> Unhandled:
        """Decide what becomes of a job that no handler here can run."""
        name = run.options.name
        if name is None:
            own = listed([handler.name for handler in self._by_queue.get(run.queue, ())])
            return Unhandled(
                UnknownHandler(
                    f"the job has no name, so worker {self._worker} needs exactly one handler for the queue"
                    f" {run.queue!r} ({own}): push the job with name=..."
                )
            )
        known = self.names
        error = UnknownHandler(
            f"worker {self._worker} does not know the job name {name!r}; known: {listed(known)}"
            f"{did_you_mean(name, known)}"
        )
        now = self._clock()
        first, times = self._strangers.pop(job, (now, 0))
        if now - first >= self._unknown_for_s:
            return Unhandled(error)
        self._strangers[job] = first, times + 1
        if len(self._strangers) > STRANGERS_MAX:
            del self._strangers[next(iter(self._strangers))]
        return Unhandled(error, min(PAUSE_MS * 2**times, PAUSE_MS_MAX))
