"""The queue in Redis: every step is one Lua script, and no Stoker server runs."""

from stoker.brokers.redis.broker import RedisBroker
from stoker.brokers.redis.opening import open_redis
from stoker.brokers.redis.settings import RedisSettings

__all__ = ["RedisBroker", "RedisSettings", "open_redis"]
