"""Encode the records of one turn as bytes, and decode them.

    version, 1 byte | checksum, 4 | for each record: length of head, 4 | length of body, 4 | head | body

The head is the record as a tagged msgpack array. If a record carries payloads, they are its body: a separate msgpack
array, exactly as it was received. So readers that need only heads (recovery, event readers) never touch payloads, and a
payload can be fetched alone. The checksum covers everything after it and the position of the row, so a row in the wrong
place is as unreadable as a damaged one.

Version 1 had one record with its payloads inside and no checksum. It can still be read.
"""

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from operator import or_
from struct import Struct
from typing import Any
from zlib import crc32

import msgspec

from stoker.model.errors import StokerError
from stoker.model.options import DEFAULT_OPTIONS, Options
from stoker.records.records import (
    ALL,
    VERSION,
    Completed,
    JobsPushed,
    PartialAdded,
    PartPublished,
    PartStaged,
    PayloadUpdated,
    Record,
)
from stoker.records.stored import Stored, StoredRun, counted, sizes_of


class UnreadableRecord(StokerError):
    """The bytes are not a record of a version that this release knows."""

    code = "unreadable_record"


class NewerRecord(UnreadableRecord):
    """A later release wrote the record."""

    code = "newer_record"


# --- heads of records with a body --------------------------------------------------------------------


class _PushedHead(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="t", tag=1):
    at: int
    tenant: str
    queue: str
    first: int
    sizes: int | list[int]
    count: int = 1
    options: Options = DEFAULT_OPTIONS
    due: int = 0


class _PayloadUpdatedHead(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="t", tag=19):
    at: int
    tenant: str
    queue: str
    job: int
    size: int
    codec: int | None = None


class _StagedHead(msgspec.Struct, array_like=True, frozen=True, gc=False, tag_field="t", tag=28):
    at: int
    tenant: str
    transaction: str
    stage: str
    queue: str
    sizes: int | list[int]
    count: int
    options: Options
    each: list[Options] | None
    part: int | None
    expires_at: int


_WITH_BODY = (JobsPushed, PayloadUpdated, PartStaged)
_HEADS: Any = reduce(
    or_, (*(kind for kind in ALL if kind not in _WITH_BODY), _PushedHead, _PayloadUpdatedHead, _StagedHead)
)

_BODIED = (_PushedHead, _PayloadUpdatedHead, _StagedHead)

_encode = msgspec.msgpack.Encoder().encode
_heads = msgspec.msgpack.Decoder(_HEADS)
_bodies = msgspec.msgpack.Decoder(tuple[bytes, ...])
_version_1 = msgspec.msgpack.Decoder(reduce(or_, ALL))

_START = Struct("<BI")
_LENGTHS = Struct("<II")


def _split(record: Record) -> tuple[Any, bytes]:
    """The head and the body of a record with payloads."""
    if type(record) is JobsPushed:
        payloads = record.payloads
        count = len(payloads)
        sizes = record.sizes
        if sizes is None:
            sizes = len(payloads[0]) if count == 1 else sizes_of(payloads)
        options = record.options
        head = _PushedHead(record.at, record.tenant, record.queue, record.first, sizes, count, options, record.due)
        return head, _encode(payloads)
    if type(record) is PartStaged:
        head = _StagedHead(
            record.at,
            record.tenant,
            record.transaction,
            record.stage,
            record.queue,
            counted(record.sizes, record.payloads),
            len(record.payloads),
            record.options,
            record.each,
            record.part,
            record.expires_at,
        )  # type: ignore[assignment]
        return head, _encode(record.payloads)
    assert type(record) is PayloadUpdated
    updated = _PayloadUpdatedHead(record.at, record.tenant, record.queue, record.job, len(record.payload), record.codec)
    return updated, _encode((record.payload,))


