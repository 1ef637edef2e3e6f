"""The journal in memory: what it keeps, and reading it by sequence number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.journal.memory import MemoryJournal
from stoker.records.records import CancelRequested, Pushed, Record
from tests.unit.support import QUICK

PLENTY = 1 << 40


def note(number: int) -> Record:
    return CancelRequested(number, "acme", "q", 64)


def load(number: int, size: int) -> Record:
    return Pushed(number, "acme", "q", 64, (b"x" * size,))


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
