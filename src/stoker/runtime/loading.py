"""Replies that have to be read from the journal before they can leave.

A journal behind a network reads nothing within a turn. The command then waits as a `Parked`, the broker reads on
another thread, and the next turn answers it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from stoker.engine.parking import Parked

TRIES = 64
"""A command that meets one payload after another that is not in memory is carried out anew for each: more than a step
of a search can need.
"""


READ_MS_MAX = 86_400_000
"""A command that waits for a read is answered long before."""


class Load(msgspec.Struct, frozen=True, eq=False):
    """What has to be read for a command."""

    parked: Parked
    read: Callable[[], Any]
    """Reads it. It may wait, and touches no state of a shard."""
    finish: Callable[[Any, int], None]
    """Called in a turn with what was read, or with the error instead, and the time."""
    tries: int = 0
    """How often the command was carried out before."""
