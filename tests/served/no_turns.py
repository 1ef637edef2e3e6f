"""The local engine behind the smallest contract: it has every command and its logs, but no turns and no counters.

What any broker without turns must be able to do is shown with it: the whole conformance suite, and events.
"""

from collections.abc import Mapping
from typing import TypeVar

from stoker.brokers.contract import End
from stoker.brokers.local import LocalBroker
from stoker.model.commands import Command
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import Limits

R = TypeVar("R")


class WithoutTurns:
    name = "without-turns"
    lacks = LocalBroker.lacks
    turns = counters = remote = None
    trouble = ""

    def __init__(self, local: LocalBroker) -> None:
        self.local = local
        self.now, self.close = local.now, local.close

    async def execute_async(self, tenant: str, command: Command[R]) -> R:
        return await self.local.execute_async(tenant, command, system=tenant == SYSTEM_TENANT)

    @property
    def limits(self) -> Limits:
        return self.local.limits

    def set_limits(self, limits: Limits) -> None:
        self.local.set_limits(limits)

    @property
    def logs(self) -> "WithoutTurns":
        return self

    @property
    def shards(self) -> int:
        return self.local.shards

    def known_end(self, tenant: str, shard: int) -> None:
        """As where another machine has the log: it has to be asked for."""

    async def ends(self, tenant: str) -> Mapping[int, End]:
        return await self.local.ends(tenant)
