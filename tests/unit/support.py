"""Small makers for what the unit tests need often."""

from stoker.engine.jobs import WAITING, Batch, Job
from stoker.engine.shard import Shard
from stoker.engine.spans import Pieces, Span
from stoker.engine.state import Queue
from stoker.model.ids import STEP, make_id
from stoker.model.options import DEFAULT_OPTIONS, Options
from tests.soaking import drawing

QUICK = drawing(30)


def new_queue(name: str = "q") -> Queue:
    return Shard().queue("acme", name)


def new_job(queue: Queue, sequence: int, options: Options = DEFAULT_OPTIONS) -> Job:
    return Job(make_id(sequence, 0), queue, options, b"", 0, WAITING)


def new_batch(queue: Queue, sequence: int, count: int, options: Options = DEFAULT_OPTIONS) -> Batch:
    """Jobs with the sequence numbers from `sequence` on; for lifo ones the positions run downwards."""
    first, step = make_id(sequence, 0), STEP
    if options.lifo:
        first, step = make_id(sequence + count - 1, 0), -STEP
    payloads: list[bytes | None] = [b""] * count
    return Batch(
        first, step, count, queue, options, payloads, 0, 0, Span(0, count, count), Pieces(), Pieces(), left=count
    )
