"""A token bucket in whole numbers: exact, and the same after a replay.

Tokens are counted in units of 1/per_ms: a millisecond refills exactly `count` units, and a job costs exactly `per_ms`
of them. Nothing is rounded, so any window of w ms has at most `burst + count * w / per_ms` jobs.
"""

import msgspec

from stoker.model.options import RateLimit


class TokenBucket(msgspec.Struct, gc=False):
    limit: RateLimit
    units: int
    filled_at: int

    @classmethod
    def full(cls, limit: RateLimit, now: int) -> "TokenBucket":
        return cls(limit, (limit.burst or limit.count) * limit.per_ms, now)

    def _units(self, now: int) -> int:
        limit = self.limit
        most = (limit.burst or limit.count) * limit.per_ms
        return min(most, self.units + (now - self.filled_at) * limit.count)

    def available(self, now: int) -> int:
        return self._units(now) // self.limit.per_ms

    def take(self, jobs: int, now: int) -> None:
        self.units = self._units(now) - jobs * self.limit.per_ms
        self.filled_at = now

    def next_at(self, now: int) -> int:
        """When the next token is available."""
        missing = self.limit.per_ms - self._units(now)
        return now + max(0, -(-missing // self.limit.count))
