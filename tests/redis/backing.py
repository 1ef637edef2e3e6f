"""The broker in Redis under the tests' clock."""

from itertools import count

from stoker.brokers.redis.broker import RedisBroker
from stoker.brokers.redis.settings import RedisSettings, Target
from stoker.model import commands as c
from stoker.model.limits import Limits
from stoker.model.options import Settings
from stoker.testing import FakeClock
from tests.redis.servers import shared

_numbers = count(1)


class InRedis:
    """A queue of its own in the server that all tests of this process share."""

    has_transactions = False
    has_claims = False

    def __init__(self, kind: str, settings: Settings, limits: Limits, start_ms: int = 1_700_000_000_000) -> None:
        self._clock = FakeClock(start_ms)
        self.prefix = f"test{next(_numbers)}"
        self.server = shared(kind)
        own = RedisSettings(engine=settings, limits=limits, prefix=self.prefix)
        self.broker = RedisBroker(Target(str(self.server.socket), 0), own, self._clock)

    @property
    def now(self) -> int:
        return self._clock.now_ms()

    def advance(self, ms: int) -> None:
        self._clock.advance(ms)
        for tenant in list(self.broker.tenants):
            self.broker.execute(tenant, c.ListQueues())  # as a worker that pulls keeps the time

    def close(self) -> None:
        self.broker.close()
        client = self.server.client()
        client.flushall()
        client.close()


def redis_6(settings: Settings, limits: Limits, shards: int) -> InRedis:
    return InRedis("redis", settings, limits)


def valkey(settings: Settings, limits: Limits, shards: int) -> InRedis:
    return InRedis("valkey", settings, limits)
