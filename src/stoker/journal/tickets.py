"""Callers that wait until a part of a journal is safe. Any thread may wait, and any thread may say how far it is."""

import threading
from collections.abc import Callable

Tell = Callable[[], object]


class Tickets:
    """A number that grows, and the callers that wait for it.

    While `may_tell` says no, a ticket that is reached is not told of either: call `tell` when it may be again.
    """

    def __init__(self, may_tell: Callable[[], bool] = lambda: True) -> None:
        self._may_tell = may_tell
        self.reached = 0
        """Everything up to this ticket is safe."""
        self.is_over = False
        """Whether it will never grow again."""
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Tell]] = []

    def when(self, ticket: int, tell: Tell) -> bool:
        """Call `tell` once a ticket is reached or never will be; false if it is reached already."""
        with self._lock:
            if self.reached >= ticket and not self.is_over and self._may_tell():
                return False
            self._waiting.append((ticket, tell))
        if self.is_over:
            self.tell()
        return True

    def reach(self, ticket: int) -> None:
        self.reached = ticket
        self.tell()

    def end(self) -> None:
        """The journal has failed: tell every caller that waits, and from now on every caller that comes."""
        self.is_over = True
        self.tell()

    def tell(self) -> None:
        """Tell the callers whose ticket is reached."""
        with self._lock:
            over, reached = self.is_over, self.reached if self._may_tell() else 0
            told = [tell for ticket, tell in self._waiting if over or ticket <= reached]
            self._waiting = [] if over else [entry for entry in self._waiting if entry[0] > reached]
        for tell in told:
            tell()
