"""Spans and pieces against plain sets of positions."""

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.batch_positions import BatchPieces, PositionSpan
from tests.unit.support import QUICK

SIZE = 24


def positions(span: PositionSpan) -> set[int]:
    return {position for position in range(-2, SIZE + 2) if position in span}


def remove_runs(span: PositionSpan, cuts: list[tuple[int, int]]) -> set[int]:
    """Take out as much of each cut as is one run, as the engine does; the positions that are left."""
    left = set(range(SIZE))
    for start, length in cuts:
        if start in left:
            stop = span.run(start, start + length)
            span.remove(start, stop)
            left -= set(range(start, stop))
    return left


cuts_of = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(1, 6)), max_size=20)


@QUICK
@given(cuts_of)
def test_a_span_is_the_set_of_what_was_not_removed(cuts: list[tuple[int, int]]):
    span = PositionSpan(0, SIZE, SIZE)
    left = remove_runs(span, cuts)
    assert positions(span) == left
    assert span.left == len(left)


@QUICK
@given(cuts_of)
def test_runs_cover_a_span_once_in_order_and_without_holes(cuts: list[tuple[int, int]]):
    span = PositionSpan(0, SIZE, SIZE)
    left = remove_runs(span, cuts)
    runs = list(span.runs())
    assert [position for run in runs for position in range(*run)] == sorted(left)
    assert all(stop < following for (_, stop), (following, _) in pairwise(runs))


@QUICK
@given(cuts_of, st.integers(0, SIZE - 1), st.integers(1, SIZE))
def test_a_run_ends_at_the_next_hole_or_where_it_was_told_to(cuts: list[tuple[int, int]], start: int, length: int):
    span = PositionSpan(0, SIZE, SIZE)
    left = remove_runs(span, cuts)
    if start in left:
        expected = start
        while expected in left and expected < start + length:
            expected += 1
        assert span.run(start, start + length) == expected


@QUICK
@given(cuts_of)
def test_a_span_neither_starts_nor_stops_in_a_hole(cuts: list[tuple[int, int]]):
    span = PositionSpan(0, SIZE, SIZE)
    left = remove_runs(span, cuts)
    assert len(span.holes or ()) == span.stop - span.start - span.left, "holes outside of the ends are a leak"
    if left:
        assert (span.start, span.stop - 1) == (min(left), max(left))


def test_the_caller_may_remove_each_run_that_it_gets():
    span = PositionSpan(0, SIZE, SIZE)
    remove_runs(span, [(3, 2), (9, 1), (SIZE - 1, 1)])
    for start, stop in span.runs():
        span.remove(start, stop)
    assert span.left == 0
    assert positions(span) == set()


class Range(msgspec.Struct):
    """A piece that covers `origin <= p < stop` from `start` on."""

    origin: int
    start: int
    stop: int

    def covers(self, position: int) -> bool:
        return self.start <= position < self.stop


@QUICK
@given(st.sets(st.integers(1, SIZE - 1)), st.randoms(use_true_random=False), st.data())
def test_pieces_are_found_by_each_position_that_they_cover(cuts, chance, data):
    edges = [0, *sorted(cuts), SIZE]
    ranges = [Range(start, start, stop) for start, stop in pairwise(edges)]
    chance.shuffle(ranges)
    pieces: BatchPieces[Range] = BatchPieces()
    for piece in ranges:
        pieces.add(piece)
    gone = data.draw(st.sets(st.integers(0, len(ranges) - 1)))
    for place in gone:
        pieces.remove(ranges[place])
    for piece in ranges:  # what has left the front of a piece is no longer covered
        piece.start += 1
    kept = [piece for place, piece in enumerate(ranges) if place not in gone]
    assert len(pieces) == len(kept)
    assert sorted(piece.origin for piece in pieces) == sorted(piece.origin for piece in kept)
    for position in range(-1, SIZE + 1):
        expected = next((piece for piece in kept if piece.covers(position)), None)
        assert pieces.find(position) is expected


def test_pieces_may_be_removed_while_walking_over_them():
    pieces: BatchPieces[Range] = BatchPieces()
    for start in range(5):
        pieces.add(Range(start, start, start + 1))
    for piece in pieces:
        pieces.remove(piece)
    assert len(pieces) == 0
