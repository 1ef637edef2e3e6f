"""The engine inside this process: the broker (`broker.py`), its waiting callers, its settings, and how it is opened."""

from stoker.brokers.local.broker import CLOSED, LocalBroker, new_shards
from stoker.brokers.local.opening import (
    holder_of,
    is_locked,
    open_memory,
    open_part,
    open_seat,
    open_sqlite,
    open_without_shards,
    shards_of,
    snapshot_of,
)
from stoker.brokers.local.settings import LocalSettings, with_parameters
from stoker.brokers.local.waiting import NO_REPLY, FlushLine, LocalWaiter

__all__ = [
    "CLOSED",
    "NO_REPLY",
    "FlushLine",
    "LocalBroker",
    "LocalSettings",
    "LocalWaiter",
    "holder_of",
    "is_locked",
    "new_shards",
    "open_memory",
    "open_part",
    "open_seat",
    "open_sqlite",
    "open_without_shards",
    "shards_of",
    "snapshot_of",
    "with_parameters",
]
