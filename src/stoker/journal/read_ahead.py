"""Reading payloads back before they are needed.

The runtime says which payloads in the journal it will hand out next; a thread reads them meanwhile. What the thread
has not read in time is read by the call that needs it: this is about speed alone.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue

from stoker.journal.bloom_filters import RotatingFilter
from stoker.journal.patience import patiently
from stoker.model.errors import Damaged
from stoker.records.codec import LogRow

Place = tuple[int, int]
"""Shard and sequence number of a record."""

BYTES_MAX = 32 * 1024 * 1024
OBJECT_BYTES = 48
"""What a payload in memory takes besides its bytes: small ones come to half as much again as their row."""


class ReadAhead:
    """Payloads read lately, or ahead of need."""

    def __init__(self, find: Callable[[int, int], LogRow], is_settled: Callable[[int, int], bool]) -> None:
        self._find = find
        self._is_settled = is_settled
        """Whether a record lies in a file that is written no more."""
        self._lock = threading.Lock()
        self._read: OrderedDict[Place, tuple[Sequence[bytes] | Damaged, int]] = OrderedDict()
        self._bytes = 0
        self._asked: SimpleQueue[tuple[Place, int] | None] = SimpleQueue()
        self._pending: set[Place] = set()
        self._thread: threading.Thread | None = None
        self.ghosts: RotatingFilter | None = None
        """Records whose payloads were all handed out: reading them ahead would be too late. It only hints."""
        self.hits = 0
        self.misses = 0

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        with self._lock:
            found = self._read.get((shard, sequence))
            if found is not None:
                self._read.move_to_end((shard, sequence))
        if found is not None:
            self.hits += 1
            if isinstance(found[0], Damaged):
                raise found[0]
            return found[0]
        self.misses += 1
        return self._load((shard, sequence))

    def has(self, shard: int, sequence: int) -> bool:
        """Whether the payloads of a record are in memory."""
        with self._lock:
            return (shard, sequence) in self._read

    def _load(self, place: Place) -> Sequence[bytes]:
        try:
            return self.keep(place, self._find(*place))
        except Damaged as error:
            self._keep(place, error, OBJECT_BYTES)
            raise

    def keep(self, place: Place, row: LogRow) -> Sequence[bytes]:
        """Keep the payloads of a record for a while. The row that holds it was read."""
        payloads = row.payloads(place[1])
        self._keep(place, payloads, row.size + OBJECT_BYTES * len(payloads))
        return payloads

    def _keep(self, place: Place, found: Sequence[bytes] | Damaged, size: int) -> None:
        with self._lock:
            if place not in self._read:
                self._read[place] = (found, size)
                self._bytes += size
                while self._bytes > BYTES_MAX and len(self._read) > 1:
                    self._bytes -= self._read.popitem(last=False)[1][1]

    def expect(self, shard: int, coming: Iterable[int], gone: Iterable[int], now: int) -> None:
        """These records come next, those are done with."""
        for sequence in gone:
            with self._lock:
                done = self._read.pop((shard, sequence), None)
                self._bytes -= done[1] if done is not None else 0
            if self.ghosts is not None:
                self.ghosts.add(f"{shard}:{sequence}", now)
        for sequence in coming:
            place = (shard, sequence)
            if place not in self._pending and place not in self._read and self._is_settled(*place):
                self._pending.add(place)
                self._asked.put((place, now))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="stoker-ahead", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            place, now = asked
            try:
                if self.ghosts is None or not self.ghosts.might_have(f"{place[0]}:{place[1]}", now):
                    with patiently():
                        self._load(place)
            except Exception:
                pass  # the command that needs it reads it again, and says what is wrong
            self._pending.discard(place)

    def close(self) -> None:
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None
