"""The oldest of the waiting jobs that do not stand in line by age: those of groups, and those pushed `lifo`.

Other waiting jobs are in the ready order oldest first, so their oldest is at the front of its level (`ready.py`). These
are in a heap by the time of their push. An entry that no longer waits is dropped when it reaches the top, and all of
them are swept when the heap has doubled since the last time.
"""

from heapq import heapify, heappop, heappush

from stoker.engine.jobs import WAITING, SingleJob, UniformBatch

SWEEP_MIN = 64

Entry = SingleJob | UniformBatch


class OldestWaiting:
    """Some waiting jobs and batches of a queue, oldest first."""

    __slots__ = ("_heap", "_most", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Entry]] = []
        self._most = SWEEP_MIN
        self._number = 0

    def add(self, entry: Entry) -> None:
        """An entry has begun to wait. It may be in the heap already."""
        self._number += 1
        heappush(self._heap, (entry.pushed_at, self._number, entry))
        if len(self._heap) > self._most:
            found = {id(one[2]): one for one in self._heap if waits(one[2])}
            self._heap = list(found.values())
            heapify(self._heap)
            self._most = max(SWEEP_MIN, 2 * len(self._heap))

    def pushed_at(self) -> int:
        """When the oldest of them was pushed; 0 if none waits."""
        heap = self._heap
        while heap and not waits(heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else 0


def waits(entry: Entry) -> bool:
    if type(entry) is UniformBatch:
        return entry.waiting.left > 0 and not entry.due
    assert type(entry) is SingleJob
    return entry.state == WAITING
