"""What a journal does: append the records of a turn, say how far they are safe, and read them back.

Sequence numbers of a shard start at 1 and have no gaps. What retention has dropped lies below `lowest`; payloads that
something live still refers to are kept beyond that.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from stoker.model.replies import Level
from stoker.records.codec import Row
from stoker.records.records import Record

Turn = Sequence[tuple[int, Sequence[Record]]]
"""What one turn brought about: the records of each shard that has any."""


class JournalFailed(Exception):
    """The journal can promise nothing any more: what was on its way may have happened or not."""


class NotWritten(JournalFailed):
    """The journal had failed before: nothing of this was written, and nothing ever will be."""


class Journal(Protocol):
    """The logs of all shards of a process."""

    level: Level
    """What a reply may promise once `append` has returned."""
    is_full: bool
    """Whether there is only room left for what makes room."""
    room: int
    """How many bytes may still be written, as far as is known; little or nothing when it is full."""

    @property
    def is_out(self) -> bool:
        """Whether there is no room left for anything."""
        ...

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        """Add the records of one turn, all or none.

        `defer` leaves it to the next turn, to the next flush, or to a moment later: for those who do not wait, and for
        those who wait for the disk, so that one commit and one flush serve all of them. `waits` says whether the
        replies do: those that do not may tell of something that is lost with the process.
        """
        ...

    def flush(self) -> int:
        """Bring everything appended so far to the disk; how many turns that is. May be called from any thread."""
        ...

    def ticket(self) -> int:
        """What `when_flushed` is asked for, to hear when everything appended so far is on disk."""
        ...

    def when_flushed(self, ticket: int, tell: Callable[[], object]) -> bool:
        """Call `tell` once so many turns are on disk, or once they never will be; false if they are there already."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether nothing more will ever be on disk."""
        ...

    def reached(self, ticket: int) -> bool:
        """Whether so many turns are safely on disk."""
        ...

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        """Up to `limit` records with sequence numbers above `after`; fewer where they are large, none at the end."""
        ...

    def rows(self, shard: int, after: int, bytes_max: int) -> list[Row]:
        """The rows with records above `after`, in order: about so many bytes, at least one if there is one."""
        ...

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        """The payloads that one record carries."""
        ...

    def body(self, shard: int, sequence: int) -> bytes | None:
        """The same as they were written; None if the record is no longer kept."""
        ...

    def expect(self, shard: int, coming: Sequence[int], gone: Sequence[int], now: int) -> None:
        """The payloads of these records will be asked for next; those of the others no more."""
        ...

    def lowest(self, shard: int) -> int:
        """The first sequence number that is still kept; the next one to come if there is none."""
        ...

    def last(self, shard: int) -> int:
        """The last sequence number given; 0 at the beginning."""
        ...

    def close(self) -> None: ...
