"""The set of ranges against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.range_set import RangeSet
from tests.unit.support import QUICK

TOP = 40

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, TOP - 1), st.integers(1, 9)),
        st.tuples(st.just("remove"), st.integers(-1, TOP + 9), st.just(1)),
    ),
    max_size=30,
)


@QUICK
@given(steps)
def test_a_range_set_is_a_set(history: list[tuple[str, int, int]]):
    ranges, plain = RangeSet(), set[int]()
    for verb, start, length in history:
        if verb == "add":
            ranges.add(start, start + length)
            plain.update(range(start, start + length))
        else:
            ranges.remove(start)
            plain.discard(start)
        assert {value for value in range(-2, TOP + 12) if value in ranges} == plain
        found = ranges.ranges()
        assert all(start < stop for start, stop in found)
        assert all(stop < following for (_, stop), (following, _) in pairwise(found))


def test_growing_at_the_end_stays_one_range():
    ranges = RangeSet()
    for value in range(1, 1001):
        ranges.add(value, value + 1)
    assert ranges.ranges() == [(1, 1001)]


def test_filling_a_gap_merges_its_neighbours():
    ranges = RangeSet()
    ranges.add(1, 3)
    ranges.add(5, 7)
    ranges.add(3, 5)
    assert ranges.ranges() == [(1, 7)]


def test_a_number_taken_out_of_the_middle_splits_its_range():
    ranges = RangeSet()
    ranges.add(1, 6)
    ranges.remove(3)
    assert ranges.ranges() == [(1, 3), (4, 6)]


def test_one_wide_range_swallows_all_that_it_covers():
    ranges = RangeSet()
    for value in range(0, 40, 4):
        ranges.add(value, value + 1)
    ranges.add(2, 33)
    assert ranges.ranges() == [(0, 1), (2, 33), (36, 37)]
