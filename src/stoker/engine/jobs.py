"""Jobs as a shard holds them, in one of two forms.

Plain jobs that were pushed together are one `UniformBatch`: its waiting positions are a span, its pulled ones `Slice`s,
its ended ones `EndedRun`s. A job that has to differ (retried, cancelled, grouped, with a key, ...) is a `SingleJob`,
which has a `Detail` as soon as there is more to know than that it waits.

Only `engine/apply/` changes what is in here. The structs opt out of garbage collection: they are many, they hold no
cycles among themselves, and visiting millions of them would stall the loop. They are equal only to themselves.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import msgspec

from stoker.engine.batch_positions import BatchPieces, PositionSpan
from stoker.model.ids import SHARD_BITS
from stoker.model.options import Codec, Options
from stoker.model.replies import Attempt, Chunk, LogLine
from stoker.records.stored import Stored, StoredRun

if TYPE_CHECKING:
    from stoker.engine.state import QueueState

WAITING, DELAYED, BLOCKED, ACTIVE, COMPLETED, FAILED, CANCELLED, EXPIRED = range(8)
"""Indexes into STATES and into the counters. Small integers are fast to compare and to count with."""
GONE = 8
BLOCKED_DUE = -1
"""The due time of a batch whose jobs are blocked by the steps before theirs."""
LIVE_BYTES = 8
"""The place after the states in `Scope.counts`: the payload bytes of live jobs, added up like the states."""


class Detail(msgspec.Struct, gc=False, eq=False):
    """Everything about a job beyond the fact that it waits."""

    attempts: int = 0
    crashes: int = 0
    due: int = 0
    # the current delivery
    token: int = 0
    worker: str = ""
    claim: str | None = None
    started_at: int = 0
    lease_ms: int = 0
    lease_until: int = 0
    fires_at: int = 0
    """When the delivery fails automatically: the earlier of lease and timeout."""
    cancel: bool = False
    # the unfinished jobs that it waits for, by id, with the policy of the edge
    blockers: dict[int, str] | None = None
    # what happened
    error: str = ""
    stack: str = ""
    reason: str = ""
    history: list[Attempt] | None = None
    percent: int = 0
    message: str = ""
    logs: deque[LogLine] | None = None
    partials: deque[Chunk] | None = None
    next_chunk: int = 0
    # the end
    ended_at: int = 0
    result: bytes | Stored | None = None
    serial: int = 0
    """Its number among the ended jobs of its queue."""
    expires_at: int = 0
    retry_count: int = 0
    next_retry_at: int = 0
    revived: bool = False
    """After a retry from the dead letters its ttl no longer counts."""
    result_codec: Codec = "bytes"
    error_class: str = ""
    """The class of `error`, as the worker named it."""
    heard_at: int = 0
    """When the lease of the current delivery was last renewed; 0 = never."""
    ready_at: int = 0
    """Since when the job can be, or could be, delivered; 0 = since its push."""


@final
class SingleJob(msgspec.Struct, gc=False, eq=False):
    """A single job."""

    id: int
    queue: "QueueState"
    options: Options
    payload: bytes | Stored
    pushed_at: int
    state: int
    detail: Detail | None = None

    @property
    def order(self) -> int:
        sequence = self.id >> SHARD_BITS
        return -sequence if self.options.lifo else sequence

    @property
    def last_order(self) -> int:
        return self.order

    @property
    def ids(self) -> Sequence[int]:
        return (self.id,)

    @property
    def lowest(self) -> int:
        return self.id

    @property
    def jobs(self) -> int:
        return 1

    def details(self) -> Detail:
        """Its detail, created if there is none yet. For `engine/apply/` only."""
        detail = self.detail
        if detail is None:
            detail = self.detail = Detail()
        return detail


@final
class UniformBatch(msgspec.Struct, gc=False, eq=False):
    """Plain jobs pushed together with the same options.

    Position p has id `first + p * step`. The step of a lifo batch is negative, so positions always ascend in pull
    order.
    """

    first: int
    step: int
    count: int
    queue: "QueueState"
    options: Options
    payloads: list[bytes | None] | StoredRun
    sizes: int | list[int]
    pushed_at: int
    waiting: PositionSpan
    slices: "BatchPieces[Slice]"
    ended: "BatchPieces[EndedRun]"
    due: int = 0
    """The jobs are delayed until then; 0 = they wait; `BLOCKED_DUE` = they are blocked."""
    left: int = 0
    """Positions that are still readable here: waiting, active or ended."""
    ready_at: int = 0
    """Since when its jobs could be delivered; 0 = since their push."""

    @property
    def order(self) -> int:
        return self.order_at(self.waiting.start)

    @property
    def last_order(self) -> int:
        return self.order_at(self.count - 1)

    def order_at(self, position: int) -> int:
        sequence = self.first >> SHARD_BITS
        return (sequence if self.step > 0 else -sequence) + position

    @property
    def pending(self) -> int:
        """The state of the jobs in `waiting`."""
        if not self.due:
            return WAITING
        return BLOCKED if self.due == BLOCKED_DUE else DELAYED

    @property
    def lowest(self) -> int:
        return self.first if self.step > 0 else self.id_at(self.count - 1)

    def id_at(self, position: int) -> int:
        return self.first + position * self.step

    def ids(self, start: int, stop: int) -> range:
        return range(self.id_at(start), self.id_at(stop), self.step)

    def sizes_of(self, start: int, stop: int) -> int | list[int]:
        return self.sizes if isinstance(self.sizes, int) else self.sizes[start:stop]

    def bytes_of(self, start: int, stop: int) -> int:
        """The memory of these payloads: none if they are in the journal."""
        if type(self.payloads) is StoredRun:
            return 0
        return self.sizes * (stop - start) if isinstance(self.sizes, int) else sum(self.sizes[start:stop])


@final
class Slice(msgspec.Struct, gc=False, eq=False):
    """Positions of a batch that one pull delivered together, all in their first attempt."""

    batch: UniformBatch
    origin: int
    span: PositionSpan
    token: int
    worker: str
    claim: str | None
    started_at: int
    lease_ms: int
    lease_until: int
    fires_at: int
    heard_at: int = 0
    """When the lease was last renewed; 0 = never."""

    def covers(self, position: int) -> bool:
        return position in self.span


@final
class EndedRun(msgspec.Struct, gc=False, eq=False):
    """Neighbouring positions that ended together and are still readable."""

    batch: UniformBatch
    origin: int
    start: int
    stop: int
    state: int
    ended_at: int
    serial: int
    """The serial number of the position `origin`; the others follow."""
    started_at: int = 0
    worker: str = ""
    reason: str = ""
    results: "Results | None" = None
    codec: Codec = "bytes"
    """The codec of the results."""

    def covers(self, position: int) -> bool:
        return self.start <= position < self.stop


@final
class Members(msgspec.Struct, gc=False):
    """Neighbouring positions of a batch in the same state, for decisions about many jobs."""

    batch: UniformBatch
    start: int
    stop: int

    @property
    def queue(self) -> "QueueState":
        return self.batch.queue

    @property
    def options(self) -> Options:
        return self.batch.options

    @property
    def pushed_at(self) -> int:
        return self.batch.pushed_at

    @property
    def ids(self) -> Sequence[int]:
        return self.batch.ids(self.start, self.stop)

    @property
    def lowest(self) -> int:
        return min(self.batch.id_at(self.start), self.batch.id_at(self.stop - 1))

    @property
    def jobs(self) -> int:
        return self.stop - self.start

    @property
    def slice(self) -> Slice | None:
        """The delivery that they are in, if they are active."""
        return self.batch.slices.find(self.start)


Results = list[bytes | Stored | None]
"""The results of jobs, or their places in the journal."""

LINE_BYTES = 150
"""The memory of a log line or a partial result without its text or data."""


def bytes_told(detail: Detail) -> int:
    """The memory of everything that workers reported about a job: its result, logs, partial results and errors."""
    size = len(detail.error) + len(detail.stack)
    if type(detail.result) is bytes:
        size += len(detail.result)
    if detail.history is not None:
        size += sum([len(attempt.error) for attempt in detail.history])
    if detail.logs is not None:
        size += sum([LINE_BYTES + len(line.message) for line in detail.logs])
    if detail.partials is not None:
        size += sum(map(chunk_bytes, detail.partials))
    return size


def chunk_bytes(chunk: Chunk) -> int:
    return LINE_BYTES + (len(chunk.data) if type(chunk.data) is bytes else 0)


def bytes_of_results(results: Results | None) -> int:
    """The memory of results: none for those in the journal."""
    return sum([len(result) for result in results or () if type(result) is bytes])


Part = SingleJob | Members
"""One or more jobs of one queue, in either form."""