def _joined(head: Any, payloads: Any) -> Record:
    """The record of this head. Its payloads are given as bytes or by their places in the log."""
    if type(head) is _PushedHead:
        tenant, queue, sizes = head.tenant, head.queue, head.sizes
        return JobsPushed(head.at, tenant, queue, head.first, payloads, head.options, head.due, sizes)
    if type(head) is _StagedHead:
        return PartStaged(
            head.at,
            head.tenant,
            head.transaction,
            head.stage,
            head.queue,
            list(payloads) if type(payloads) is tuple else payloads,
            head.options,
            head.each,
            head.part,
            head.expires_at,
            head.sizes,
        )
    return PayloadUpdated(head.at, head.tenant, head.queue, head.job, payloads[0], head.codec)


# --- rows --------------------------------------------------------------------------------------------


def encode_row(records: Sequence[Record], position: int = 0) -> bytes:
    """Encode all records of one shard in one turn, for the row at this position."""
    parts: list[bytes] = [b""]  # filled in last, so that large parts are copied only once
    for record in records:
        if type(record) in _WITH_BODY:
            split, body = _split(record)
            head = _encode(split)
            parts += (_LENGTHS.pack(len(head), len(body)), head, body)
        else:
            head = _encode(record)
            parts += (_LENGTHS.pack(len(head), 0), head)
    checksum = crc32(position.to_bytes(8, "little"))
    for part in parts:
        checksum = crc32(part, checksum)
    parts[0] = _START.pack(VERSION, checksum)
    return b"".join(parts)


class LogRow:
    """The records of one turn as bytes, with a verified checksum."""

    __slots__ = ("_data", "_frames", "_version_1", "first")

    def __init__(self, data: bytes, first: int, position: int = 0) -> None:
        self.first = first
        """The sequence number of its first record."""
        self._data = data
        self._version_1 = False
        self._frames: list[tuple[int, int, int]] = []
        """For each record: where its head begins, where it ends, and where its body ends."""
        if type(data) is not bytes:
            raise UnreadableRecord("damaged record: expected bytes")
        version = data[0] if data else 0
        if version == 1:
            self._version_1 = True
            self._frames = [(1, len(data), len(data))]
            return
        if version > VERSION:
            raise NewerRecord(
                f"the record has version {version}, but this release reads up to {VERSION}: a later release wrote it;"
                " use that release"
            )
        if version != VERSION or len(data) < _START.size:
            raise UnreadableRecord(f"damaged record: unknown version {version}")
        if crc32(memoryview(data)[_START.size :], crc32(position.to_bytes(8, "little"))) != _START.unpack_from(data)[1]:
            raise UnreadableRecord("damaged record: its checksum is wrong")
        at, end = _START.size, len(data)
        while at + _LENGTHS.size <= end:
            head, body = _LENGTHS.unpack_from(data, at)
            at += _LENGTHS.size
            self._frames.append((at, at + head, at + head + body))
            at += head + body
        if at != end:
            raise UnreadableRecord("damaged record: the lengths of its parts are wrong")

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def size(self) -> int:
        return len(self._data)

    def records(self, stored_from: int = 1) -> list[Record]:
        """Its records. If a record has at least `stored_from` payloads, they stay in the log and only their places are
        returned.
        """
        return [self.record(index, stored_from) for index in range(len(self._frames))]

    def record(self, index: int, stored_from: int = 1) -> Record:
        start, stop, end = self._frames[index]
        view = memoryview(self._data)
        try:
            if self._version_1:
                return _version_1.decode(view[start:stop])
            head = _heads.decode(view[start:stop])
            if stop == end:
                return head  # type: ignore[no-any-return]
            count = getattr(head, "count", 1)
            if count < stored_from:
                return _joined(head, _bodies.decode(view[stop:end]))
            return _joined(head, self._stored(head, self.first + index))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableRecord(f"damaged record: {error}") from error

    @staticmethod
    def _stored(head: Any, sequence: int) -> Sequence[Stored] | StoredRun:
        if type(head) is _PayloadUpdatedHead:
            return (Stored(sequence, 0, head.size),)
        return StoredRun(sequence, 0, head.count, head.sizes)

    def parts(self, index: int) -> tuple[bytes, bytes]:
        """The head and the body of a record, as bytes."""
        if self._version_1:  # version 1 had no heads, so the record is encoded again
            split = self.record(index)
            if type(split) in _WITH_BODY:
                head, body = _split(split)
                return _encode(head), body
            return _encode(split), b""
        start, stop, end = self._frames[index]
        return self._data[start:stop], self._data[stop:end]

    def payloads(self, sequence: int) -> Sequence[bytes]:
        """The payloads or results of one of its records. A job without a result has empty bytes."""
        index = sequence - self.first
        if self._version_1:
            record = self.record(index)
            if type(record) in (Completed, PartialAdded):
                return brought_by(record)
            return (record.payload,) if type(record) is PayloadUpdated else record.payloads  # type: ignore[attr-defined]
        _, stop, end = self._frames[index]
        if stop == end:
            return brought_by(self.record(index))
        return _bodies.decode(memoryview(self._data)[stop:end])


