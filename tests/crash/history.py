"""What was asked of a broker and what came back, as whoever asked knows it: the material of `checker.py`.

Intents are written down before a command is carried out and replies after it. So a command with an intent and no reply
has an unknown outcome, and a crash leaves at most one of them.
"""

from typing import Any

import msgspec

from stoker.model import commands as c
from stoker.model.states import State


class Intent(msgspec.Struct, frozen=True):
    """This is about to be asked for."""

    at: int
    command: c.Command[Any]


class Reply(msgspec.Struct, frozen=True):
    """It was done, and this is the answer."""

    reply: Any


class Refused(msgspec.Struct, frozen=True):
    """It was refused."""

    code: str
    message: str


class Seen(msgspec.Struct, frozen=True):
    """A job as it was found after a crash."""

    id: int
    key: bytes
    state: State
    token: int
    lease_until: int


class Recovered(msgspec.Struct, frozen=True):
    """A new process has opened the directory, and these jobs are there."""

    at: int
    jobs: list[Seen]
    pictures: list[Any]
    """Of every shard; see `pictures.py`."""


Entry = Intent | Reply | Refused | Recovered


def key_of(payload: bytes) -> bytes:
    """What tells a job from all others, whatever happens to the rest of its payload."""
    return payload.partition(b";")[0]
