"""The broker contract: carry out a command for a tenant, synchronously or not.

What the commands mean stands in `docs/semantics.md`; that a broker keeps to it is shown by the
conformance suite, which knows nothing but this contract.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeVar

import msgspec

from stoker.model.commands import Command
from stoker.model.errors import Unsupported

R = TypeVar("R")

LACKS_NOTHING: frozenset[str] = frozenset()
"""What a broker with every command lacks."""


class End(msgspec.Struct, frozen=True, gc=False):
    """How far the log of a shard reaches: its first sequence number that is still kept, and its last one."""

    last: int
    lowest: int


class Waiter:
    """A caller that waits for the reply to its command, and may give it up.

    This one object stands for the caller from the broker to the transport. A broker with turns makes it when a command
    has to wait. The server makes it for a command that waits in another process, or in a broker without turns.
    """

    __slots__ = ("command", "done", "stop", "tenant")

    done: Callable[[Any], None]
    """Takes the reply, or an error. The server sets it."""

    def __init__(self, tenant: str, command: Command[Any], stop: Callable[[Any], object]) -> None:
        self.tenant = tenant
        self.command = command
        self.stop = stop
        """Called with this waiter: ends the waiting where the command is carried out."""

    def __call__(self, reply: Any) -> None:
        """Hand the reply on."""
        self.done(reply)

    def give_up(self) -> None:
        """Wait no longer: `done` is not called, and jobs that come all the same go back as if never pulled."""
        self.stop(self)


class Broker(Protocol):
    """Offers the queue's operations. Every method may be called from any thread."""

    @property
    def name(self) -> str:
        """For refusals: `local`, `redis`."""
        ...

    @property
    def lacks(self) -> frozenset[str]:
        """What it refuses as `unsupported`: commands (`Stage`), and fields of commands (`Pull.claim`).

        A client of a server does not know what the server lacks: there it is empty, and the server refuses.
        """
        ...

    def execute(self, tenant: str, command: Command[R]) -> R:
        """Carry out the command; blocks while a pull or a wait waits. Raises `StokerError`."""
        ...

    async def execute_async(self, tenant: str, command: Command[R]) -> R:
        """The same without blocking the event loop."""
        ...

    def close(self) -> None:
        """Answer all waiting calls with `closed` and release everything. A second call does nothing."""
        ...


class Lacking(Protocol):
    """The part of a broker that says what the broker does not have."""

    @property
    def name(self) -> str: ...

    @property
    def lacks(self) -> frozenset[str]: ...


def check_command(broker: Lacking, command: Command[Any]) -> None:
    """Raise `Unsupported` if the broker lacks this command, or a field that the command sets."""
    kind = type(command)
    lacking = lacking_of(broker.lacks, kind)
    if lacking is None:
        return
    if not lacking:
        raise Unsupported.by(broker.name, kind.__name__)
    for field, unset in lacking.items():
        if getattr(command, field) != unset:
            raise Unsupported.by(broker.name, f"{kind.__name__} with {field}")


@cache
def lacking_of(lacks: frozenset[str], kind: type[Command[Any]]) -> dict[str, Any] | None:
    """The fields of a command that are lacking, each with the value that does not ask for it. Empty if the whole
    command is lacking, None if nothing of it is.
    """
    name = kind.__name__
    if name in lacks:
        return {}
    fields = msgspec.structs.fields(kind)
    return {field.name: field.default for field in fields if f"{name}.{field.name}" in lacks} or None
