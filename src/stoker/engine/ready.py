"""The ready jobs of a queue in the total order (-priority, lane, order).

It is a small heap of *levels*, one for each (-priority, lane) in use. A level is a deque of jobs and batches in
ascending order, and a small heap for entries that come back into the middle of it. New jobs go to one end of the deque,
retried ones mostly to the other: O(1) and 8 bytes for each job, where a heap of tuples costs 130.

Entries are removed lazily: an invalid one is dropped when it reaches the front, and all invalid ones are swept when
they are more than a fifth. A job that left and came back may be in the order twice. Both entries have the same place,
and pulling one makes the other invalid.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice

from stoker.engine.jobs import WAITING, SingleJob, UniformBatch
from stoker.engine.oldest_waiting import OldestWaiting
from stoker.model.options import DEFAULT_OPTIONS

Entry = SingleJob | UniformBatch
LevelKey = tuple[int, int]

SWEEP_MIN = 32

DEFAULT_LEVEL = (0, 1)


class ReadyLevel:
    """One priority and lane."""

    __slots__ = ("early", "key", "line", "number")

    def __init__(self, key: LevelKey) -> None:
        self.key = key
        self.line: deque[Entry] = deque()
        self.early: list[tuple[int, int, Entry]] = []
        self.number = 0

    def valid(self, entry: Entry) -> bool:
        if type(entry) is UniformBatch:
            return entry.waiting.left > 0 and not entry.due
        assert type(entry) is SingleJob
        if entry.state != WAITING:
            return False
        options = entry.options
        if options.priority != -self.key[0]:
            return False
        if options.group_id is None:
            return True
        group = entry.queue.groups.get(options.group_id)
        return group is not None and group.offered is entry


class ReadyJobs:
    """What can be pulled from a queue, limits and pauses aside."""

    __slots__ = ("_heap", "_levels", "out_of_line", "size", "stale")

    def __init__(self) -> None:
        self._levels: dict[LevelKey, ReadyLevel] = {}
        self._heap: list[LevelKey] = []
        self.size = 0
        self.stale = 0
        self.out_of_line = OldestWaiting()
        """Waiting jobs whose place does not tell their age. Those of groups may not be in the ready order at all."""

    def _level(self, entry: Entry) -> ReadyLevel:
        options = entry.options
        key = DEFAULT_LEVEL if options is DEFAULT_OPTIONS else (-options.priority, 0 if options.lifo else 1)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = ReadyLevel(key)
            heappush(self._heap, key)
        return level

    def first_level(self) -> ReadyLevel | None:
        """The first level, if the first entry of its line is the first of all. That entry may be invalid."""
        heap = self._heap
        if not heap:
            return None
        level = self._levels[heap[0]]
        return level if level.line and not level.early else None

    def add_new(self, entry: Entry) -> None:
        """Add an entry that is younger than all others of its level."""
        self.size += 1
        line = self._level(entry).line
        if entry.options.lifo:
            line.appendleft(entry)
            self.out_of_line.add(entry)
        else:
            line.append(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry that may belong anywhere in its level."""
        self.size += 1
        level = self._level(entry)
        line = level.line
        if entry.options.lifo:
            self.out_of_line.add(entry)
        if not line or entry.order > line[-1].last_order:
            line.append(entry)
        elif entry.last_order < line[0].order:
            line.appendleft(entry)
        else:
            level.number += 1
            heappush(level.early, (entry.order, level.number, entry))

    def left(self) -> None:
        """An entry has become invalid where it is. Each one is reported once and dropped once."""
        self.stale += 1
        if self.stale > SWEEP_MIN and self.stale * 5 > self.size:
            self._sweep()

    def front_run(self, most: int) -> tuple[Entry, int] | None:
        """The entry to be pulled next, and how many jobs may be taken from it at once.

        A batch gives its jobs up to its next hole. Only the job that left that hole can come in between, because no
        other job has the same priority and an order inside the batch.
        """
        entry = self.front()
        if entry is None:
            return None
        if type(entry) is SingleJob:
            return entry, 1
        start = entry.waiting.start
        return entry, entry.waiting.run(start, start + most) - start

    def front(self) -> Entry | None:
        """The entry to be pulled next."""
        heap = self._heap
        while heap:
            level = self._levels[heap[0]]
            line, early = level.line, level.early
            while line and not level.valid(line[0]):
                line.popleft()
                self._dropped()
            if early:
                self._clean_early(level)
            if early and not (line and line[0].order < early[0][0]):
                return early[0][2]
            if line:
                return line[0]
            del self._levels[heappop(heap)]
        return None

    def oldest_at(self) -> int:
        """When the oldest waiting job was pushed; 0 if none waits. The cost grows with the priorities in use only."""
        oldest = self.out_of_line.pushed_at()
        for (_, lane), level in self._levels.items():
            if lane:
                for entry in self._first_in(level):
                    oldest = min(oldest or entry.pushed_at, entry.pushed_at)
        return oldest

    def _first_in(self, level: ReadyLevel) -> Iterator[Entry]:
        """The first valid entries of a level's line and of its early heap."""
        line, early = level.line, level.early
        while line and not level.valid(line[0]):
            line.popleft()
            self._dropped()
        self._clean_early(level)
        if line:
            yield line[0]
        if early:
            yield early[0][2]

    def _clean_early(self, level: ReadyLevel) -> None:
        """Bring a valid entry with its current order to the top of the early heap."""
        early = level.early
        while early:
            order, number, entry = early[0]
            if not level.valid(entry):
                heappop(early)
                self._dropped()
            elif entry.order != order:  # a batch that was pulled from
                heapreplace(early, (entry.order, number, entry))
            else:
                return

    def _dropped(self) -> None:
        self.size -= 1
        if self.stale:
            self.stale -= 1

    def coming(self, most: int) -> Iterator[Entry]:
        """What will probably be pulled next. Good enough for reading payloads ahead."""
        for key in self._heap[:1]:
            yield from islice(self._levels[key].line, most)

    def entries(self) -> Iterator[Entry]:
        """Every valid entry once, in pull order."""
        for key in sorted(self._heap):
            level = self._levels[key]
            yield from self._sorted(level)

    def in_levels(self) -> Iterator[tuple[int, Entry]]:
        """Every valid entry once with its priority, in no order. Faster than `entries`."""
        for level in self._levels.values():
            priority = -level.key[0]
            yield from ((priority, entry) for entry in self._valid(level))

    def _valid(self, level: ReadyLevel) -> Iterator[Entry]:
        found = {id(entry): entry for entry in level.line}
        found.update((id(entry), entry) for _, _, entry in level.early)
        return (entry for entry in found.values() if level.valid(entry))

    def _sorted(self, level: ReadyLevel) -> list[Entry]:
        return sorted(self._valid(level), key=lambda entry: entry.order)

    def _sweep(self) -> None:
        self.size = self.stale = 0
        for key, level in list(self._levels.items()):
            kept = self._sorted(level)
            if not kept:
                del self._levels[key]
                continue
            level.line, level.early = deque(), []
            for entry in kept:
                self.size += 1
                if level.line and entry.order < level.line[-1].last_order:
                    level.number += 1
                    level.early.append((entry.order, level.number, entry))
                else:
                    level.line.append(entry)
            heapify(level.early)
        self._heap = sorted(self._levels)
