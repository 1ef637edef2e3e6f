"""How far a lake is behind its queue, as the file of a lake has it: a stream writes it, commands and pages read it."""

from typing import Any, Final

import msgspec

FILE: Final = "_lag.json"
"""The file of a lake with the lag that its stream has measured last."""
AGAIN_MS: Final = 30_000
"""The stream writes the file again after this time, even if nothing has changed."""


class ShardLag(msgspec.Struct, frozen=True):
    """How far the lake is behind in one shard."""

    shard: int
    position: int
    """The last record that the lake has."""
    last: int
    """The last record of the log."""
    events: int
    """Events after the position that the lake will have."""
    seconds: float
    """How long ago the oldest of them happened."""
    is_exact: bool
    """False if the number of events is estimated."""


class Lag(msgspec.Struct, frozen=True):
    """How far a lake is behind, as of a moment."""

    at: int
    """Milliseconds since 1970."""
    shards: tuple[ShardLag, ...]

    @property
    def events(self) -> int:
        return sum(each.events for each in self.shards)

    @property
    def seconds(self) -> float:
        return max((each.seconds for each in self.shards), default=0.0)

    @property
    def is_exact(self) -> bool:
        return all(each.is_exact for each in self.shards)

    def as_json(self) -> dict[str, Any]:
        """With the sums, for programs that read the file."""
        told = {"at": self.at, "events": self.events, "seconds": self.seconds, "is_exact": self.is_exact}
        return told | {"shards": [msgspec.to_builtins(each) for each in self.shards]}
