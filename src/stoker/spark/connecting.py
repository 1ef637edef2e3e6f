"""Makes a client from the options of a read or a write, in the driver and in executors.

It knows nothing of logs and rows, so that tasks that only write or work need not load the code that reads them.
"""

import os
from urllib.parse import SplitResult, unquote, urlsplit

import stoker
from stoker.brokers.connect import DEFAULT_URL, EMBEDDED, REDIS, settings_for
from stoker.brokers.remote.broker import OWN_TENANT
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.options import QueueConnection

RETRY_S = 30.0
"""A task waits this long for a server that restarts, as a worker does. The URL may say otherwise: `?retry_s=5`."""


def connect(connection: QueueConnection, tenant: str | None = None) -> Client:
    scheme = place_of(connection).scheme
    if scheme == "memory":
        raise InvalidRequest("option url: memory:// belongs to one process, and executors are others: use sqlite:///")
    if connection.token is not None and scheme in (*EMBEDDED, *REDIS):
        raise InvalidRequest(f"option token: only a server takes one, and {scheme}:// is not a server; leave it out")
    settings = settings_for(place_of(connection).geturl(), RETRY_S, connection.token)
    tenant = connection.tenant if tenant is None else tenant
    return stoker.connect(connection.url, tenant=tenant, settings=settings, tracing=False)


def place_of(connection: QueueConnection) -> SplitResult:
    return urlsplit(connection.url or os.environ.get("STOKER_URL") or DEFAULT_URL)


def is_tokens_own(connection: QueueConnection, tenant: str) -> bool:
    """Whether the server reads this as "no tenant named", and uses the token's own tenant, whatever its name."""
    return tenant == OWN_TENANT and place_of(connection).scheme not in (*EMBEDDED, *REDIS)


def check_there(connection: QueueConnection) -> None:
    """A reader creates no queue: a missing directory means a wrong path, or a wrong machine."""
    parts = place_of(connection)
    directory = unquote(parts.path[1:])
    if parts.scheme == "sqlite" and not parts.netloc and directory and not os.path.isdir(directory):
        raise InvalidRequest(
            f"option url: there is no queue in {os.path.abspath(directory)}; sqlite:////PATH is an absolute path,"
            " and sqlite:///PATH is relative to the driver's directory"
        )
