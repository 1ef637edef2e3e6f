"""A broker that a client has opened, as a server serves it: a data directory of others, a remote server, a Redis.

It is for one operator on this machine (`stoker ui`): every page asks for the tenant and with the token that the
operator has named. The broker behind it keeps the time and the log, so there are no turns, logs and counters here.
"""

import time
from typing import TypeVar

from stoker.brokers.contract import Broker
from stoker.model.commands import Command
from stoker.model.errors import Unsupported
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import DEFAULT_LIMITS, Limits

R = TypeVar("R")


class ClientBroker:
    """A `ServedBroker` over any broker."""

    turns = None
    logs = None
    counters = None
    remote = None
    trouble = ""
    limits: Limits = DEFAULT_LIMITS

    def __init__(self, broker: Broker, tenant: str, name: str) -> None:
        self._broker, self._tenant = broker, tenant
        self.name = name
        self.lacks = broker.lacks

    async def execute_async(self, tenant: str, command: Command[R]) -> R:
        if tenant == SYSTEM_TENANT:
            raise Unsupported.by(self.name, "an entry of the server's own")
        return await self._broker.execute_async(self._tenant, command)

    def close(self) -> None:
        self._broker.close()

    def now(self) -> int:
        return round(time.time() * 1_000)

    def set_limits(self, limits: Limits) -> None:
        """The broker behind it has its own."""
