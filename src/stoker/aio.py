"""Stoker for asyncio: `queue = await stoker.aio.connect("memory://")`."""

from typing import TYPE_CHECKING

from stoker.brokers.connect import open_broker
from stoker.client.aio import AsyncClient

if TYPE_CHECKING:
    from stoker.brokers.connect import BrokerSettings

__all__ = ["AsyncClient", "connect"]


async def connect(
    url: str | None = None,
    *,
    tenant: str = "default",
    settings: "BrokerSettings | None" = None,
    tracing: bool = True,
) -> AsyncClient:
    """An asynchronous client for the broker behind `url`, or behind STOKER_URL, or else `sqlite:///stoker.db`."""
    return AsyncClient(open_broker(url, settings), tenant, tracing=tracing)
