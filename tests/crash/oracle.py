"""The same commands without a disk: what a broker must hold that has forgotten nothing.

The engine decides the same way every time. So a recovered shard is right if it equals one that went through the same
commands in memory and never died. Of the last command before a crash, if it was not answered, both outcomes are right.
"""

from typing import Any

import msgspec

from stoker.brokers.local import LocalBroker, LocalSettings
from stoker.model import commands as c
from stoker.model.errors import StokerError
from stoker.testing import FakeClock
from tests.crash.pictures import Picture, state_of, take_pictures
from tests.histories.workload import TENANT

KEYS_ALL = 1_000
"""More keys than any test has."""


class Oracle:
    """A broker in memory that follows another one."""

    def __init__(self, settings: LocalSettings, now: int) -> None:
        self._forgets_keys = settings.journal is not None and settings.journal.keys_in_memory < KEYS_ALL
        self.clock = FakeClock(now)
        self.broker = LocalBroker(msgspec.structs.replace(settings, journal=None), self.clock)

    def carry_out(self, at: int, command: c.Command[Any]) -> object:
        """Its reply, or the code of its refusal."""
        self.advance(at)
        try:
            return self.broker.execute(TENANT, command)
        except StokerError as error:
            return error.code

    def advance(self, at: int) -> None:
        self.clock.advance(at - self.clock.now_ms())
        self.broker.advance()

    def pictures(self) -> list[Picture]:
        return take_pictures(self.broker)[0]

    def states(self) -> list[dict[str, Any]]:
        return [state_of(shard) for shard in self.broker.runtime.shards]

    def agrees(self, found: list[Picture]) -> bool:
        """Is this what it holds itself? Ids may be ahead."""
        return all(
            one.state == other.state
            and (one.keys == other.keys or self._forgets_keys)
            and one.sequence >= other.sequence
            for one, other in zip(found, self.pictures(), strict=True)
        )

    def follow(self, found: list[Picture]) -> None:
        """Go on with the ids and tokens that the other one goes on with."""
        for shard, picture in zip(self.broker.runtime.shards, found, strict=True):
            shard.sequence, shard.token = picture.sequence, picture.token
        self.broker.runtime._tenants.clear()  # the first pull of a new process takes a longer way, to another token
