"""The engine inside this process: the broker (`broker.py`), who waits in it, how it is set up and opened."""

from stoker.brokers.local.broker import CLOSED, LocalBroker, new_shards
from stoker.brokers.local.opening import holder_of, open_memory, open_part, open_sqlite, shards_of
from stoker.brokers.local.settings import LocalSettings, with_parameters
from stoker.brokers.local.waiting import NO_REPLY, FlushLine, Slot

__all__ = [
    "CLOSED",
    "NO_REPLY",
    "FlushLine",
    "LocalBroker",
    "LocalSettings",
    "Slot",
    "holder_of",
    "new_shards",
    "open_memory",
    "open_part",
    "open_sqlite",
    "shards_of",
    "with_parameters",
]
