"""From a URL to the broker in Redis."""

from typing import Any
from urllib.parse import SplitResult

from stoker.brokers.redis.broker import RedisBroker
from stoker.brokers.redis.settings import RedisSettings, read_url
from stoker.model.errors import InvalidRequest


def open_redis(parts: SplitResult, settings: Any = None) -> RedisBroker:
    """Nothing is sent yet: the first call connects."""
    if settings is not None and not isinstance(settings, RedisSettings):
        raise InvalidRequest(f"{parts.scheme}:// takes RedisSettings, not {type(settings).__name__}")
    return RedisBroker(*read_url(parts, settings))
