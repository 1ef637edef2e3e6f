"""Histograms of durations: fixed bounds on a logarithmic scale, so that any two can be added.

A histogram is a list of counts, one for each bound and one for everything above the last. Bounds are six to a decade,
from a millisecond to eight days, so a quantile is off by less than a half, and a histogram has 54 counts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

MANTISSAS = (10, 15, 20, 30, 50, 70)
BOUNDS_MS: tuple[int, ...] = (1, 2, 3, 5, 7, *(digits * 10**decade for decade in range(8) for digits in MANTISSAS))
"""The upper bounds, in milliseconds, each included."""
BUCKETS = len(BOUNDS_MS) + 1

COARSE_MS: tuple[int, ...] = tuple(bound for bound in BOUNDS_MS if str(bound).rstrip("0") in "13" and bound <= 10**8)
"""Two bounds to a decade, up to a day: for readers that pay for each bound, such as Prometheus."""

SMALL_MS = 2_048
_SMALL = bytes(bisect_left(BOUNDS_MS, ms) for ms in range(SMALL_MS))


def bucket_of(ms: int) -> int:
    """The place of a duration among the counts."""
    return _SMALL[ms] if 0 <= ms < SMALL_MS else bisect_left(BOUNDS_MS, ms)


SUM = BUCKETS
"""The place after the counts in `Durations`: the sum of all durations in milliseconds."""
Durations = list[int]
"""A histogram that grows: the counts and their sum."""


def no_durations() -> Durations:
    return [0] * (BUCKETS + 1)


def note(durations: Durations, ms: int, jobs: int = 1) -> None:
    """Count jobs that took this long."""
    if ms == 0:
        durations[0] += jobs
        return
    durations[_SMALL[ms] if 0 < ms < SMALL_MS else bucket_of(ms)] += jobs
    durations[SUM] += ms * jobs


class Histogram(msgspec.Struct, frozen=True, gc=False):
    """Durations, counted by `BOUNDS_MS`. Counts after the last that is not 0 are left out."""

    counts: tuple[int, ...] = ()
    sum_ms: int = 0

    @property
    def total(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The duration in milliseconds that this share of all stays below, between two bounds; None without any."""
        wanted, passed = share * self.total, 0
        if not self.total:
            return None
        for place, count in enumerate(self.counts):
            if count and passed + count >= wanted:
                low = BOUNDS_MS[place - 1] if place else 0
                high = BOUNDS_MS[place] if place < len(BOUNDS_MS) else BOUNDS_MS[-1]
                return low + (high - low) * max(0.0, wanted - passed) / count
            passed += count
        return float(BOUNDS_MS[-1])

    def up_to(self, bounds_ms: Sequence[int] = COARSE_MS) -> list[int]:
        """The counts by these bounds, which must be among `BOUNDS_MS`, and one for everything above the last."""
        found, start = [], 0
        for bound in bounds_ms:
            stop = bisect_left(BOUNDS_MS, bound) + 1
            found.append(sum(self.counts[start:stop]))
            start = stop
        return [*found, sum(self.counts[start:])]


def histogram(durations: Durations) -> Histogram:
    """What was counted, without the empty counts at the end."""
    filled = len(bytes(map(bool, durations[:BUCKETS])).rstrip(b"\0"))
    return Histogram(tuple(durations[:filled]), durations[SUM])


def joined(histograms: Sequence[Durations]) -> Durations:
    """All of them as one that grows."""
    return [sum(counts) for counts in zip(*histograms, strict=True)] if histograms else no_durations()


def added(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of all."""
    durations = no_durations()
    for one in histograms:
        durations[SUM] += one.sum_ms
        for place, count in enumerate(one.counts):
            durations[place] += count
    return histogram(durations)
