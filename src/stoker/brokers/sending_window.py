"""Numbers for the pushes of one client, so that the queue recognises a push that is sent again.

A client has one name and counts its pushes. Each push tells the lowest number that is still open (`settled`); a shard
may forget the answers below it. A number is open until the client has the answer or gives the push up, and it is open
for all shards together: so no shard forgets an answer that the client may ask for again.

A name has a window: its highest number stays near its lowest open one, because a shard remembers only so many answers
of a sender. When the window is full, the client uses a further name. No push waits for another one.
"""

import secrets
from collections import deque

from stoker.model import commands as c

WINDOW = 500
"""Numbers of one name from the lowest open one up to the highest.

This is half of `Limits.sendings_max`. The other half is for pushes that the client gave up and that arrive late: the
shard remembers them, too, until the next push of the name.
"""


class SendingWindow:
    """One name and its numbers. Any thread may call `settle` and `narrow`; one thread at a time takes numbers."""

    __slots__ = ("_ahead", "_end", "_heard", "_lowest", "_next", "_size", "name", "settle")

    def __init__(self, size: int) -> None:
        self.name = f"stoker:{secrets.token_hex(12)}"
        self._size = size
        self._next = 1
        self._lowest = 1
        """The lowest open number; the next one, if none is open."""
        self._end = self._lowest + size
        """Numbers below it may be taken in this turn."""
        self._ahead: set[int] = set()
        """Settled numbers above the lowest open one."""
        self._heard: deque[int] = deque()
        """Settled numbers that the next `take` will look at."""
        self.settle = self._heard.append
        """The client will not send this number again. Takes no lock: the garbage collector may end a call anywhere."""

    def take(self) -> c.Sending | None:
        """The next number; None at the end of a turn."""
        heard = self._heard
        while heard:
            settled = heard.popleft()
            if settled != self._lowest:
                self._ahead.add(settled)
                continue
            self._lowest += 1
            while self._lowest in self._ahead:
                self._ahead.remove(self._lowest)
                self._lowest += 1
        number = self._next
        if number >= self._end:
            return None
        self._next = number + 1
        return c.Sending(self.name, number, self._lowest)

    def begin_turn(self) -> c.Sending | None:
        """The first number of another turn; None if the window is full."""
        sending = self.take()
        if sending is None:
            self._end = self._lowest + self._size
            sending = self.take()
        return sending

    def narrow(self, size: int) -> None:
        """End the turn; the next one has fewer numbers."""
        self._size = size
        self._end = 0


class SendingWindows:
    """All names of one client, for any number of threads: one, unless its window is full.

    A thread has a window for itself while it takes a number. So there is no lock, and a signal handler may push, too.
    A thread that finds no window in that moment uses a further name.
    """

    def __init__(self, size: int = WINDOW) -> None:
        self._size = size
        self._by_name: dict[str, SendingWindow] = {}
        self._queue: deque[SendingWindow] = deque()
        """The window whose turn it is comes last."""

    def take(self) -> c.Sending:
        """A number for a push. The caller settles it when the push has ended, also when it failed."""
        try:
            window = self._queue.pop()
        except IndexError:
            return self._under_a_further_name()
        sending = window.take()
        if sending is None:
            return self._in_the_next_turn(window)
        self._queue.append(window)
        return sending

    def _in_the_next_turn(self, ended: SendingWindow) -> c.Sending:
        """Names take turns, so that each soon tells the shards what is settled."""
        queue = self._queue
        queue.appendleft(ended)
        for _ in range(len(queue)):
            try:
                window = queue.pop()
            except IndexError:
                break
            sending = window.begin_turn()
            if sending is not None:
                queue.append(window)
                return sending
            queue.appendleft(window)
        return self._under_a_further_name()

    def _under_a_further_name(self) -> c.Sending:
        window = SendingWindow(self._size)
        self._by_name[window.name] = window
        sending = window.take()
        assert sending is not None
        self._queue.append(window)
        return sending

    def settle(self, sending: c.Sending) -> None:
        """The push was answered, refused or given up: the client will not send it again."""
        self._by_name[sending.sender].settle(sending.number)

    def narrow(self, refused: c.Sending) -> bool:
        """Use smaller windows, because the server allows fewer open numbers; false if they cannot be smaller."""
        distance = refused.number - refused.settled
        size = max(1, distance // 2)
        if size < self._size:
            self._size = size
            for window in list(self._by_name.values()):
                window.narrow(size)
        return distance > 0
