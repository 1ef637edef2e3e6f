"""Histograms of durations can be added, and their quantiles are near enough."""

import random
from itertools import pairwise

from stoker.model.histograms import (
    BOUNDS_MS,
    BUCKETS,
    COARSE_MS,
    Histogram,
    added,
    bucket_of,
    histogram,
    no_durations,
    note,
)


def of(durations: list[int]) -> Histogram:
    found = no_durations()
    for ms in durations:
        note(found, ms)
    return histogram(found)


def test_every_duration_has_one_place():
    for place, bound in enumerate(BOUNDS_MS):
        assert bucket_of(bound) == place
        assert bucket_of(bound + 1) == place + 1
    assert bucket_of(0) == bucket_of(-5) == 0
    assert bucket_of(10**15) == BUCKETS - 1
    assert all(low < high <= 2 * low for low, high in pairwise(BOUNDS_MS))


def test_sums_are_histograms_of_all():
    rng = random.Random(4)
    parts = [[int(rng.lognormvariate(5, 3)) for _ in range(200)] for _ in range(3)]
    assert added(map(of, parts)) == of([ms for part in parts for ms in part])
    assert added([]) == Histogram()


def test_quantiles_are_off_by_less_than_a_step():
    rng = random.Random(5)
    durations = sorted(int(rng.lognormvariate(6, 2)) for _ in range(5_000))
    found = of(durations)
    for share in (0.5, 0.95, 0.99):
        exact, near = durations[int(share * len(durations))], found.quantile(share)
        assert near is not None
        assert exact / 2 <= near <= exact * 2
    assert Histogram().quantile(0.5) is None


def test_coarse_bounds_keep_every_count():
    found = of([0, 1, 2, 3, 4, 90, 100, 101, 10**12])
    coarse = found.up_to()
    assert len(coarse) == len(COARSE_MS) + 1
    assert sum(coarse) == found.total == 9
    assert coarse[0] == 2  # up to one millisecond
    assert coarse[-1] == 1
