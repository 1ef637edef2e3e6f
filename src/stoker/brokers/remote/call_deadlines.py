"""When the calls of an event loop run out of time: one timer for all of them.

Most calls may take equally long, so those that began first end first: there is a line for each length, in order. A call
that is answered leaves its line at once. The timer looks at the first call of each line only.
"""

import asyncio

from stoker.brokers.remote.links import AsyncLink, LinkLost, ReplyFuture

Line = dict[ReplyFuture, tuple[float, AsyncLink]]
"""Open calls in the order of their ends, each with its end and its link."""


class CallDeadlines:
    """The open calls of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: dict[float, Line] = {}
        """By length in seconds."""
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        """When the timer looks, while there is one."""

    def __len__(self) -> int:
        """How many calls are open."""
        return sum(map(len, self._lines.values()))

    def add(self, call: ReplyFuture, timeout_s: float, link: AsyncLink) -> None:
        """Close the link if the call is still open after this time: a server that does not answer one call is away."""
        ends_at = self._loop.time() + timeout_s
        line = self._lines.get(timeout_s)
        if line is None:
            line = self._lines[timeout_s] = {}
        line[call] = (ends_at, link)
        if self._timer is None or ends_at < self._looks_at:
            self._look_at(ends_at)

    def remove(self, call: ReplyFuture, timeout_s: float) -> None:
        """The call has ended."""
        line = self._lines.get(timeout_s)
        if line is not None:
            line.pop(call, None)
            if not line and len(self._lines) > 1:  # a length that only one call had
                del self._lines[timeout_s]

    def end(self) -> None:
        """There are no more calls."""
        self._lines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        """End the calls that have run out of time, and look again when the next one may have."""
        self._timer = None
        now = self._loop.time()
        ends: list[float] = []
        for timeout_s, line in list(self._lines.items()):
            while line:
                call, (ends_at, link) = next(iter(line.items()))
                if ends_at > now:
                    ends.append(ends_at)
                    break
                del line[call]
                if not call.done():
                    call.set_exception(LinkLost(f"no answer within {timeout_s:g} s", sent=True))
                    link.close()
        if ends:
            self._look_at(min(ends))
