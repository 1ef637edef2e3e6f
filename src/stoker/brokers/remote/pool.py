"""The connections of threads to one server: each call has one to itself, and idle ones are kept for the next call."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from stoker.model.errors import Closed

CLOSED = "this broker is closed: connect again"


class PooledLink(Protocol):
    """What a pool needs of a connection."""

    @property
    def is_alive(self) -> bool:
        """Whether an idle connection can be used again."""
        ...

    def close(self) -> None:
        """Also from another thread: it wakes the thread that waits for a reply."""
        ...

    def forget(self) -> None:
        """In a forked process: leave the connection to the parent."""
        ...


L = TypeVar("L", bound=PooledLink)


class LinkPool(Generic[L]):
    """The connections to one server. `idle_max` of them are kept while no call uses them."""

    def __init__(self, connect: Callable[[], L], idle_max: int) -> None:
        self._connect, self._idle_max = connect, idle_max
        self._lock = threading.Lock()
        self._idle: list[L] = []
        self._busy: set[L] = set()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    def take(self) -> L:
        while True:
            with self._lock:
                if self._closed:
                    raise Closed(CLOSED)
                link = self._idle.pop() if self._idle else None
                if link is not None:
                    self._busy.add(link)
            if link is None:
                link = self._connect()
                with self._lock:
                    self._busy.add(link)
                if self.is_closed:  # meanwhile
                    self.drop(link)
                    raise Closed(CLOSED)
                return link
            if link.is_alive:
                return link
            self.drop(link)

    def give_back(self, link: L) -> None:
        with self._lock:
            self._busy.discard(link)
            if not self._closed and len(self._idle) < self._idle_max:
                self._idle.append(link)
                return
        link.close()

    def drop(self, link: L) -> None:
        with self._lock:
            self._busy.discard(link)
        link.close()

    def close_idle(self) -> None:
        """The next calls connect anew."""
        with self._lock:
            links, self._idle = self._idle, []
        for link in links:
            link.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            links = [*self._idle, *self._busy]
            self._idle.clear()
        for link in links:
            link.close()

    def forget(self) -> None:
        """In a forked process: leave all connections to the parent."""
        for link in (*self._idle, *self._busy):
            link.forget()
