"""The queue in Redis behind `stoker serve`: any number of servers share it, and each may end at any moment.

A server keeps nothing but its connections: commands go to Redis as they come, on one connection, at most
`RedisSettings.calls_max` at once: a slow Redis makes calls slow, and no buffer grows. It fulfils the contract of
`server/served_broker.py`, which it does not import.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from stoker.brokers.contract import End
from stoker.brokers.redis.broker import RedisBroker
from stoker.brokers.redis.greeting import ServerFacts, meaning
from stoker.brokers.redis.leases import GivenLeases
from stoker.brokers.redis.links import RedisRefusal
from stoker.brokers.redis.operations import Operations, RedisExchange
from stoker.brokers.redis.scripts import script
from stoker.brokers.redis.settings import RedisSettings, Target, read_url
from stoker.brokers.remote.links import LinkLost
from stoker.brokers.resending import is_nameless
from stoker.engine.shard import Shard
from stoker.model import commands as c
from stoker.model import replies as r
from stoker.model.command_table import NUMBERED
from stoker.model.errors import InvalidRequest, StokerError, Unknown, Unreachable
from stoker.model.ids import SYSTEM_TENANT
from stoker.model.limits import INT_MAX, Limits
from stoker.model.options import Settings
from stoker.runtime.usage import NUMBER_BYTES, Used

R = TypeVar("R")

SCHEMES = ("redis", "rediss", "redis+unix")
PROBE_S = 1.0
"""How often Redis is asked for its time, which also says whether it is there."""
PROBE_PATIENCE_S = 5.0
"""A Redis that is slow for less counts as ready."""

log = logging.getLogger("stoker.server")


class ServedRedis(RedisBroker):
    """The broker of one server in front of Redis."""

    turns = None
    counters = None
    shards = 1
    """A tenant has one log."""

    def __init__(self, target: Target, settings: RedisSettings, clock: Any = None) -> None:
        super().__init__(target, settings, clock)
        self.leases = GivenLeases()
        self.trouble = ""
        """Why Redis does not answer, while it does not."""
        self._ahead_ms = 0
        """How far Redis' clock is ahead of this machine's."""
        self._probing: asyncio.Task[None] | None = None

    async def open(self) -> ServerFacts:
        """Connect: what Redis says of itself. Raises `StokerError` if no queue can live there."""
        facts = await self._asked(self._greeted(SYSTEM_TENANT))
        await self._asked(self._learn_time())
        self._probing = asyncio.get_running_loop().create_task(self._probe())
        return facts

    @property
    def seed(self) -> str:
        """The server that the URL names, without a password."""
        return str(self._seed)

    def close(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
        super().close()

    # --- commands --------------------------------------------------------------------------------

    async def execute_async(self, tenant: str, command: c.Command[R]) -> R:
        try:
            reply = await super().execute_async(tenant, command)
        except Unknown as error:
            if type(command) in NUMBERED and not is_nameless(command):  # its client may send it again
                raise Unreachable(f"Redis at {self._seed} did not answer; send it again ({error})") from None
            raise
        if tenant != SYSTEM_TENANT:
            self.leases.heard(tenant, command, reply, self.now())
        return reply

    def _checked(self, tenant: str, command: c.Command[R]) -> Any:
        """The server's own tenant has a name that no client can say."""
        return super()._checked(tenant.removeprefix("$") if tenant == SYSTEM_TENANT else tenant, command)

    def set_limits(self, limits: Limits) -> None:
        self.settings = msgspec.structs.replace(self.settings, limits=limits)
        self._checker = Shard(0, limits=limits)

    # --- time ------------------------------------------------------------------------------------

    def now(self) -> int:
        if self.clock is not None:
            return int(self.clock.now_ms())
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def _learn_time(self) -> Operations[None]:
        seconds, micros = yield RedisExchange(self._seed, ("TIME",))
        self._ahead_ms = int(seconds) * 1_000 + int(micros) // 1_000 - time.time_ns() // 1_000_000

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            try:
                async with asyncio.timeout(PROBE_PATIENCE_S):
                    await self._drive_async(self._learn_time())
            except Exception as error:
                was_there = not self.trouble
                self.trouble = f"Redis at {self._seed} does not answer: {said(error)}"
                if was_there:
                    log.warning("%s; asking again every second", self.trouble)
            else:
                if self.trouble:
                    log.info("Redis at %s answers again", self._seed)
                self.trouble = ""

    async def evaluate(self, text: str, key: str, *words: str | int) -> Any:
        """The answer of a script about one key of the server's own tenant. Raises `StokerError`."""
        key = self._prefix(SYSTEM_TENANT) + key
        return await self._asked(self._exchange(SYSTEM_TENANT, ("EVAL", text, 1, key, *words)))

    async def _asked(self, operations: Operations[R]) -> R:
        """What Redis answers to the server itself. Raises `StokerError`."""
        try:
            return await self._drive_async(operations)
        except RedisRefusal as refusal:
            raise meaning(self._seed, refusal) from None
        except LinkLost as lost:
            raise Unreachable(f"Redis at {self._seed} does not answer: {lost}") from None

    # --- logs ------------------------------------------------------------------------------------

    @property
    def logs(self) -> "ServedRedis":
        return self

    def known_end(self, tenant: str, shard: int) -> None:
        """Other servers write to the log, too: Redis has to be asked."""

    async def ends(self, tenant: str) -> Mapping[int, End]:
        reply = await self.execute_async(tenant, c.ReadRecords(0, INT_MAX, bytes_max=1))
        return {0: End(reply.last, reply.lowest)}

    # --- what servers share ----------------------------------------------------------------------

    @property
    def remote(self) -> "RemoteRedis":
        return RemoteRedis(self)


