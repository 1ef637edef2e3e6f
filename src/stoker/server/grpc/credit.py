"""How many jobs a stream may still send, and which client holds those that it has sent.

Credit is what a client says it can hold. Each job takes one; settling the job, also without success, gives it back.
A job is known by its id and the token of its delivery, so that a second delivery of it is a second job here.
"""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stoker.model import replies as r
from stoker.model.command_table import SETTLES
from stoker.model.errors import Busy, InvalidRequest, LimitExceeded, NotFound

CREDIT_MAX = 100_000
"""The most credit of one stream, with the jobs its client holds: each costs some bytes, and no client needs more."""


class Account:
    """The credit of one stream."""

    def __init__(self, tenant: str, credit: int) -> None:
        self.name = secrets.token_urlsafe(12)
        self.tenant = tenant
        self.credit = 0
        self.held: set[tuple[int, int]] = set()
        """Ids and tokens of the jobs that were sent and not settled."""
        self._has_some = asyncio.Event()
        self.grant(credit)

    def grant(self, credit: int) -> None:
        if credit < 0:
            raise InvalidRequest(f"invalid credit {credit}: expected the number of jobs that you can hold")
        if self.credit + len(self.held) + credit > CREDIT_MAX:
            raise LimitExceeded(f"a stream has at most {CREDIT_MAX} credit: settle some jobs before you ask for more")
        self._add(credit)

    def _add(self, credit: int) -> None:
        self.credit += credit
        if self.credit:
            self._has_some.set()

    async def some(self) -> int:
        """The credit, as soon as there is any."""
        await self._has_some.wait()
        return self.credit

    def spend(self, delivery: r.Delivery) -> None:
        self.held.update((job_id, delivery.token) for job_id in delivery.ids)
        self.credit -= len(delivery)
        if self.credit <= 0:
            self._has_some.clear()

    def give_back(self, job: tuple[int, int]) -> None:
        self.held.discard(job)
        self._add(1)


class Accounts:
    """The credit of all streams of a server."""

    def __init__(self, streams_max: int) -> None:
        self._streams_max = streams_max
        self._by_name: dict[str, Account] = {}
        self._holders: dict[tuple[str, int], dict[int, Account]] = {}
        """The holders of jobs that were sent, by the job and then by the token."""

    def __len__(self) -> int:
        return len(self._by_name)

    @contextmanager
    def open(self, tenant: str, credit: int) -> Iterator[Account]:
        """An account for as long as a stream lasts."""
        if len(self._by_name) >= self._streams_max:
            raise Busy(f"too many streams: {self._streams_max} are open on this server; close some, or try later")
        account = Account(tenant, credit)
        self._by_name[account.name] = account
        try:
            yield account
        finally:
            del self._by_name[account.name]
            for job_id, token in account.held:
                self._forget(tenant, job_id, token)

    def find(self, tenant: str, name: str) -> Account:
        account = self._by_name.get(name)
        if account is None or account.tenant != tenant:
            raise NotFound("no such stream: it has ended, or was opened on another server")
        return account

    def sent(self, account: Account, delivery: r.Delivery) -> None:
        account.spend(delivery)
        for job_id in delivery.ids:
            self._holders.setdefault((account.tenant, job_id), {})[delivery.token] = account

    def settled(self, tenant: str, command: Any) -> None:
        """A client has named these jobs as done with: it holds them no longer. Without tokens: any delivery of them."""
        if not self._holders or type(command) not in SETTLES:
            return
        tokens = command.tokens
        for place, job_id in enumerate(command.ids):
            by_token = self._holders.get((tenant, job_id))
            if by_token is None:
                continue
            if tokens is None:
                named: Sequence[int] = tuple(by_token)
            else:
                named = (tokens,) if isinstance(tokens, int) else tokens[place : place + 1]
            for token in named:
                account = self._forget(tenant, job_id, token)
                if account is not None:
                    account.give_back((job_id, token))

    def _forget(self, tenant: str, job_id: int, token: int) -> Account | None:
        by_token = self._holders.get((tenant, job_id), {})
        account = by_token.pop(token, None)
        if not by_token:
            self._holders.pop((tenant, job_id), None)
        return account
