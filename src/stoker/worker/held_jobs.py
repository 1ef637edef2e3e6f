"""The jobs that a worker has in hand: whose leases it holds, and which of them its handlers have finished.

Only the worker's event loop writes here. The thread that renews leases reads.
"""

from collections.abc import Sequence

from stoker.worker.lane import Dropped, JobChunk, JobFailure, JobsCompleted, JobsHandedBack, Settlement


class HeldJobs:
    """All chunks that are not fully settled."""

    def __init__(self) -> None:
        self._chunks: dict[JobChunk, None] = {}
        self.running: dict[str, int] = {}
        """Jobs per queue that handlers have not finished, including those that wait in a lane."""
        self.unsettled = 0
        """Jobs that handlers have finished and the queue has not confirmed."""
        self.done = 0
        self.failed = 0
        self.released = 0
        self.lost = 0

    @property
    def held(self) -> int:
        return sum(self.running.values())

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    def chunks(self) -> list[JobChunk]:
        """A copy of the open chunks. May be called from any thread."""
        return list(self._chunks)

    def took(self, chunk: JobChunk) -> None:
        self._chunks[chunk] = None
        self.running[chunk.queue] = self.running.get(chunk.queue, 0) + len(chunk.ids)

    def ended(self, settlement: Settlement) -> Settlement | None:
        """Note a lane's settlement. Returns the part that is new: jobs that already have a settlement are left out."""
        chunk = settlement.chunk
        ids: Sequence[int] = (settlement.id,) if type(settlement) is JobFailure else settlement.ids  # type: ignore[union-attr]
        news = settlement
        if chunk.over and not chunk.over.isdisjoint(ids):
            fresh = [at for at, job in enumerate(ids) if job not in chunk.over]
            if not fresh:
                return None
            if len(fresh) < len(ids):
                news = part_of(settlement, fresh)
                ids = [ids[at] for at in fresh]
        chunk.over.update(ids)
        self.running[chunk.queue] -= len(ids)
        self.unsettled += len(ids)
        return news

    def settled(self, chunk: JobChunk, jobs: int) -> None:
        """Count jobs as confirmed by the queue, or as given up."""
        self.unsettled -= jobs
        chunk.left -= jobs
        if chunk.left <= 0:
            self._chunks.pop(chunk, None)
            if chunk.timer is not None:
                chunk.timer.cancel()


def part_of(settlement: Settlement, at: list[int]) -> Settlement:
    """The same settlement for some of its jobs."""
    if type(settlement) is JobsCompleted:
        results = settlement.results
        picked = None if results is None else [results[place] for place in at]
        seconds = [settlement.seconds[place] for place in at] if settlement.seconds else ()
        return JobsCompleted(settlement.chunk, [settlement.ids[place] for place in at], picked, seconds)
    if type(settlement) is JobsHandedBack:
        return JobsHandedBack(
            settlement.chunk, [settlement.ids[place] for place in at], settlement.delay_ms, settlement.note
        )
    assert type(settlement) is Dropped  # `JobFailure` has one job, and is never cut
    return Dropped(settlement.chunk, [settlement.ids[place] for place in at])
