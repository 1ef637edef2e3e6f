"""From the options of a read or a write to a client: in the driver, and in executors, which are other processes.

It knows nothing of logs and rows, so that tasks which only write or work need not load what reads them.
"""

import os
from urllib.parse import SplitResult, unquote, urlsplit

import stoker
from stoker.brokers.connect import DEFAULT_URL, EMBEDDED
from stoker.brokers.remote.broker import OWN_TENANT
from stoker.brokers.remote.settings import RemoteSettings
from stoker.client.sync import Client
from stoker.model.errors import InvalidRequest
from stoker.spark.options import Connection

RETRY_S = 30.0
"""A task waits for a server that is restarted, as a worker does. The URL may say otherwise: `?retry_s=5`."""


def connect(connection: Connection, tenant: str | None = None) -> Client:
    scheme = place_of(connection).scheme
    if scheme == "memory":
        raise InvalidRequest("option url: memory:// is within one process, and executors are others: use sqlite:///")
    if connection.token is not None and scheme in EMBEDDED:
        raise InvalidRequest(f"option token: a server asks for one, and {scheme}:// is none; leave it out")
    settings = None if scheme in EMBEDDED else RemoteSettings(token=connection.token, retry_s=RETRY_S)
    tenant = connection.tenant if tenant is None else tenant
    return stoker.connect(connection.url, tenant=tenant, settings=settings, tracing=False)


def place_of(connection: Connection) -> SplitResult:
    return urlsplit(connection.url or os.environ.get("STOKER_URL") or DEFAULT_URL)


def is_tokens_own(connection: Connection, tenant: str) -> bool:
    """Whether a server takes this for "no tenant named", and gives what belongs to the token, whosever that is."""
    return tenant == OWN_TENANT and place_of(connection).scheme not in EMBEDDED


def check_there(connection: Connection) -> None:
    """Who reads makes no queue: a directory that is not there is a mistake in its name, or in who looks for it."""
    parts = place_of(connection)
    directory = unquote(parts.path[1:])
    if parts.scheme == "sqlite" and not parts.netloc and directory and not os.path.isdir(directory):
        raise InvalidRequest(
            f"option url: there is no queue in {os.path.abspath(directory)}; sqlite:////PATH is a path from the root,"
            " and sqlite:///PATH one from where the driver runs"
        )
