"""A journal that survives nothing: it keeps the latest records for readers of events, up to a number of bytes."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stoker.journal.contract import Turn
from stoker.journal.room_watch import RoomWatch
from stoker.model.replies import Level
from stoker.records import records as rec
from stoker.records.codec import LogRow, encode_row
from stoker.records.stored import counted, total_size

RECORD_BYTES = 256
"""What a record weighs besides its payloads, roughly."""
JOB_BYTES = 64

ROW_RECORDS = 64
"""Written as one row for readers of records."""

SEGMENT_RECORDS = 1024
"""Records are dropped in segments of this size: dropping one by one would cost as much as adding."""


class MemoryJournal(RoomWatch):
    """The latest records of each shard."""

    levels: tuple[Level, ...] = ("memory",)
    at_once = levels
    reads_wait = False
    is_out = False

    def __init__(self, shards: int, bytes_max: int) -> None:
        super().__init__()
        self._logs = [_Log(bytes_max // shards) for _ in range(shards)]

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        for shard, records in turn:
            log = self._logs[shard]
            tail = log.tail
            kept = tail.records
            kept += records
            for record in records:
                kind = type(record)
                if kind is rec.JobsPushed and len(record.payloads) == 1:  # type: ignore[attr-defined]
                    tail.payload_bytes += len(record.payloads[0])  # type: ignore[attr-defined]
                elif kind is rec.Started or kind is rec.Completed:
                    runs = record.runs  # type: ignore[attr-defined]
                    if len(runs) != 1 or (kind is rec.Completed and record.results is not None):  # type: ignore[attr-defined]
                        tail.payload_bytes += BULK[kind](record)
                    elif not -2 < runs[0].count < 2:  # for one job, `RECORD_BYTES` says it all
                        tail.payload_bytes += JOB_BYTES if type(runs[0].sizes) is int else BULK[kind](record)
                elif kind in BULK:
                    tail.payload_bytes += BULK[kind](record)
            if len(kept) >= SEGMENT_RECORDS or tail.payload_bytes > log.segment_bytes:
                log.roll()

    def ticket(self) -> int:
        return 0

    def when_flushed(self, ticket: int, tell: Callable[[], object]) -> bool:
        return False

    @property
    def has_failed(self) -> bool:
        return False

    def reached(self, ticket: int) -> bool:
        return True

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        raise AssertionError("nothing lies in a journal that keeps nothing")

    def read_together(self, places: Iterable[tuple[int, int]]) -> None:
        pass

    def body(self, shard: int, sequence: int) -> bytes | None:
        raise AssertionError("nothing lies in a journal that keeps nothing")

    def expect(self, shard: int, coming: Sequence[int], gone: Sequence[int], now: int) -> None:
        pass

    def close(self) -> None:
        self._logs.clear()

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, rec.Record]]:
        found: list[tuple[int, rec.Record]] = []
        for segment in self._logs[shard].segments:
            if after < segment.last:
                skip = max(0, after + 1 - segment.first)
                records = segment.records[skip : skip + limit - len(found)]
                found += enumerate(records, segment.first + skip)
            if len(found) >= limit:
                break
        return found

    def rows(self, shard: int, after: int, bytes_max: int) -> list[LogRow]:
        found: list[LogRow] = []
        while bytes_max > 0 and (records := self.read(shard, after, ROW_RECORDS)):
            found.append(LogRow(encode_row([record for _, record in records]), records[0][0]))
            after = records[-1][0]
            bytes_max -= found[-1].size
        return found

    def lowest(self, shard: int) -> int:
        return self._logs[shard].segments[0].first

    def last(self, shard: int) -> int:
        return self._logs[shard].tail.last

    safe = last


def _payloads(record: rec.JobsPushed | rec.PartStaged | rec.ScheduledPush) -> int:
    jobs = len(record.payloads)
    return total_size(counted(record.sizes, record.payloads), jobs) + jobs * JOB_BYTES


def _staged(record: rec.PartStaged) -> int:
    return _payloads(record) + len(record.each or ()) * RECORD_BYTES


def _deliveries(record: Any) -> int:
    size = len(record.runs) * JOB_BYTES
    for run in record.runs:
        if type(run.sizes) is list:
            size += len(run.sizes) * 8
    return size


def _completed(record: rec.Completed) -> int:
    size = _deliveries(record)
    if record.results is not None:
        size += sum(len(result) for result in record.results if result is not None) + len(record.results) * 8
    return size


def _failure(record: rec.Retrying | rec.JobDied) -> int:
    return len(record.error) + len(record.stack)


def _pairs(record: Any) -> int:
    return len(record.runs) * JOB_BYTES


def _answer(record: rec.RequestRemembered | rec.Answered) -> int:
    return (len(record.runs) + len(record.refused) + len(record.duplicates)) * JOB_BYTES


def _keys(record: rec.KeysStored | rec.KeysForgotten) -> int:
    return sum(len(key) + JOB_BYTES for _, key in record.keys)


def _workflow(made: rec.WorkflowMade) -> int:
    return sum(RECORD_BYTES + len(step.after) * JOB_BYTES for step in made.steps)


def _message(record: rec.MessageSent | rec.HeardEarly) -> int:
    """What shards say to each other: payloads of workflows, or lists."""
    message = record.message
    if type(message) is rec.StartWorkflow:
        return _workflow(message.made) + sum(sum(map(len, payloads)) for payloads in message.payloads.values())
    if type(message) is rec.FillStepHere:
        return sum(map(len, message.payloads))
    listed = (getattr(message, name, ()) for name in ("stages", "pairs", "waiting"))
    return sum(map(len, listed)) * JOB_BYTES


BULK: dict[type[rec.Record], Callable[[Any], int]] = {
    rec.JobsPushed: _payloads,
    rec.PartStaged: _staged,
    rec.ScheduledPush: _payloads,
    rec.PartPublished: lambda record: len(record.sizes) * 8 if type(record.sizes) is list else 0,
    rec.ScheduleChanged: lambda record: len(record.schedule.payload),
    rec.Started: _deliveries,
    rec.Completed: _completed,
    rec.Retrying: _failure,
    rec.JobDied: _failure,
    rec.PartialAdded: lambda record: len(record.data),
    rec.PayloadUpdated: lambda record: len(record.payload),
    rec.KvWritten: lambda record: sum(len(key) + len(value) for key, value, _, _ in record.entries),
    rec.KvRemoved: lambda record: sum(len(key) + JOB_BYTES for key in record.keys),
    rec.KeysStored: _keys,
    rec.KeysForgotten: _keys,
    rec.Progressed: lambda record: len(record.message),
    rec.Logged: lambda record: len(record.message),
    rec.RequestRemembered: _answer,
    rec.Answered: _answer,
    rec.PushesAnswered: _pairs,
    rec.JobsEnded: _deliveries,
    rec.JobsReleased: lambda record: _deliveries(record) + len(record.note),
    rec.LeasesExtended: _pairs,
    rec.BecameDue: _pairs,
    rec.Removed: _pairs,
    rec.StepReleased: _pairs,
    rec.TransactionEnded: _pairs,
    rec.DeadRemoved: lambda record: len(record.jobs) * JOB_BYTES,
    rec.Watched: lambda record: len(record.pairs) * JOB_BYTES,
    rec.WorkflowPushed: lambda record: _workflow(record.made),
    rec.MessageSent: _message,
    rec.HeardEarly: _message,
}
"""What a record weighs beyond `RECORD_BYTES`, for those that can be large."""


class _Segment:
    __slots__ = ("first", "payload_bytes", "records")

    def __init__(self, first: int) -> None:
        self.first = first
        """The sequence number of its first record."""
        self.records: list[rec.Record] = []
        self.payload_bytes = 0

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1

    @property
    def bytes(self) -> int:
        return len(self.records) * RECORD_BYTES + self.payload_bytes


class _Log:
    __slots__ = ("bytes_max", "segment_bytes", "segments", "tail")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.segment_bytes = bytes_max // 16
        self.tail = _Segment(1)
        self.segments = deque([self.tail])

    def roll(self) -> None:
        """Begin a new segment, and let the oldest go while there is too much."""
        self.tail = _Segment(self.tail.last + 1)
        self.segments.append(self.tail)
        size = sum(segment.bytes for segment in self.segments)
        while size > self.bytes_max and len(self.segments) > 1:
            size -= self.segments.popleft().bytes
