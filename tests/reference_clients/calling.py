"""What the four clients have in common: how a refusal reads, and connections that are lent to one call at a time."""

import threading
from typing import Any, Generic, Protocol, TypeVar

PATIENCE_S = 60.0
"""Longer than any answer takes, those that wait included."""

Answer = dict[str, Any]


class Refused(Exception):
    """The server said no: `code` is for programs, the text for people."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer["error"])
        self.code: str = answer["code"]
        self.answer = answer


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Pool(Generic[C]):
    """Open connections that nobody uses at the moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[C] = []

    def take(self) -> C | None:
        with self._lock:
            return self._free.pop() if self._free else None

    def give_back(self, connection: C) -> None:
        with self._lock:
            self._free.append(connection)

    def close(self) -> None:
        with self._lock:
            for connection in self._free:
                connection.close()
            self._free.clear()


def checked(answer: Answer) -> Answer:
    """The answer, if it is one to a request that was carried out."""
    if not answer["ok"]:
        raise Refused(answer)
    return answer
