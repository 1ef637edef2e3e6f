"""What all families of commands need to speak: a client of strangers, and a way to say that there is no word.

It knows nothing of any single command.
"""

from typing import Any, Protocol

from stoker.model import replies as r
from tests.reference_clients.calling import Answer
from tests.reference_clients.sockets import OverSockets
from tests.reference_clients.web import ApiCommand, Rest

Client = OverSockets | ApiCommand | Rest


class NotInDialect(Exception):
    """The command cannot be said: a test that needs it belongs into the table of gaps."""


class Timed(Protocol):
    """The world whose clock the server goes by."""

    @property
    def now(self) -> int: ...


class Speaker:
    """Says things over one of the reference clients."""

    def __init__(self, client: Client, world: Timed) -> None:
        self._client = client
        self._world = world

    def _call(self, cmd: str, tenant: str, **fields: Any) -> Answer:
        """Fields that are None are left out, as anybody would."""
        return self._client.call(cmd, tenant, **{name: value for name, value in fields.items() if value is not None})

    def _done(self, cmd: str, tenant: str, **fields: Any) -> r.Done:
        answer = self._call(cmd, tenant, **fields)
        return r.Done(answer.get("count", 1), answer["level"])
