"""How long a failed job waits."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.engine.backoff import delay_ms
from stoker.model.limits import DURATION_MS_MAX
from stoker.model.options import Backoff, BackoffKind, Jitter
from tests.unit.support import QUICK

SEED, JOB = 7, 64


def delays(policy: Backoff, failures: int, seed: int = SEED, job: int = JOB) -> list[int]:
    return [delay_ms(policy, k, seed, job) for k in range(1, failures + 1)]


def test_the_documented_table():
    """Base 1000, at most 5 attempts: four delays, then the job is dead."""
    assert delays(Backoff("exponential", 1_000, jitter="none"), 4) == [1_000, 2_000, 4_000, 8_000]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("exponential", [100, 200, 400, 800, 1_000, 1_000]),
        ("linear", [100, 200, 300, 400, 500, 600]),
        ("fixed", [100, 100, 100, 100, 100, 100]),
    ],
)
def test_kinds_and_the_cap(kind: BackoffKind, expected: list[int]):
    assert delays(Backoff(kind, 100, 1_000, "none"), 6) == expected


@pytest.mark.parametrize("kind", get_args(BackoffKind))
def test_a_cap_below_the_base_is_the_delay(kind: BackoffKind):
    assert delays(Backoff(kind, 5_000, 300, "none"), 3) == [300, 300, 300]


@pytest.mark.parametrize("kind", get_args(BackoffKind))
def test_no_number_of_failures_leaves_the_cap(kind: BackoffKind):
    policy = Backoff(kind, DURATION_MS_MAX, DURATION_MS_MAX, "none")
    assert delay_ms(policy, 10**9, SEED, JOB) == DURATION_MS_MAX


policies = st.builds(
    Backoff,
    st.sampled_from(get_args(BackoffKind)),
    st.integers(0, 100_000),
    st.integers(0, 1_000_000),
    st.sampled_from(get_args(Jitter)),
)


@QUICK
@given(policies, st.integers(1, 80), st.integers(0, 2**32), st.integers(1, 2**53 - 1))
def test_jitter_stays_within_its_bounds(policy: Backoff, failures: int, seed: int, job: int):
    whole = delay_ms(Backoff(policy.kind, policy.base_ms, policy.cap_ms, "none"), failures, seed, job)
    drawn = delay_ms(policy, failures, seed, job)
    least = {"none": whole, "equal": whole - whole // 2, "full": 0}[policy.jitter]
    assert least <= drawn <= whole
    assert delay_ms(policy, failures, seed, job) == drawn, "the same seed, job and attempt draw the same"


@pytest.mark.parametrize("jitter", ["equal", "full"])
def test_seed_job_and_attempt_each_change_the_draw(jitter: Jitter):
    policy = Backoff("fixed", 1_000_000, 1_000_000, jitter)
    assert len({delay_ms(policy, 1, seed, JOB) for seed in range(100)}) > 95
    assert len({delay_ms(policy, 1, SEED, job << 6) for job in range(100)}) > 95
    assert len({delay_ms(policy, failures, SEED, JOB) for failures in range(1, 101)}) > 95


@pytest.mark.parametrize(("jitter", "least"), [("equal", 50), ("full", 0)])
def test_jitter_reaches_both_ends_of_its_bounds(jitter: Jitter, least: int):
    policy = Backoff("fixed", 100, 100, jitter)
    drawn = {delay_ms(policy, 1, SEED, job << 6) for job in range(5_000)}
    assert drawn == set(range(least, 101))


def test_draws_are_spread_evenly():
    """Ten thousand jobs that fail together come back in even tenths of the delay."""
    policy = Backoff("fixed", 999, 999, "full")
    tenths = [0] * 10
    for job in range(10_000):
        tenths[delay_ms(policy, 1, SEED, job << 6) // 100] += 1
    assert all(850 < jobs < 1_150 for jobs in tenths)
