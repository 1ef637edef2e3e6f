"""The leases that one server has given: which jobs were pulled through it and run, as far as it knows.

A server that stops waits for these jobs and no others: workers of other servers have theirs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import SETTLES

SWEEP_AT = 1_024
"""Leases that ended elsewhere are looked for whenever there are twice as many as after the last look, and this many."""
RELEASE_JOBS = 1_000
"""In one command."""


class GivenLease(msgspec.Struct, gc=False):
    token: int
    until: int


class GivenLeases:
    """Learns from the replies of pulls and from what settles or extends them."""

    def __init__(self) -> None:
        self._leases: dict[tuple[str, int], GivenLease] = {}
        self._sweep_at = SWEEP_AT

    def heard(self, tenant: str, command: Any, reply: Any, now: int) -> None:
        """A command was carried out, with this reply."""
        kind = type(command)
        if kind is c.Pull:
            for run in reply.runs:
                for job in run.ids:
                    self._leases[tenant, job] = GivenLease(reply.token, run.lease_until)
            if len(self._leases) >= self._sweep_at:
                self._sweep(now)
        elif kind in SETTLES or kind is c.MoveToDelayed:
            for job, token in named(command):
                lease = self._leases.get((tenant, job))
                if lease is not None and token in (None, lease.token):
                    del self._leases[tenant, job]
        elif kind is c.Extend and command.renew:
            self._extended(tenant, command, reply)

    def _extended(self, tenant: str, command: c.Extend, reply: r.Extended) -> None:
        for job, token in named(command):
            lease = self._leases.get((tenant, job))
            if lease is None or token not in (None, lease.token):
                continue
            if job in reply.refused:
                del self._leases[tenant, job]
            else:
                lease.until = max(lease.until, reply.lease_until)

    def running(self, now: int) -> int:
        self._sweep(now)
        return len(self._leases)

    def releases(self, now: int) -> Iterator[tuple[str, c.Release]]:
        """The commands that hand all of these jobs back, by tenant."""
        self._sweep(now)
        tenants: dict[str, list[tuple[int, int]]] = {}
        for (tenant, job), lease in self._leases.items():
            tenants.setdefault(tenant, []).append((job, lease.token))
        for tenant, pairs in tenants.items():
            for start in range(0, len(pairs), RELEASE_JOBS):
                jobs, tokens = zip(*pairs[start : start + RELEASE_JOBS], strict=True)
                yield tenant, c.Release(list(jobs), list(tokens))

    def _sweep(self, now: int) -> None:
        self._leases = {place: lease for place, lease in self._leases.items() if lease.until > now}
        self._sweep_at = max(SWEEP_AT, 2 * len(self._leases))


def named(command: Any) -> Iterator[tuple[int, int | None]]:
    """The jobs of a command, each with the token that it says."""
    if type(command) is c.MoveToDelayed:
        return iter(((command.id, command.token),))
    tokens: int | Sequence[int] | None = command.tokens
    if tokens is None or isinstance(tokens, int):
        return ((job, tokens) for job in command.ids)
    return iter(zip(command.ids, tokens, strict=False))
