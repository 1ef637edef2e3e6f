"""A broker that a client has opened, as a server serves it: a data directory of others, a remote server, a Redis.

It is for one operator on this machine (`stoker ui`): every page asks for the tenant and with the token that the
operator has named. The broker behind it keeps the time, the log and the counts, so there are no turns and counters
here. Events are read through it like anything else. A server behind it also answers what is about the server itself.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from stoker.brokers.connect import shown
from stoker.brokers.contract import Broker, End
from stoker.brokers.remote.broker import OWN_TENANT, RemoteBroker
from stoker.model import commands as c
from stoker.model.command_table import PERMISSIONS, Permission
from stoker.model.errors import Unsupported
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import DEFAULT_LIMITS, INT_MAX, Limits
from stoker.server.auth.identity import Identity
from stoker.wire.native import NativeHello

R = TypeVar("R")

LOG_END = c.ReadRecords(0, INT_MAX, bytes_max=1)
"""Reads nothing: its reply says how many shards there are, and how far the log of one reaches."""


class ServerWelcome(msgspec.Struct, frozen=True):
    """What a server says of itself, and of the token that was shown to it."""

    version: str
    tenant: str
    permissions: frozenset[Permission]


class ClientBroker:
    """A `ServedBroker` over any broker."""

    turns = None
    counters = None
    remote = None
    trouble = ""
    limits: Limits = DEFAULT_LIMITS

    def __init__(self, broker: Broker, tenant: str, url: str, directory: str | None = None) -> None:
        """Raises `StokerError` if the queue does not answer."""
        self._broker, self._tenant = broker, tenant
        self.address = shown(urlsplit(url))
        """The URL without what could be a token or a password."""
        self.directory = directory
        """The data directory, if the queue is in one."""
        self.name = urlsplit(url).scheme
        self.lacks = broker.lacks
        self.server = broker if isinstance(broker, RemoteBroker) else None
        """The server that answers; None for a data directory and for Redis."""
        self.welcome = self._greeted()
        self.logs = self._find_logs()

    @property
    def identity(self) -> Identity:
        """Who the pages act for: the operator, with the rights of the operator's token."""
        if self.welcome is None:
            return Identity(name="operator", tenant=self._tenant, permissions=frozenset(PERMISSIONS))
        tenant = self.welcome.tenant if self._tenant == OWN_TENANT else self._tenant
        return Identity(name="operator", tenant=tenant, permissions=self.welcome.permissions)

    def _greeted(self) -> ServerWelcome | None:
        if self.server is None:
            return None
        greeting = NativeHello(client="stoker ui", tokens=False, ranges=True)
        return msgspec.convert(self.server.ask_server(OWN_TENANT, "hello", greeting), ServerWelcome)

    def _find_logs(self) -> "ClientLogs | None":
        """None if the broker has no log."""
        try:
            return ClientLogs(self, self._broker.execute(self._tenant, LOG_END).shards)
        except Unsupported:
            return None

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        if tenant == SYSTEM_TENANT:
            raise Unsupported.by(self.name, "an entry of the server's own")
        return await self._broker.execute_async(self._tenant, command)

    async def of_webhooks(self, tenant: str, name: str, request: Any) -> Any:
        """The reply to a command about webhooks: a server posts them, and a queue by itself has none."""
        if self.server is None:
            raise Unsupported.by(self.name, name, "the URL of a server (tcp://, unix://, http:// or grpc://)")
        return await asyncio.to_thread(self.server.ask_server, self._tenant, name, request)

    def close(self) -> None:
        self._broker.close()

    def now(self) -> int:
        return round(time.time() * 1_000)

    def set_limits(self, limits: Limits) -> None:
        """The broker behind it has its own."""


class ClientLogs:
    """How far the logs reach, asked each time: other programs write to them."""

    def __init__(self, broker: ClientBroker, shards: int) -> None:
        self._broker = broker
        self.shards = shards

    def known_end(self, tenant: str, shard: int) -> None:
        """The broker has to be asked."""

    async def ends(self, tenant: str) -> Mapping[int, End]:
        asked = [msgspec.structs.replace(LOG_END, shard=shard) for shard in range(self.shards)]
        replies = await asyncio.gather(*(self._broker.execute_async(tenant, command) for command in asked))
        return {shard: End(reply.last, reply.lowest) for shard, reply in enumerate(replies)}
