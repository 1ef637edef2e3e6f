"""Find a job by its id.

Single jobs are in blocks of neighbouring ids, batches in a list sorted by their lowest id. No dictionary grows with the
backlog, so none stalls the loop by being resized, and walking in id order needs no sort of everything.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence

import msgspec

from stoker.engine.jobs import ACTIVE, EndedRun, SingleJob, UniformBatch, bytes_of_results, bytes_told
from stoker.engine.state import QueueState
from stoker.model.ids import SHARD_BITS
from stoker.model.replies import Chunk
from stoker.records.stored import Stored, StoredRun, total_size

BLOCK_BITS = SHARD_BITS + 10
"""1,024 neighbouring jobs in a block."""

COMPACT_MIN = 64

JOB_BYTES = 400
"""The memory of a single job with some detail, its place in the queue and its lease."""
BATCH_BYTES = 1_000
"""The memory of a batch with a slice or two, without its payloads."""


class Index:
    """All readable jobs of a shard."""

    __slots__ = ("_batches", "_block_numbers", "_blocks", "_gone", "_lowest", "bytes")

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, SingleJob]] = {}
        self._block_numbers: list[int] = []
        self._lowest: list[int] = []
        self._batches: list[UniformBatch] = []
        self._gone = 0
        self.bytes = 0
        """The approximate memory of everything here. The memory limit is compared with it."""

    # --- single jobs ---------------------------------------------------------------------------------

    def get(self, job_id: int) -> SingleJob | None:
        block = self._blocks.get(job_id >> BLOCK_BITS)
        return block.get(job_id) if block is not None else None

    def add(self, job: SingleJob) -> None:
        number = job.id >> BLOCK_BITS
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = {}
            if not self._block_numbers or number > self._block_numbers[-1]:
                self._block_numbers.append(number)
            else:
                insort(self._block_numbers, number)
        block[job.id] = job
        payload, detail = job.payload, job.detail
        self.bytes += JOB_BYTES + len(payload) if type(payload) is bytes else JOB_BYTES
        if detail is not None:
            self.bytes += bytes_told(detail)

    def remove(self, job_id: int) -> None:
        number = job_id >> BLOCK_BITS
        block = self._blocks[number]
        job = block.pop(job_id)
        payload, detail = job.payload, job.detail
        size = JOB_BYTES + len(payload) if type(payload) is bytes else JOB_BYTES
        if detail is not None and (
            # most jobs went well and have none of these: asking here costs half of what the call does
            detail.error or detail.stack or detail.result or detail.history or detail.logs or detail.partials
        ):
            size += bytes_told(detail)
        self.bytes -= size
        if not block:
            del self._blocks[number]
            del self._block_numbers[bisect_left(self._block_numbers, number)]

    # --- batches ---------------------------------------------------------------------------------

    def add_batch(self, batch: UniformBatch) -> int:
        """Add a batch and return the bytes of all its payloads, in memory or in the journal."""
        self._lowest.append(batch.lowest)
        self._batches.append(batch)
        size = total_size(batch.sizes, batch.count)
        self.bytes += BATCH_BYTES if type(batch.payloads) is StoredRun else BATCH_BYTES + size
        return size

    def batch_gone(self) -> None:
        """A batch has nothing readable left. It is taken out when there are enough of them."""
        self._gone += 1
        if self._gone > COMPACT_MIN and self._gone * 2 > len(self._batches):
            self.bytes -= BATCH_BYTES * self._gone
            self._batches = [batch for batch in self._batches if batch.left]
            self._lowest = [batch.lowest for batch in self._batches]
            self._gone = 0

    def forget_payload(self, entry: SingleJob | UniformBatch, stored: Stored | StoredRun) -> None:
        """The payload of a job, or the payloads of a batch, are only in the journal from now on."""
        if type(entry) is UniformBatch:
            assert type(stored) is StoredRun
            waiting, slices, ended = entry.waiting.runs(), entry.slices, entry.ended
            spans = [*waiting, *(run for piece in slices for run in piece.span.runs())]
            spans += [(run.start, run.stop) for run in ended]
            self.bytes -= sum(entry.bytes_of(start, stop) for start, stop in spans)
            entry.payloads = stored
        else:
            assert type(stored) is Stored
            if type(entry.payload) is bytes:
                self.bytes -= len(entry.payload)
                entry.payload = stored

    def forget_result(self, job: SingleJob, stored: Stored) -> None:
        """The result of a job is only in the journal from now on."""
        detail = job.details()
        if type(detail.result) is bytes:
            self.bytes -= len(detail.result)
            detail.result = stored

    def forget_results(self, run: EndedRun, start: int, stored: Sequence[Stored | None]) -> None:
        """The same for neighbours in a batch, starting at a position. None for results that are too small for this."""
        assert run.results is not None
        for place, one in enumerate(stored, start - run.origin):
            result = run.results[place]
            if one is not None and type(result) is bytes:
                self.bytes -= len(result)
                run.results[place] = one

    def forget_chunk(self, job: SingleJob, chunk: Chunk, stored: Stored) -> None:
        """A partial result, the last one of its job, is only in the journal from now on."""
        partials = job.details().partials
        if partials and type(chunk.data) is bytes and partials[-1] is chunk:
            self.bytes -= len(chunk.data)
            partials[-1] = msgspec.structs.replace(chunk, data=stored)

    def find_batch(self, job_id: int) -> tuple[UniformBatch, int] | None:
        """The batch whose range contains this id, and the position. The job may have left the batch."""
        at = bisect_right(self._lowest, job_id) - 1
        if at < 0:
            return None
        batch = self._batches[at]
        position, between = divmod(job_id - batch.first, batch.step)
        return (batch, position) if not between and 0 <= position < batch.count else None

    def bytes_found(self) -> int:
        """The memory of everything here, counted one by one."""
        found = BATCH_BYTES * len(self._batches)
        for job in self.jobs():
            found += JOB_BYTES + (len(job.payload) if type(job.payload) is bytes else 0)
            found += bytes_told(job.detail) if job.detail is not None else 0
        for batch in self.batches():
            spans = [run for span in (batch.waiting, *(piece.span for piece in batch.slices)) for run in span.runs()]
            spans += [(run.start, run.stop) for run in batch.ended]
            found += sum(batch.bytes_of(start, stop) for start, stop in spans)
            found += sum(bytes_of_results(run.results) for run in batch.ended)
        return found

    def live_bytes(self) -> dict[QueueState, int]:
        """Payload bytes of the live jobs of each queue, counted one by one."""
        found: dict[QueueState, int] = {}
        for job in self.jobs():
            if job.state <= ACTIVE:
                found[job.queue] = found.get(job.queue, 0) + len(job.payload)
        for batch in self.batches():
            spans = (batch.waiting, *(piece.span for piece in batch.slices))
            sizes = [batch.sizes_of(start, stop) for span in spans for start, stop in span.runs()]
            counts = [stop - start for span in spans for start, stop in span.runs()]
            found[batch.queue] = found.get(batch.queue, 0) + sum(map(total_size, sizes, counts))
        return found

    # --- walking ---------------------------------------------------------------------------------

    def jobs(self) -> Iterator[SingleJob]:
        for number in self._block_numbers:
            block = self._blocks[number]
            for job_id in sorted(block):
                yield block[job_id]

    def batches(self) -> Iterator[UniformBatch]:
        return (batch for batch in self._batches if batch.left)

    def walk(self, after: int | None, ascending: bool) -> Iterator[SingleJob | tuple[UniformBatch, int]]:
        """Every job after an id, in id order: single jobs, and (batch, position) for candidates in batches."""
        for _, entry in self.look(after, ascending, lambda batch: True):
            assert entry is not None
            yield entry

    def look(
        self, after: int | None, ascending: bool, wanted: Callable[[UniformBatch], bool]
    ) -> Iterator[tuple[int, "SingleJob | tuple[UniformBatch, int] | None"]]:
        """The same with their ids. A batch that is not `wanted` is passed over in one step: its first id, and None.

        A job that has left its batch comes before the place that it has left: a walk that ends there and goes on from
        this id later has seen the job.
        """
        singles = self._walk_jobs(after, ascending)
        members = self._walk_batches(after, ascending, wanted)
        sign = 1 if ascending else -1
        job, member = next(singles, None), next(members, None)
        while job is not None or member is not None:
            if member is None or (job is not None and job.id * sign <= member[0] * sign):
                assert job is not None
                yield job.id, job
                job = next(singles, None)
            else:
                yield member
                member = next(members, None)

    def _walk_jobs(self, after: int | None, ascending: bool) -> Iterator[SingleJob]:
        numbers = self._block_numbers
        if after is not None and ascending:
            numbers = numbers[bisect_left(numbers, after >> BLOCK_BITS) :]
        elif after is not None:
            numbers = numbers[: bisect_right(numbers, after >> BLOCK_BITS)]
        for number in numbers if ascending else reversed(numbers):
            block = self._blocks[number]
            for job_id in sorted(block, reverse=not ascending):
                if after is None or (job_id > after if ascending else job_id < after):
                    yield block[job_id]

    def _walk_batches(
        self, after: int | None, ascending: bool, wanted: Callable[[UniformBatch], bool]
    ) -> Iterator[tuple[int, tuple[UniformBatch, int] | None]]:
        batches = self._batches
        if after is not None and ascending:
            batches = batches[max(0, bisect_right(self._lowest, after) - 1) :]
        elif after is not None:
            batches = batches[: bisect_left(self._lowest, after)]
        for batch in batches if ascending else reversed(batches):
            if not batch.left:
                continue
            upwards = ascending == (batch.step > 0)
            positions = range(batch.count) if upwards else range(batch.count - 1, -1, -1)
            first = batch.id_at(positions[0])
            is_new = after is None or (first > after if ascending else first < after)
            if not wanted(batch):
                if is_new:
                    yield first, None
                continue
            if not is_new:
                assert after is not None
                positions = positions[abs(after - first) // abs(batch.step) + 1 :]
            for position in positions:
                yield batch.id_at(position), (batch, position)
