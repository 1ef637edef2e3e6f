"""A command as a sequence of steps: script calls and waits, written once for blocking and for asynchronous callers.

A plan is a generator. It yields steps, gets what came of them, and returns the reply. It does no I/O: `broker.py`
carries the steps out.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

R = TypeVar("R")

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


class ScriptCall(NamedTuple):
    """Call a script. `params` is one MessagePack map; `args` are bytes that follow it."""

    script: str
    params: Mapping[str, Any]
    args: Sequence[bytes] = ()


class ListWait(NamedTuple):
    """Wait until one of these lists has an entry, or until a time."""

    keys: Sequence[str]
    until: int
    ends_at: int
    """The caller gives up at this time."""


class LogRead(NamedTuple):
    """Read records of the log: those after a number, at most so many."""

    after: int
    limit: int
    wait_until: int = 0


class ScriptReply(NamedTuple):
    """What a script answered."""

    now: int
    next_at: int
    """The next deadline; -1 if there is none."""
    values: Sequence[Any]


class Rejected(Exception):
    """A script refused. The plan turns it into the error that every broker raises."""

    def __init__(self, code: str, message: bytes, now: int) -> None:
        super().__init__(code, message)
        self.code, self.message, self.now = code, message, now


Step = ScriptCall | ListWait | LogRead
Plan = Generator[Step, Any, R]


class PlanContext(NamedTuple):
    """What a plan may know."""

    tenant: str
    limits: Any
    settings: Any
    checker: Any
    """An empty shard: what is wrong with a command by itself is the same everywhere."""
    level: Any
