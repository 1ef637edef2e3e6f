"""Brokers and forks: a child must not share its parent's connections, or each would read the other's replies.

The child's copy of a broker stays usable: it leaves the parent's connections alone and makes its own when it needs one.
"""

import os
from typing import Any, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Something with connections."""

    def begin_anew(self) -> None:
        """In the child, before anything else runs there: drop the parent's connections without sending anything."""
        ...


_known: "WeakSet[Any]" = WeakSet()


def remember(broker: Forked) -> None:
    _known.add(broker)


def leave_to_parent(descriptor: int) -> None:
    """Take a connection away from this process, and leave a descriptor behind that its other users may close."""
    if descriptor < 0:
        return  # it was closed before the fork
    nowhere = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nowhere, descriptor, inheritable=False)
    finally:
        os.close(nowhere)


def _begin_anew() -> None:
    for broker in list(_known):
        broker.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
