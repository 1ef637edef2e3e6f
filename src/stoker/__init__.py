"""Stoker: a job queue that keeps workers fed.

import stoker

queue = stoker.connect("sqlite:///jobs.db")
queue.push("mail", b"hello")
for job in queue.pull("mail"):
    queue.ack(job.id, job.token)
"""

from typing import TYPE_CHECKING

from stoker.brokers.connect import open_broker
from stoker.client.sync import Client
from stoker.model.errors import StokerError
from stoker.model.options import (
    Backoff,
    DeadLetterPolicy,
    Dependency,
    Options,
    RateLimit,
    Retention,
    Settings,
)
from stoker.model.states import State
from stoker.model.version import __version__

if TYPE_CHECKING:
    from stoker.brokers.local import LocalSettings
    from stoker.brokers.remote.settings import RemoteSettings

__all__ = [
    "Backoff",
    "Client",
    "DeadLetterPolicy",
    "Dependency",
    "Options",
    "RateLimit",
    "Retention",
    "Settings",
    "State",
    "StokerError",
    "__version__",
    "connect",
]


def connect(
    url: str | None = None,
    *,
    tenant: str = "default",
    settings: "LocalSettings | RemoteSettings | None" = None,
    tracing: bool = True,
) -> Client:
    """A synchronous client for the broker behind `url`, or behind STOKER_URL, or else `sqlite:///stoker.db`.

    Pushes inside a span of OpenTelemetry carry its context along, unless `tracing` is false. `stoker.aio.connect`
    gives the asynchronous client.
    """
    return Client(open_broker(url, settings), tenant, tracing=tracing)
