"""The broker contract: carry out a command for a tenant, synchronously or not.

What the commands mean stands in `docs/semantics.md`; that a broker keeps to it is shown by the
conformance suite, which knows nothing but this contract.
"""

from typing import Protocol, TypeVar

import msgspec

from stoker.model.commands import Command

R = TypeVar("R")


class End(msgspec.Struct, frozen=True, gc=False):
    """How far the log of a shard reaches: its first sequence number that is still kept, and its last one."""

    last: int
    lowest: int


class Broker(Protocol):
    """Offers the queue's operations. Every method may be called from any thread."""

    def execute(self, tenant: str, command: Command[R]) -> R:
        """Carry out the command; blocks while a pull or a wait waits. Raises `StokerError`."""
        ...

    async def execute_async(self, tenant: str, command: Command[R]) -> R:
        """The same without blocking the event loop."""
        ...

    def close(self) -> None:
        """Answer whoever still waits with `closed` and let go of everything. A second call does nothing."""
        ...
