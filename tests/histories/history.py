"""What clients asked of a broker and what they heard: the material of `checker.py`.

A client writes an intent before it sends a command and the outcome after it. A command with an intent and no outcome
has an unknown one: the client died, or was told `unknown`. A history has any number of clients. Each has at most one
command under way, and their entries are merged in the order of time.
"""

import copyreg
from types import MappingProxyType
from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.states import State


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


copyreg.pickle(MappingProxyType, lambda proxy: (_read_only, (dict(proxy),)))  # replies have them, and are pickled


class Intent(msgspec.Struct, frozen=True):
    """The client is about to send this."""

    at: int
    command: c.Command[Any]
    client: str = ""


class Reply(msgspec.Struct, frozen=True):
    """The command was carried out, and this is the answer."""

    reply: Any
    client: str = ""
    at: int = 0
    """When the client heard it; 0 = when it asked, under a clock that stands still meanwhile."""


class Refused(msgspec.Struct, frozen=True):
    """The command was refused, and has changed nothing."""

    code: str
    message: str
    client: str = ""
    at: int = 0


class Unsure(msgspec.Struct, frozen=True):
    """The client was told that the command may have happened or not."""

    code: str
    message: str
    client: str = ""
    at: int = 0


class Seen(msgspec.Struct, frozen=True):
    """A job as a look at the whole queue found it."""

    id: int
    key: bytes
    state: State
    token: int
    lease_until: int
    result: bytes | msgspec.UnsetType | None = msgspec.UNSET
    """Unset where the look does not tell."""


class Recovered(msgspec.Struct, frozen=True):
    """After a crash a new process has opened the directory, and these jobs are there."""

    at: int
    jobs: list[Seen]
    pictures: list[Any]
    """Of every shard; see `tests/crash/pictures.py`."""


class Stopping(msgspec.Struct, frozen=True):
    """The broker ends in order, and hands back the jobs that run: leases may end before their time until it is over."""

    at: int
    over: bool = False


class Began(msgspec.Struct, frozen=True):
    """A handler began with a delivery of a job."""

    at: int
    job: int
    token: int
    attempt: int


class Ended(msgspec.Struct, frozen=True):
    """A handler is through with it, and about to say so."""

    at: int
    job: int
    token: int
    attempt: int


Entry = Intent | Reply | Refused | Unsure | Recovered | Stopping | Began | Ended


def key_of(payload: bytes) -> bytes:
    """What tells a job from all others, whatever happens to the rest of its payload."""
    return payload.partition(b";")[0]
