"""The queue in Redis: every step is one Lua script, and no Stoker server runs."""

from stoker.brokers.redis.settings import RedisSettings

__all__ = ["RedisSettings"]
