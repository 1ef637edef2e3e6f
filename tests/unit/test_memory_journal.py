"""The journal in memory: what it keeps, and reading it by sequence number."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from stoker.journal.memory import BULK, MemoryJournal
from stoker.model.options import Options
from stoker.records import records as rec
from stoker.records.records import CancelRequested, JobsPushed, Record
from tests.golden.examples import RECORDS
from tests.unit.support import QUICK

PLENTY = 1 << 40


def note(number: int) -> Record:
    return CancelRequested(number, "acme", "q", 64)


def load(number: int, size: int) -> Record:
    return JobsPushed(number, "acme", "q", 64, (b"x" * size,))


def numbers(journal: MemoryJournal, after: int, limit: int, shard: int = 0) -> list[int]:
    """The sequence numbers read; each record carries the number that it should have."""
    found = journal.read(shard, after, limit)
    assert all(record.at == sequence for sequence, record in found)  # type: ignore[attr-defined]
    return [sequence for sequence, _ in found]


def filled(count: int, bytes_max: int = PLENTY, size: int = 0, turn: int = 7) -> MemoryJournal:
    journal = MemoryJournal(1, bytes_max)
    records = [load(n, size) if size else note(n) for n in range(1, count + 1)]
    for start in range(0, count, turn):
        journal.append([(0, records[start : start + turn])])
    return journal


def test_an_empty_journal_has_nothing_and_starts_at_one():
    journal = MemoryJournal(1, PLENTY)
    assert (journal.lowest(0), journal.last(0)) == (1, 0)
    assert journal.read(0, 0, 10) == []


def test_sequence_numbers_start_at_one_and_have_no_gaps():
    journal = filled(5_000)
    assert numbers(journal, 0, 10_000) == list(range(1, 5_001))
    assert (journal.lowest(0), journal.last(0)) == (1, 5_000)


@QUICK
@given(st.integers(0, 3_100), st.integers(1, 3_100))
def test_a_page_is_what_follows_up_to_its_limit(after: int, limit: int):
    assert numbers(LONG, after, limit) == list(range(1, 3_001))[after : after + limit]


LONG = filled(3_000)


def test_reading_page_by_page_meets_every_record_once():
    met: list[int] = []
    while page := numbers(LONG, met[-1] if met else 0, 999):
        met += page
    assert met == list(range(1, 3_001))


@pytest.mark.parametrize("size", [0, 100, 10_000, 300_000])
def test_the_oldest_leave_when_there_is_too_much(size: int):
    bytes_max = 1 << 20
    journal = filled(20_000 if size < 10_000 else 500, bytes_max, size)
    last = journal.last(0)
    assert last == (20_000 if size < 10_000 else 500)
    assert 1 < journal.lowest(0) <= last + 1
    kept = numbers(journal, 0, last)
    assert kept == list(range(journal.lowest(0), last + 1)), "what is kept is the latest, without gaps"
    assert sum(size for _ in kept) <= 2 * bytes_max


def test_a_small_record_after_a_large_one_is_kept():
    journal = MemoryJournal(1, 1_000)
    journal.append([(0, [load(1, 100_000)])])
    journal.append([(0, [note(2)])])
    assert journal.last(0) == 2
    assert numbers(journal, 1, 10) == [2]


def test_whoever_reads_below_the_lowest_gets_what_is_left():
    journal = filled(20_000, 1 << 20)
    lowest = journal.lowest(0)
    assert numbers(journal, 0, 3) == [lowest, lowest + 1, lowest + 2]
    assert numbers(journal, lowest - 1, 1) == [lowest]


def test_reading_beyond_the_last_finds_nothing():
    assert numbers(filled(10), 10, 5) == []
    assert numbers(filled(10), 99, 5) == []


def test_shards_are_numbered_apart_and_share_the_room():
    journal = MemoryJournal(2, 1 << 20)
    journal.append([(0, [note(1), note(2)])])
    for number in range(1, 20_001):
        journal.append([(1, [note(number)])])
    assert numbers(journal, 0, 9, shard=0) == [1, 2]
    assert (journal.last(0), journal.last(1)) == (2, 20_000)
    assert journal.lowest(0) == 1
    assert journal.lowest(1) > 1


def test_a_turn_without_records_changes_nothing():
    journal = filled(3)
    journal.append([(0, [])])
    assert journal.last(0) == 3


# --- what a record weighs --------------------------------------------------------------------------

FIXED = (Options, rec.Labels)
"""Shared by many records."""


def can_grow(kind: inspect.Type) -> bool:
    """Whether a value of this type may hold any number of items or bytes."""
    if isinstance(kind, inspect.CollectionType | inspect.DictType | inspect.BytesType):
        return True
    return any(can_grow(part) for part in parts_of(kind))


def parts_of(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        yield from kind.types
    elif isinstance(kind, inspect.TupleType):
        yield from kind.item_types
    elif isinstance(kind, inspect.StructType) and kind.cls not in FIXED:
        yield from (field.type for field in kind.fields)


@pytest.mark.parametrize("kind", rec.ALL, ids=lambda kind: kind.__name__)
def test_a_record_that_can_be_large_is_weighed_in_memory(kind: type[rec.Record]):
    grows = [field.encode_name for field in inspect.type_info(kind).fields if can_grow(field.type)]  # type: ignore[attr-defined]
    assert not grows or kind in BULK, f"journal/memory.py does not count {kind.__name__}: {', '.join(grows)}"


LISTS = [
    (record, field)
    for record in RECORDS
    for field in record.__struct_fields__
    if isinstance(getattr(record, field), list | tuple | bytes) and getattr(record, field)
    if field != "sizes" or "payloads" not in record.__struct_fields__  # a payload weighs more than the number
]


@pytest.mark.parametrize(
    ("record", "field"), LISTS, ids=lambda value: value if isinstance(value, str) else type(value).__name__
)
def test_a_longer_record_weighs_more(record: rec.Record, field: str):
    longer = msgspec.structs.replace(record, **{field: getattr(record, field) * 100})
    assert BULK[type(record)](longer) > BULK[type(record)](record)


MADE = rec.WorkflowMade(64, "w", [rec.StepMade(f"s{number}", "q", 0, []) for number in range(100)])
BIG: list[Any] = [
    rec.MessageSent(1, "acme", 1, 1, rec.StartWorkflow(1, rec.WorkflowMade(64, "w", []), {0: [b"x" * 5_000]})),
    rec.MessageSent(1, "acme", 1, 1, rec.StartWorkflow(1, MADE, {})),
    rec.MessageSent(1, "acme", 1, 1, rec.FillStepHere(64, 0, [b"x" * 5_000])),
    rec.MessageSent(1, "acme", 1, 1, rec.PublishStages("t", ["stage"] * 100)),
    rec.MessageSent(1, "acme", 1, 1, rec.Watch([(64, 128)] * 100)),
    rec.MessageSent(1, "acme", 1, 1, rec.TellEnd(64, True, [128] * 100)),
    rec.HeardEarly(1, "acme", 64, rec.FillStepHere(64, 0, [b"x" * 5_000])),
    rec.WorkflowPushed(1, "acme", MADE),
]


@pytest.mark.parametrize("record", BIG, ids=lambda record: type(getattr(record, "message", record)).__name__)
def test_what_a_record_holds_further_inside_is_weighed(record: rec.Record):
    assert BULK[type(record)](record) >= 5_000


def test_large_messages_between_shards_leave_when_there_is_too_much():
    journal = MemoryJournal(1, 1 << 20)
    start = rec.StartWorkflow(1, rec.WorkflowMade(64, "w", []), {0: [b"x" * 100_000]})
    for number in range(1, 101):
        journal.append([(0, [rec.MessageSent(number, "acme", 1, number, start)])])
    assert len(numbers(journal, 0, 100)) * 100_000 <= 2 << 20


def test_a_large_delivery_is_not_light():
    """Sizes that differ are a number for each job."""
    sizes = list(range(10_000))
    started = rec.Started(1, "acme", "q", 1, "w", None, None, (rec.JobRun(64, 10_000, 1, sizes=sizes),))
    journal = MemoryJournal(1, 1 << 20)
    for _ in range(100):
        journal.append([(0, [started])])
    assert journal.lowest(0) > 1
