"""Ended jobs that are still readable, by age and by count, exactly.

Ended jobs of a queue are numbered in the order of their ends. Jobs with the same policy (age, count) are in one lane in
that order, so both rules only ever take from the front of a lane: number + count tells when newer jobs push one out,
end + age when its time is over.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from stoker.engine.index import Index
from stoker.engine.jobs import GONE, Detail, EndedRun, SingleJob

EndedEntry = SingleJob | EndedRun
Policy = tuple[int, int]

SWEEP_MIN = 64


class RetainedJobs:
    """The ended jobs of one queue."""

    __slots__ = ("_by_serial", "_cleaned", "_forget", "_in_heap", "_index", "armed", "lanes", "serial")

    def __init__(self, index: Index, forget: Callable[[EndedEntry, int], None]) -> None:
        self.lanes: dict[Policy, deque[EndedEntry]] = {}
        self.serial = 0
        """How many ended jobs have been retained so far."""
        self._by_serial: list[tuple[int, Policy]] = []
        """When newer jobs push out the oldest job of a lane. At most one entry for each lane; it may be too early."""
        self._in_heap: set[Policy] = set()
        self._index = index
        self._forget = forget
        self._cleaned = 0
        self.armed: dict[Policy, int] = {}
        """When the oldest job of each lane is checked."""

    def add(self, ended: EndedEntry, jobs: int, policy: Policy) -> None:
        """Keep an ended job or run. Its `serial` is `self.serial + 1`."""
        self.serial += jobs
        lane = self.lanes.get(policy)
        if lane is None:
            lane = self.lanes[policy] = deque()
        lane.append(ended)
        if policy not in self._in_heap:
            self._in_heap.add(policy)
            heappush(self._by_serial, (serial_of(ended) + policy[1], policy))
        by_serial = self._by_serial
        while by_serial and by_serial[0][0] <= self.serial:
            self._push_out(heappop(by_serial)[1])

    def add_job(self, job: SingleJob, detail: Detail, policy: Policy) -> None:
        """`add` for one job. Faster if its lane is the only one."""
        by_serial, lane = self._by_serial, self.lanes.get(policy)
        if lane is None or len(by_serial) != 1 or not lane:
            detail.serial = self.serial + 1
            self.add(job, 1, policy)
            return
        self.serial = detail.serial = serial = self.serial + 1
        lane.append(job)
        if by_serial[0][0] > serial:
            return
        oldest = lane[0]
        if type(oldest) is not SingleJob or oldest.state == GONE or oldest.options.workflow is not None:
            self._push_out(heappop(by_serial)[1])
        elif oldest.detail.serial + policy[1] <= serial:  # type: ignore[union-attr]
            # the heap entry stays as it is: it may be too early, never too late
            lane.popleft()
            oldest.queue.counts[oldest.state] -= 1
            oldest.state = GONE
            self._index.remove(oldest.id)

    def _push_out(self, policy: Policy) -> None:
        """Forget jobs that `count` newer jobs have followed, and note when the next one of the lane is due."""
        self._in_heap.discard(policy)
        lane = self.lanes.get(policy)
        if lane is None:
            return
        last = self.serial - policy[1]
        while lane:
            ended = lane[0]
            if type(ended) is SingleJob and ended.state != GONE and ended.details().serial <= last:
                self._forget(ended, 1)  # the common case, without a call for each check
                lane.popleft()
                continue
            if is_gone(ended):
                lane.popleft()
                continue
            surplus = self.serial - policy[1] - serial_of(ended) + 1
            if surplus <= 0:
                self._in_heap.add(policy)
                heappush(self._by_serial, (serial_of(ended) + policy[1], policy))
                return
            if surplus < size_of(ended):
                self._forget(ended, surplus)
            else:
                self._forget(ended, size_of(ended))
                lane.popleft()
        del self.lanes[policy]

    def cleaned(self, entries: int) -> None:
        """Entries were forgotten by Clean. When they are many, they are taken out of their lanes."""
        self._cleaned += entries
        if self._cleaned > SWEEP_MIN and self._cleaned * 2 > sum(map(len, self.lanes.values())):
            self._cleaned = 0
            for lane in self.lanes.values():
                kept = [ended for ended in lane if not is_gone(ended)]
                lane.clear()
                lane.extend(kept)

    def oldest(self, policy: Policy) -> EndedEntry | None:
        """The first job of a lane that is still readable."""
        lane = self.lanes.get(policy)
        while lane and is_gone(lane[0]):
            lane.popleft()
        return lane[0] if lane else None

    def age_out(self, policy: Policy, at: int) -> int:
        """Forget jobs that ended `age` before `at`. Returns when the first job left in the lane ended, or 0."""
        lane = self.lanes.get(policy)
        if lane is None:
            return 0
        while lane:
            ended = lane[0]
            if is_gone(ended):
                lane.popleft()
            elif ended_at(ended) + policy[0] <= at:
                self._forget(ended, size_of(ended))
                lane.popleft()
            else:
                return ended_at(ended)
        del self.lanes[policy]
        return 0

    def entries(self) -> Iterator[EndedEntry]:
        """Everything still readable, oldest end first."""
        kept = [ended for lane in self.lanes.values() for ended in lane if not is_gone(ended)]
        return iter(sorted(kept, key=serial_of))


def serial_of(ended: EndedEntry) -> int:
    """The serial number of the first job that is left of it."""
    if type(ended) is EndedRun:
        return ended.serial + ended.start - ended.origin
    return ended.details().serial


def size_of(ended: EndedEntry) -> int:
    return ended.stop - ended.start if type(ended) is EndedRun else 1


def ended_at(ended: EndedEntry) -> int:
    if type(ended) is EndedRun:
        return ended.ended_at
    return ended.details().ended_at


def is_gone(ended: EndedEntry) -> bool:
    return ended.start >= ended.stop if type(ended) is EndedRun else ended.state == GONE
