"""Filters that remember strings in a few bits each, and forget them after a time.

They only hint. "It might be there" is sometimes wrong, by the error rate. "It is not there" may mean that the string
was added so long ago that it has been rotated out. So the exact structure behind a filter decides: a "yes" is looked
up, and a "no" is believed only while the filter still has everything (`remembers`).
"""

import operator
import threading
from hashlib import blake2b
from typing import Protocol

import msgspec
from rbloom import Bloom

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class FilterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How large the filters are, how often they may be wrong, and how soon they forget."""

    idempotency_keys: int = 1_000_000
    """Old idempotency keys in one buffer of their filter. A store that has more gets larger buffers."""
    idempotency_error_rate: float = 0.01
    """The share of new keys that are looked up in vain."""
    idempotency_rotate_ms: int = 30 * MINUTE_MS
    """How often the buffer is rebuilt, without the keys that have left the store since."""
    ghost_ids: int = 2_000_000
    """Ids in one buffer, of ended jobs whose payloads are still in the journal."""
    ghost_error_rate: float = 1e-12
    """The share of live jobs that are first taken for ended. They are looked up before anything is done."""
    ghost_rotate_ms: int = 6 * HOUR_MS
    """An ended job is remembered for at least this long, unless more than `ghost_ids` end in that time."""
    cleanup_keys: int = 2_000_000
    """Keys in one buffer that were put into the store of old keys."""
    cleanup_error_rate: float = 0.01
    """The share of keys that are deleted from the store in vain."""
    cleanup_rotate_ms: int = 6 * HOUR_MS
    """A stored key is remembered for at least this long. Older ones go when the store removes expired keys."""


class Hint(Protocol):
    """The part of a filter that its users need. Tests use one that always says yes or no."""

    def add(self, key: str, now: int) -> None: ...

    def might_have(self, key: str, now: int) -> bool:
        """False: it is not there, as far as the filter remembers."""
        ...

    def mark(self, now: int) -> int:
        """The current moment, for `remembers`."""
        ...

    def remembers(self, mark: int) -> bool:
        """Whether it still has everything that was added since that moment."""
        ...

    def make_room(self, keys: int) -> None:
        """Prepare for this many keys."""
        ...


class RotatingFilter:
    """Two Bloom filters: the one that is being filled, and the one before it.

    A string is found until two rotations after it was added, so for at least `rotate_ms`. A full buffer rotates early,
    because an overfull one would say yes to everything. Threads may use it at the same time.
    """

    def __init__(self, capacity: int, error_rate: float, rotate_ms: int) -> None:
        self.capacity, self.error_rate, self.rotate_ms = capacity, error_rate, rotate_ms
        self.rotations = 0
        """What was added at rotation n is gone at rotation n + 2."""
        self._lock = threading.Lock()
        self._room = capacity
        self._current: Bloom | None = None
        self._current_room = 0
        self._current_keys = 0
        self._previous: Bloom | None = None
        self._started_at: int | None = None

    def add(self, key: str, now: int) -> None:
        number = stable_hash(key)
        with self._lock:
            self._rotate_in_time(now)
            if self._current is not None and number in self._current:
                return
            if self._current is not None and self._current_keys >= self._current_room:
                self._rotate(now)
            if self._current is None:
                self._current = Bloom(self._room, self.error_rate, operator.index)
                self._current_room, self._current_keys = self._room, 0
            self._current.add(number)
            self._current_keys += 1

    def might_have(self, key: str, now: int) -> bool:
        number = stable_hash(key)
        with self._lock:
            self._rotate_in_time(now)
            current, previous = self._current, self._previous
            return (current is not None and number in current) or (previous is not None and number in previous)

    def mark(self, now: int) -> int:
        with self._lock:
            self._rotate_in_time(now)
            return self.rotations

    def remembers(self, mark: int) -> bool:
        return self.rotations <= mark + 1

    def make_room(self, keys: int) -> None:
        """New buffers take at least this many keys, and at least their capacity."""
        with self._lock:
            self._room = max(self.capacity, keys)

    def _rotate_in_time(self, now: int) -> None:
        if self._started_at is None:
            self._started_at = now
        periods = (now - self._started_at) // self.rotate_ms
        for _ in range(min(periods, 2)):
            self._rotate(now)

    def _rotate(self, now: int) -> None:
        self._previous, self._current = self._current, None
        self.rotations += 1
        self._started_at = now


class Filters:
    """The three filters of a process."""

    def __init__(self, settings: FilterSettings | None = None) -> None:
        given = settings or FilterSettings()
        self.idempotency = RotatingFilter(
            given.idempotency_keys, given.idempotency_error_rate, given.idempotency_rotate_ms
        )
        """Keys in the store of old keys. Most new keys are recognised as new without reading the disk."""
        self.ghost = RotatingFilter(given.ghost_ids, given.ghost_error_rate, given.ghost_rotate_ms)
        """Ids of jobs that ended while their payloads were in the journal. Reading ahead may skip them.

        Nothing may be dropped because of it: one job in 1e12 has not ended.
        """
        self.cleanup = RotatingFilter(given.cleanup_keys, given.cleanup_error_rate, given.cleanup_rotate_ms)
        """Keys that were put into the store. Other keys need not be deleted there."""


def stable_hash(key: str) -> int:
    """A number that is the same in every process, unlike Python's own hash; 128 bits and signed, as rbloom needs it."""
    return int.from_bytes(blake2b(key.encode(), digest_size=16).digest(), "little", signed=True)
