"""The token bucket gives out what was promised, to the millisecond."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.token_bucket import TokenBucket
from stoker.model.options import RateLimit
from tests.unit.support import QUICK

limits = st.builds(RateLimit, st.integers(1, 20), st.integers(1, 50), st.integers(0, 8))
gaps = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40)


def burst_of(limit: RateLimit) -> int:
    return limit.burst or limit.count


@QUICK
@given(limits, gaps)
def test_no_window_sees_more_than_the_burst_and_the_refill(limit: RateLimit, history: list[tuple[int, int]]):
    bucket, now = TokenBucket.full(limit, 0), 0
    taken: list[tuple[int, int]] = []
    for gap, wanted in history:
        now += gap
        jobs = min(wanted, bucket.available(now))
        bucket.take(jobs, now)
        taken.append((now, jobs))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            window = taken[last][0] - taken[first][0]
            jobs = sum(count for _, count in taken[first : last + 1])
            assert jobs <= burst_of(limit) + Fraction(limit.count * window, limit.per_ms)


@QUICK
@given(limits, gaps)
def test_refill_is_exact(limit: RateLimit, history: list[tuple[int, int]]):
    """No token is lost to rounding, however often somebody looks."""
    bucket, now = TokenBucket.full(limit, 0), 0
    level = Fraction(burst_of(limit))
    for gap, wanted in history:
        now += gap
        level = min(Fraction(burst_of(limit)), level + Fraction(limit.count * gap, limit.per_ms))
        assert bucket.available(now) == int(level)
        jobs = min(wanted, int(level))
        bucket.take(jobs, now)
        level -= jobs


@QUICK
@given(limits, st.integers(0, 60))
def test_the_next_token_comes_when_it_was_announced_and_not_earlier(limit: RateLimit, later: int):
    bucket = TokenBucket.full(limit, 0)
    bucket.take(burst_of(limit), 0)
    at = bucket.next_at(0)
    assert at > 0
    assert not bucket.available(at - 1)
    assert bucket.available(at)
    now = min(later, at)
    assert bucket.next_at(now) == at, "looking in between changes nothing"


def test_a_bucket_starts_full():
    assert TokenBucket.full(RateLimit(5, 1_000, 7), 42).available(42) == 7
    assert TokenBucket.full(RateLimit(5, 1_000), 42).available(42) == 5, "without a burst: as many as count"


@pytest.mark.parametrize("idle_ms", [1_000, 10_000, 10**15])
def test_a_bucket_never_holds_more_than_its_burst(idle_ms: int):
    bucket = TokenBucket.full(RateLimit(5, 1_000, 7), 0)
    bucket.take(7, 0)
    assert bucket.available(10 * idle_ms) == 7


def test_a_token_there_already_needs_no_waiting():
    assert TokenBucket.full(RateLimit(1, 1_000), 42).next_at(42) == 42