def brought_by(record: Record) -> Sequence[bytes]:
    """The data that a worker sent with this record, for records that keep it in the head."""
    if type(record) is PartialAdded:
        return (record.data,)
    assert type(record) is Completed, f"{type(record).__name__} brings nothing"
    return [result or b"" for result in record.results or ()]


def left_in_journal(record: Record, sequence: int, size_min: int) -> Record:
    """The same record, with results and partial results longer than `size_min` replaced by their places in the log."""
    if type(record) is PartialAdded and len(record.data) > size_min:
        return msgspec.structs.replace(record, data=Stored(sequence, 0, len(record.data)))
    if type(record) is Completed and any(len(result) > size_min for result in record.results or () if result):
        results = [
            Stored(sequence, place, len(result)) if result and len(result) > size_min else result
            for place, result in enumerate(record.results or ())
        ]
        return msgspec.structs.replace(record, results=results)
    return record


EVERYTHING = 1 << 62
"""For `LogRow.records`: decode all payloads, since no record has this many."""


def encode(record: Record) -> bytes:
    """Encode a single record."""
    return encode_row((record,))


def decode(data: bytes) -> Record:
    row = LogRow(data, 1)
    if len(row) != 1:
        raise UnreadableRecord(f"{len(row)} records where one was expected")
    return row.record(0, EVERYTHING)


# --- records on their way to a reader ----------------------------------------------------------------

PART_PUBLISHED = PartPublished.__struct_config__.tag
"""The tag of a record whose payloads are stored with another record."""


def staged_at(head: bytes) -> int:
    """The sequence number of the record that staged the jobs which this record published."""
    found = _heads.decode(head)
    assert type(found) is PartPublished
    return found.sequence


class Glance(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first fields of a head, to decide whether a record is worth decoding. Some records have no queue there."""

    tag: int
    at: int
    tenant: str
    queue: Any = None


glance = msgspec.msgpack.Decoder(Glance).decode
"""Decodes only these fields."""


def open_record(sequence: int, head: bytes, body: bytes = b"") -> Record:
    """A record from its head and body. Without a body only the sizes of its payloads are known."""
    try:
        found = _heads.decode(head)
        if type(found) is PartPublished and body:
            found = _PushedHead(
                found.at, found.tenant, found.queue, found.first, found.sizes, found.count, found.options, found.due
            )
        if type(found) not in _BODIED:
            return found  # type: ignore[no-any-return]
        return _joined(found, _bodies.decode(body) if body else LogRow._stored(found, sequence))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRecord(f"damaged record: {error}") from error


def queue_check(queues: Collection[str] | None, prefixes: Collection[str] | None) -> Callable[[Any], bool] | None:
    """Whether records of a queue are wanted; None if those of all queues are."""
    if queues is None and prefixes is None:
        return None
    names, beginnings = frozenset(queues or ()), tuple(prefixes or ())
    if not beginnings:
        return names.__contains__
    return lambda queue: queue in names or (type(queue) is str and queue.startswith(beginnings))
