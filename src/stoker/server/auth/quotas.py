"""Checks how much a tenant may use, and refuses what exceeds it.

Usage is counted where it happens and only read here, so the numbers cannot drift. Only the request rate is kept here,
and forgotten as soon as it is meaningless, however many tenants there are.
"""

from collections.abc import Collection
from typing import Annotated, Final, Protocol

import msgspec

from stoker.model.errors import Busy, QuotaExceeded

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]

TENANTS_MAX: Final = 65_536
"""Tenants whose rates are kept at once: some megabytes."""

SECOND_US: Final = 1_000_000
"""A quiet tenant may send a second's worth at once. Also the price of a request, in millionths of one."""


class Quotas(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """None and 0 mean no limit."""

    queues: Amount | None = None
    """Queues in use; a push to an existing queue is always allowed."""
    waiting_jobs: Amount | None = None
    """Jobs that no worker has yet, whatever the reason; staged jobs count as soon as they are staged."""
    bytes: Amount | None = None
    """Bytes of payloads of live and staged jobs and of schedules, and of key-value entries with their keys."""
    requests_per_second: Amount | None = None
    """For all connections together; a batch is one request."""


BY_USE: Final = ("queues", "waiting_jobs", "bytes")
"""Quotas of what a tenant has in the queue: they need a broker that counts it."""


class Usage(Protocol):
    """What a tenant uses at this moment. Each number is read only if a quota needs it."""

    def queue_names(self, tenant: str) -> Collection[str]: ...
    def waiting_jobs(self, tenant: str) -> int: ...
    def payload_bytes(self, tenant: str) -> int: ...
    def admitted(self, tenant: str, queue: str | None, jobs: int, bytes: int) -> None:
        """This much was admitted, and will be in use in a moment; `queue` is None if none is named."""
        ...


class QuotaKeeper:
    """Enforces quotas, which each call passes: those of a tenant may change and differ between its connections."""

    def __init__(self, processes: int = 1) -> None:
        """Where several processes share the ports, each keeps its share of a rate, rounded up."""
        self._processes = processes
        self._spent: dict[str, tuple[int, int]] = {}
        """By tenant: millionths of requests spent, and the time of that count in microseconds. Whole numbers, because a
        float of the time of day has too few digits for a fast tenant.
        """

    def check_rate(self, tenant: str, quotas: Quotas | None, now: float) -> None:
        """Count one request; `now` in seconds, best of a monotonic clock. Refused requests cost nothing."""
        if quotas is None or not quotas.requests_per_second:
            return
        rate, now_us = -(-quotas.requests_per_second // self._processes), round(now * 1e6)
        spent, at_us = self._spent.get(tenant, (0, now_us))
        # A clock that was set back restores nothing, but from then on time counts again.
        spent = max(0, spent - max(0, now_us - at_us) * rate) + SECOND_US
        over = spent - rate * SECOND_US
        if over > 0:
            self._spent[tenant] = (spent - SECOND_US, now_us)
            raise Busy(
                f"quota requests_per_second of tenant {tenant!r}: the rate limit of {rate} requests a second is used"
                f" up: try again in {-(-over // (rate * 1000))} ms"
            )
        if len(self._spent) >= TENANTS_MAX and tenant not in self._spent:
            self._make_room(now_us)
        self._spent[tenant] = (spent, now_us)

    def _make_room(self, now_us: int) -> None:
        """A tenant that was quiet for a second is like a new one and is dropped. If there is none, half of all are
        dropped, which forgives what they have spent.
        """
        kept = {tenant: spent for tenant, spent in self._spent.items() if abs(now_us - spent[1]) < SECOND_US}
        if len(kept) >= TENANTS_MAX:
            kept = dict(sorted(kept.items(), key=lambda item: item[1])[-TENANTS_MAX // 2 :])
        self._spent = kept

    def check_push(
        self, tenant: str, quotas: Quotas | None, queue: str | None, jobs: int, bytes: int, stats: Usage
    ) -> None:
        """Check that all of these jobs and bytes fit: a batch is never cut in two.

        Without a queue, only existing queues are concerned. What adds nothing is always admitted.
        """
        if quotas is None:
            return
        if quotas.queues and queue is not None:
            names = stats.queue_names(tenant)
            if queue not in names:
                _check("queues", tenant, len(names), 1, quotas.queues, "use one that exists, or obliterate one")
        if quotas.waiting_jobs and jobs > 0:
            _check(
                "waiting_jobs", tenant, stats.waiting_jobs(tenant), jobs, quotas.waiting_jobs, "let workers catch up"
            )
        if quotas.bytes and bytes > 0:
            advice = "let workers catch up, or delete entries"
            _check("bytes", tenant, stats.payload_bytes(tenant), bytes, quotas.bytes, advice)


def is_over(limit: int | None, used: int, asked: int) -> bool:
    """Whether `asked` more exceeds the limit, if there is one."""
    return bool(limit) and used + asked > limit  # type: ignore[operator]


def _check(quota: str, tenant: str, used: int, asked: int, limit: int, advice: str) -> None:
    if is_over(limit, used, asked):
        raise QuotaExceeded(
            f"quota {quota} of tenant {tenant!r}: {used} in use and {asked} more asked for, limit {limit}:"
            f" {advice}, or have the quota raised"
        )