class RemoteRedis:
    """What Redis counts, what this server knows of its own clients, and leases between servers."""

    def __init__(self, broker: ServedRedis) -> None:
        self._broker = broker

    def tenants(self) -> Collection[str]:
        return {tenant for tenant in self._broker.tenants if tenant != SYSTEM_TENANT}

    async def used(self, tenant: str) -> Used:
        """Payloads of jobs. Key-value entries are not counted."""
        stats = await self._broker.execute_async(tenant, c.GetStats())
        counts = stats.counts
        return Used(counts.waiting + counts.delayed + counts.blocked, stats.payload_bytes)

    async def added_by(self, tenant: str, command: Any) -> Used:
        """At most this: what a command replaces is not subtracted."""
        kind = type(command)
        if kind is c.RetryDead:
            bounds = [command.limit, None if command.ids is None else len(command.ids)]
            dead = await self._dead(tenant, command.queue)
            return Used(min([dead, *(bound for bound in bounds if bound is not None)]))
        if kind is c.RetryWorkflow:
            return Used(1)
        if kind is c.KvIncrement:
            return Used(0, NUMBER_BYTES)
        if kind is c.KvSetMany:
            return Used(0, sum(len(entry.key) + len(entry.value) for entry in command.entries))
        if kind is c.UpdatePayload:
            return Used(0, len(command.payload))
        return Used(0, len(command.key) + len(command.value)) if kind is c.KvSet else Used()

    async def _dead(self, tenant: str, queue: str) -> int:
        found: r.DeadStats = await self._broker.execute_async(tenant, c.GetDeadStats(queue))
        return found.total

    def running(self) -> int:
        return self._broker.leases.running(self._broker.now())

    async def hand_back_all(self) -> int:
        count = 0
        for tenant, release in list(self._broker.leases.releases(self._broker.now())):
            with suppress(StokerError):  # Redis is away: the leases end by themselves
                count += (await self._broker.execute_async(tenant, release)).count
        return count

    # --- leases between servers ------------------------------------------------------------------

    async def hold(self, name: str, owner: str, ttl_ms: int) -> bool:
        return bool(await self._broker.evaluate(script("hold").text, f"hold:{name}", owner, ttl_ms))

    async def let_go(self, name: str, owner: str) -> None:
        await self._broker.evaluate(script("hold").text, f"hold:{name}", owner, 0)


def said(error: Exception) -> str:
    return str(error) or f"no answer within {PROBE_PATIENCE_S:g} s"


def checked_url(url: str) -> tuple[Target, RedisSettings]:
    """What the URL of a broker says. Raises `InvalidRequest`."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise InvalidRequest(f"expected a URL that begins with one of {known}")
    return read_url(parts, RedisSettings())


async def open_served(url: str, engine: Settings, limits: Limits) -> tuple[ServedRedis, ServerFacts]:
    """The broker of a server, connected. Clients of the server try again by themselves, so a call is tried once."""
    target, settings = checked_url(url)
    retry_s = 0.0 if settings.retry_s is None else settings.retry_s
    settings = msgspec.structs.replace(settings, engine=engine, limits=limits, retry_s=retry_s, resend=False)
    broker = ServedRedis(target, settings)
    try:
        return broker, await broker.open()
    except BaseException:
        broker.close()
        raise
