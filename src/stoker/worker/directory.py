"""Which handler a job is for, and what to do with a job that is for none.

A name that nobody here knows may belong to a release that is being deployed: such a job goes back to the queue, each
time for a little longer, and is failed only when it has been coming for a long time.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stoker.model.replies import Run
from stoker.worker.errors import BadHandler, UnknownHandler
from stoker.worker.handler import Handler

STRANGERS_MAX = 10_000
"""Jobs that are remembered; who is forgotten begins anew."""
PAUSE_MS, PAUSE_MS_MAX = 1_000, 30_000


def is_own(handler: Handler) -> bool:
    """Whether Stoker brings it along: it is found by its name, and never meant by a job without one."""
    return handler.name.startswith("stoker.")


@dataclass(frozen=True, slots=True)
class Sent:
    """A job that no handler here is for: back to the queue for so long, or to its end."""

    delay_ms: int
    error: UnknownHandler | None = None


class Directory:
    """The handlers of a worker by name, alias and queue."""

    def __init__(
        self, handlers: Iterable[Handler], unknown_for_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._by_name: dict[str, Handler] = {}
        self._by_queue: dict[str, list[Handler]] = {}
        self._own: list[Handler] = []
        self._unknown_for_s = unknown_for_s
        self._clock = clock
        self._strangers: dict[int, tuple[float, int]] = {}
        """When a job first came, and how often since."""
        for handler in handlers:
            for name in (handler.name, *handler.aliases):
                if name in self._by_name:
                    raise BadHandler(f"two handlers have the name {name!r}: give one of them another name")
                self._by_name[name] = handler
            if is_own(handler):
                self._own.append(handler)
            else:
                self._by_queue.setdefault(handler.queue, []).append(handler)

    @property
    def handlers(self) -> list[Handler]:
        return [*(handler for handlers in self._by_queue.values() for handler in handlers), *self._own]

    def of_queue(self, queue: str) -> list[Handler]:
        return self._by_queue.get(queue, [])

    def find(self, run: Run) -> Handler | None:
        name = run.options.name
        if name is not None:
            return self._by_name.get(name)
        own = self._by_queue.get(run.queue, ())
        return own[0] if len(own) == 1 else None

    def send_away(self, run: Run, job: int) -> Sent:
        """What becomes of a job that nobody here can run."""
        name = run.options.name
        if name is None:
            own = ", ".join(handler.name for handler in self._by_queue.get(run.queue, ())) or "none"
            return Sent(
                0,
                UnknownHandler(
                    f"the job has no name, and the queue {run.queue!r} has not exactly one handler in this worker"
                    f" ({own}): push it with name=..."
                ),
            )
        now = self._clock()
        first, times = self._strangers.pop(job, (now, 0))
        if now - first >= self._unknown_for_s:
            known = ", ".join(sorted(self._by_name)) or "none"
            return Sent(0, UnknownHandler(f"no handler has the name {name!r}; this worker has: {known}"))
        self._strangers[job] = first, times + 1
        if len(self._strangers) > STRANGERS_MAX:
            del self._strangers[next(iter(self._strangers))]
        return Sent(min(PAUSE_MS * 2**times, PAUSE_MS_MAX))
