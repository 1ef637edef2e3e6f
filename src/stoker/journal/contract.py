"""What a journal and its store do: the contracts that recovery, runtime, broker and server stand on.

`Journal` appends the records of turns, says how far they are safe, and reads them back. `Store` is what a broker is
opened over: its recovered shards, their journal, and the upkeep of both. `DataDirectory` is what only a store in a
directory can do. `docs/development/journal.md` tells how to add a journal.

A journal that has to ask over a network reads nothing within a turn: `read`, `rows`, `payloads` and `body` raise
`NotAtHand` for what is not in memory, unless the thread may wait (`patience.py`).

Sequence numbers of a shard start at 1 and have no gaps. What retention has dropped lies below `lowest`; payloads that
something live still refers to are kept beyond that.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stoker.engine.shard import Shard
from stoker.model.replies import Level
from stoker.records.codec import LogRow
from stoker.records.records import Record

if TYPE_CHECKING:
    from stoker.journal.backup import BackupInfo
    from stoker.journal.doctor import Progress

Turn = Sequence[tuple[int, Sequence[Record]]]
"""What one turn brought about: the records of each shard that has any."""


class JournalFailed(Exception):
    """The journal can promise nothing any more: what was on its way may have happened or not."""


class NotWritten(JournalFailed):
    """The journal had failed before: nothing of this was written, and nothing ever will be."""


class Journal(Protocol):
    """The logs of all shards of a process."""

    @property
    def levels(self) -> Sequence[Level]:
        """The levels that it has, the weakest first. With `memory` alone it keeps nothing: see `keeps`."""
        ...

    @property
    def at_once(self) -> Sequence[Level]:
        """Those that a turn has reached when `append` returns. Replies of the others wait for a ticket."""
        ...

    @property
    def reads_wait(self) -> bool:
        """Whether every reply waits for the newest ticket, also one of a turn that changed nothing.

        For a journal that can lose a turn while the process lives, because another process may have taken its place:
        no client may see what never was.
        """
        ...

    is_full: bool
    """Whether there is only room left for what makes room."""
    room: int
    """How many bytes may still be written, as far as is known; little or nothing when it is full."""

    absent: str
    """Why nothing new is taken for now: the place where it is kept does not answer. Empty while it does."""

    is_tight: bool
    """Whether each command has to be looked at: it is full, it is absent, or there is little room. Asked for every
    command, so it is a plain attribute; `RoomWatch` keeps it.
    """

    @property
    def is_out(self) -> bool:
        """Whether there is no room left for anything."""
        ...

    def append(self, turn: Turn, *, defer: bool = False, waits: bool = True) -> None:
        """Add the records of one turn, all or none. From now on they can be read here, whether they are safe or not.

        `defer` leaves it to the next turn, to the next flush, or to a moment later: no reply needs it when `append`
        returns. So one commit and one flush serve all calls that wait for a ticket. `waits` says whether the replies
        wait for anything: those that do not may tell of something that is lost with the process.
        """
        ...

    def ticket(self) -> int:
        """What `when_flushed` is asked for, to hear when everything appended so far is safe. 0: it is, at once."""
        ...

    def when_flushed(self, ticket: int, tell: Callable[[], object]) -> bool:
        """Call `tell`, from any thread, once a ticket is reached or never will be; false if it is reached already."""
        ...

    def reached(self, ticket: int) -> bool:
        """Whether everything that the ticket stands for is safe."""
        ...

    @property
    def has_failed(self) -> bool:
        """Whether no further ticket will ever be reached."""
        ...

    def read(self, shard: int, after: int, limit: int) -> list[tuple[int, Record]]:
        """Up to `limit` records with sequence numbers above `after`; fewer where they are large, none at the end."""
        ...

    def rows(self, shard: int, after: int, bytes_max: int) -> list[LogRow]:
        """The rows with records above `after`, in order: about this many bytes, at least one row if there is one."""
        ...

    def payloads(self, shard: int, sequence: int) -> Sequence[bytes]:
        """The payloads that one record carries."""
        ...

    def read_together(self, places: Iterable[tuple[int, int]]) -> None:
        """Have the payloads of these records, each a shard and a sequence number, in memory for a moment.

        Called where it may wait, before `payloads` is called for each. A journal that reads one as quickly as many
        does nothing. Raises `Unavailable` if none can be read now.
        """
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

    def safe(self, shard: int) -> int:
        """The last sequence number that no other process can make undone: readers begin behind it, or before."""
        ...

    def close(self) -> None: ...


def keeps(journal: Journal) -> bool:
    """Whether payloads can be read back from it, so that they need not stay in memory."""
    return journal.levels[-1] != "memory"


class Owner(Protocol):
    """The broker that a store was opened for."""

    @property
    def guard(self) -> AbstractContextManager[Any]:
        """Its lock: no turn happens while it is held."""
        ...

    def stop(self, error: Exception) -> None:
        """The journal can promise nothing any more."""
        ...

    def commit(self) -> None:
        """Journal what was emitted outside of a turn. Called within the lock."""
        ...

    def now(self) -> int: ...


class Store(Protocol):
    """A journal, recovered and opened: what a broker that keeps its jobs is made of.

    Keys of ended jobs are the shards' own: a store that has a place for them outside of memory puts it into
    `Shard.old_keys`. Without one they stay in memory.
    """

    @property
    def shards(self) -> Sequence[Shard]:
        """Those that live in this process, as they were. Each has heard that it was opened (`recovery.reopened`)."""
        ...

    @property
    def total(self) -> int:
        """How many shards there are, those of other processes included."""
        ...

    @property
    def journal(self) -> Journal: ...

    @property
    def at(self) -> int:
        """Journaled time: what happens next does not happen earlier."""
        ...

    @property
    def data_directory(self) -> "DataDirectory | None":
        """What it can do because it lies in a directory. None if it does not."""
        ...

    def start(self, owner: Owner) -> None:
        """Begin the upkeep. Called once, when the broker can answer."""
        ...

    def leave_to_parent(self) -> None:
        """In a process forked off the owner's: let go of what would keep others out, and write nothing."""
        ...

    def close(self) -> None:
        """Make everything safe that was appended, and let go. The broker makes no more turns."""
        ...


class Meeting(Protocol):
    """Several processes, each with its part of the shards, that stop for one moment: the one of their snapshot."""

    def ready(self) -> None:
        """Called when this process could stop at once. Returns when all could."""
        ...

    def paused(self) -> None:
        """Called when this process makes no more turns. Returns when no process does."""
        ...


class DataDirectory(Protocol):
    """What a store can do because its files lie in a directory."""

    @property
    def path(self) -> Path: ...

    @property
    def notice(self) -> str:
        """What other processes read that find the directory in use. Empty if they cannot share it."""
        ...

    def snapshot_into(self, folder: Path, meeting: Meeting | None = None) -> None:
        """Make an empty folder a data directory with the state of this moment, or of that of a `meeting`."""
        ...

    def backup(self, url: str, progress: "Progress | None" = None) -> "BackupInfo":
        """Write all of it to a directory or to S3-compatible storage, while serving goes on."""
        ...
