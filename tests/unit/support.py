"""Small makers for what the unit tests need often."""

from stoker.engine.batch_positions import BatchPieces, PositionSpan
from stoker.engine.jobs import WAITING, SingleJob, UniformBatch
from stoker.engine.shard import Shard
from stoker.engine.state import QueueState
from stoker.model.ids import STEP, make_id
from stoker.model.options import DEFAULT_OPTIONS, Options
from tests.soaking import drawing

QUICK = drawing(30)


def new_queue(name: str = "q") -> QueueState:
    return Shard().queue("acme", name)


def new_job(queue: QueueState, sequence: int, options: Options = DEFAULT_OPTIONS) -> SingleJob:
    return SingleJob(make_id(sequence, 0), queue, options, b"", 0, WAITING)


def new_batch(queue: QueueState, sequence: int, count: int, options: Options = DEFAULT_OPTIONS) -> UniformBatch:
    """Jobs with the sequence numbers from `sequence` on; for lifo ones the positions run downwards."""
    first, step = make_id(sequence, 0), STEP
    if options.lifo:
        first, step = make_id(sequence + count - 1, 0), -STEP
    payloads: list[bytes | None] = [b""] * count
    return UniformBatch(
        first,
        step,
        count,
        queue,
        options,
        payloads,
        0,
        0,
        PositionSpan(0, count, count),
        BatchPieces(),
        BatchPieces(),
        left=count,
    )
