"""Two servers in front of one Redis, for the conformance suite: each command of a test goes to the other one."""

from itertools import count, cycle
from typing import Any

from stoker.brokers.connect import open_broker
from stoker.model.limits import Limits
from stoker.model.options import Settings
from tests.redis.servers import shared
from tests.served.process import ServerProcess, the_process

TRANSPORTS = ("tcp", "http", "grpc")
_numbers = count(1)


class Alternating:
    """A broker that sends one command to this server, and the next to that one."""

    def __init__(self, brokers: list[Any]) -> None:
        self._brokers = brokers
        self._turns = cycle(brokers)

    def execute(self, tenant: str, command: Any) -> Any:
        return next(self._turns).execute(tenant, command)

    async def execute_async(self, tenant: str, command: Any) -> Any:
        return await next(self._turns).execute_async(tenant, command)

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()


class ServedFromRedis:
    """The servers live in the process that serves all tests; the Redis is this process' own."""

    has_transactions = False
    has_claims = False

    def __init__(self, settings: Settings, limits: Limits) -> None:
        self._process: ServerProcess = the_process()
        self._redis = shared("redis")
        number = next(_numbers)
        transport = TRANSPORTS[number % len(TRANSPORTS)]
        asked = "open_redis", transport, settings, limits, str(self._redis.socket), f"served{number}"
        self._world, where = self._process.call(*asked)
        self.broker = Alternating([open_broker(f"{transport}://{address}") for address in where.split()])

    @property
    def now(self) -> int:
        return int(self._process.call("now", self._world))

    def advance(self, ms: int) -> None:
        self._process.call("advance", self._world, ms)

    def picture(self, tenant: str) -> Any:
        return self._process.call("picture", self._world, tenant)

    def close(self) -> None:
        self.broker.close()
        self._process.call("close", self._world)
        with self._redis.client() as client:
            client.flushall()


def two_nodes(settings: Settings, limits: Limits, shards: int) -> ServedFromRedis:
    return ServedFromRedis(settings, limits)
