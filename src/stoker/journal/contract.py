"""What a journal does: append the records of a turn, and read them back by sequence number.

Sequence numbers of a shard start at 1 and have no gaps. What retention has dropped lies below `lowest`.
"""

from collections.abc import Sequence
from typing import Protocol

from stoker.model.replies import Level
from stoker.records.records import Record


class Journal(Protocol):
    """The logs of all shards of a process."""

    level: Level
    """What a reply may promise once `append` has returned."""

    def append(self, shard: int, records: Sequence[Record]) -> None:
        """Add the records of one turn, all or none."""
        ...

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        """Up to `limit` records with sequence numbers above `after`."""
        ...

    def lowest(self, shard: int) -> int:
        """The first sequence number that is still kept; the next one to come if there is none."""
        ...

    def last(self, shard: int) -> int:
        """The last sequence number given; 0 at the beginning."""
        ...
