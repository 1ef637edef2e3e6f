"""The brokers of the suite that speak the dialect, and the servers behind them."""

import asyncio
from typing import Any, TypeVar

from stoker.model import commands as c
from stoker.model.errors import BY_CODE, StokerError
from stoker.model.limits import Limits
from stoker.model.options import Settings
from tests.conformance.dialect.control import Control
from tests.conformance.dialect.keys import Keys
from tests.conformance.dialect.looking import Looking
from tests.conformance.dialect.schedules import Schedules
from tests.conformance.dialect.speaking import Client, NotInDialect
from tests.conformance.dialect.workflows import Workflows
from tests.conformance.dialect.working import Working
from tests.reference_clients.calling import Refused
from tests.reference_clients.sockets import Frames, Lines, OverSockets
from tests.reference_clients.web import ApiCommand, Rest
from tests.served.process import ServerProcess, the_process

R = TypeVar("R")


class Dialect(Working, Looking, Control, Keys, Schedules, Workflows):
    """A broker whose every word goes over one of the reference clients."""

    def execute(self, tenant: str, command: c.Command[R]) -> R:
        say = getattr(self, verb(command), None)
        if say is None:
            raise NotInDialect(type(command).__name__)
        try:
            return say(tenant, command)  # type: ignore[no-any-return]
        except Refused as refusal:
            raise as_error(refusal) from None

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        return await asyncio.to_thread(self.execute, tenant, command)

    def close(self) -> None:
        self._client.close()


def verb(command: c.Command[Any]) -> str:
    name = type(command).__name__
    return "say" + "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def as_error(refusal: Refused) -> StokerError:
    kind = BY_CODE.get(refusal.code)
    if kind is None:
        raise refusal
    return kind(str(refusal))


class Backing:
    """A server in another process, and a stranger's client of it."""

    has_transactions = False

    def __init__(self, transport: str, make: Any, settings: Settings, limits: Limits, shards: int) -> None:
        self._process: ServerProcess = the_process()
        self._world, where = self._process.call("open", transport, settings, limits, shards, False)
        self._client: Client = make(where)
        self.broker = Dialect(self._client, self)

    @property
    def now(self) -> int:
        return int(self._process.call("now", self._world))

    def advance(self, ms: int) -> None:
        self._process.call("advance", self._world, ms)

    def picture(self, tenant: str) -> Any:
        return self._process.call("picture", self._world, tenant)

    def close(self) -> None:
        self._client.close()
        self._process.call("close", self._world)


def lines(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("tcp", lambda where: OverSockets(Lines, where), settings, limits, shards)


def frames(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("tcp", lambda where: OverSockets(Frames, where), settings, limits, shards)


def rest(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("http", Rest, settings, limits, shards)


def api_command(settings: Settings, limits: Limits, shards: int) -> Backing:
    return Backing("http", ApiCommand, settings, limits, shards)
